"""The wall that binds, from figures alone: what each one needs, and what is never claimed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bottleneck import find_walls
from experiments.card import Wall
from tests.factories import an_evidence

FIELD = {  # the evidence before the winning card: prefill queue persistent, decode queue zero
    "prefill.waiting.share_positive": 0.98,
    "prefill.waiting.mean": 11.2,
    "decode.prealloc.share_positive": 0.0,
}
IDLE = {"prefill.waiting.share_positive": 0.02, "decode.prealloc.share_positive": 0.0}
HELD_BACK = {  # Little's law: neither side queues for long, and the client is at its cap
    "client.concurrency_mean": 22.5,
    "client.concurrency_limit": 24.0,
    "decode.running_share_of_cap": 0.68,
    "prefill.waiting.share_positive": 0.3,
}
# One engine logs its queue when it forms a prefill batch. By Little's law hardly a request waits: 21.8 of 22.5 decode.
BURSTS = {"prefill.waiting.share_positive": 0.59, "decode.running.mean": 2.72, "decode.ranks": 8.0}

CASES = [
    (
        FIELD,
        Wall.PREFILL_SUPPLY,
        "requests wait for prefill in 98% of the samples, for decode in 0%",
    ),
    (
        {"prefill.waiting.share_positive": 0.7},
        Wall.PREFILL_SUPPLY,
        "requests wait for prefill in 70% of the samples, decode was not observed",
    ),
    (
        {"decode.running_share_of_cap": 0.97, "decode.prealloc.share_positive": 0.6},
        Wall.DECODE_BATCH,
        "decode runs 97% of the requests it may",
    ),
    ({"decode.token_usage_max": 0.96}, Wall.MEMORY, "KV space reaches 96%"),
    ({"decode.retractions": 3.0}, Wall.MEMORY, "3 retractions"),
    ({"decode.token_usage_max": 0.99, "decode.retractions": 2.0}, Wall.MEMORY, "KV space reaches 99%, 2 retractions"),
    (IDLE, Wall.CLIENT_SUPPLY, "nothing queues on either side: the load does not fill the service"),
    (
        {"prefill.waiting.share_positive": 0.0},
        Wall.CLIENT_SUPPLY,
        "nothing waits for prefill: the load does not fill the service",
    ),
    (
        HELD_BACK,
        Wall.CLIENT_SUPPLY,
        "the client has 22.5 of at most 24 requests in flight, and decode runs 68% of the requests it may",
    ),
    (
        {**HELD_BACK, **BURSTS},
        Wall.CLIENT_SUPPLY,
        "the client has 22.5 of at most 24 requests in flight, and decode runs 68% of the requests it may",
    ),
    (
        {**HELD_BACK, **BURSTS, "decode.running.mean": 1.9},
        Wall.PREFILL_SUPPLY,
        "requests wait for prefill in 59% of the samples, decode was not observed",
    ),
    (
        {"slo.tpot_mean.share_of_limit": 0.97, "slo.ttft_mean.share_of_limit": 0.3},
        Wall.SLO,
        "tpot_mean is at 97% of its limit",
    ),
    ({"decode.rank_imbalance": 0.4}, Wall.IMBALANCE, "the busiest decode rank has 40% more than the mean"),
    (
        {"prefill.cache_hit_share": 0.858, "scenario.cache_promised": 0.9},
        Wall.CACHE,
        "the prefix cache serves 85.80%, the scenario promises 90%",
    ),
]


@pytest.mark.parametrize(("figures", "wall", "sentence"), CASES, ids=[f"{n}: {c[2]}" for n, c in enumerate(CASES)])
def test_wall(figures: dict[str, float | None], wall: Wall, sentence: str) -> None:
    """Each wall with the least that shows it, and its sentence."""
    found = find_walls(figures)
    assert [w.wall for w in found] == [wall]
    assert found[0].sentence == sentence
    assert set(found[0].figures) <= set(figures)


NOT_CLAIMED = [
    {"prefill.waiting.share_positive": 0.98, "decode.prealloc.share_positive": 0.4},  # decode is the one that is full
    {"prefill.waiting.share_positive": 0.3, "decode.prealloc.share_positive": 0.0},  # neither standing nor empty
    {"decode.running_share_of_cap": 0.97, "decode.prealloc.share_positive": 0.0},  # full, and nothing waits for it
    {**HELD_BACK, "client.concurrency_mean": 15.0},  # the load has not enough requests to reach its cap
    {**HELD_BACK, "decode.running_share_of_cap": None},  # whether decode has room was not seen
    {**HELD_BACK, "decode.prealloc.share_positive": 0.6},  # a queue stands before decode
    {"decode.token_usage_max": 0.9, "decode.retractions": 0.0},
    {"slo.tpot_mean.share_of_limit": 0.94},
    {"prefill.rank_imbalance": 0.15},
    {"prefill.cache_hit_share": 0.91, "scenario.cache_promised": 0.9},
    {"prefill.cache_hit_share": 0.2},  # nothing was promised
    {},
    dict.fromkeys(FIELD),
]


@pytest.mark.parametrize("figures", NOT_CLAIMED)
def test_no_wall_is_claimed(figures: dict[str, float | None]) -> None:
    """Below a threshold, contradicted by another figure or not observed: unknown, and no figure is named."""
    [found] = find_walls(figures)
    assert (found.wall, found.figures) == (Wall.UNKNOWN, ())


def test_several_walls_are_ordered_by_strength() -> None:
    """The strongest comes first."""
    figures = {**FIELD, "decode.rank_imbalance": 0.2, "slo.tpot_mean.share_of_limit": 1.2}
    found = find_walls(figures)
    assert [w.wall for w in found] == [Wall.PREFILL_SUPPLY, Wall.SLO, Wall.IMBALANCE]
    assert [w.strength for w in found] == sorted((w.strength for w in found), reverse=True)


def test_slo_names_the_metric_that_is_nearest_its_limit() -> None:
    """Of two, the one that binds."""
    [found] = find_walls({"slo.tpot_mean.share_of_limit": 0.96, "slo.ttft_mean.share_of_limit": 0.99})
    assert found.figures == ("slo.ttft_mean.share_of_limit",)


def test_evidence_of_the_field_record_names_prefill() -> None:
    """The figures of a stored run, by their own names."""
    assert find_walls(an_evidence(queued=True).figures())[0].wall is Wall.PREFILL_SUPPLY
    assert Wall.PREFILL_SUPPLY not in [w.wall for w in find_walls(an_evidence(queued=False).figures())]


names = st.sampled_from([name for figures, _, _ in CASES for name in figures])
values = st.none() | st.floats(min_value=0, max_value=2)


@settings(deadline=None)
@given(figures=st.dictionaries(names, values))
def test_every_claim_rests_on_observed_figures(figures: dict[str, float | None]) -> None:
    """Whatever was observed: at least one wall, strengths within 0 to 1, no figure that is None."""
    found = find_walls(figures)
    assert found
    for wall in found:
        assert 0 <= wall.strength <= 1
        assert all(figures[name] is not None for name in wall.figures)
        assert bool(wall.figures) is (wall.wall is not Wall.UNKNOWN)
