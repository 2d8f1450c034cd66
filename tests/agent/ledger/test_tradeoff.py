"""The trade-off set: nothing in it is beaten, nothing outside it deserves to be in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.ledger.history import gather
from agent.ledger.tradeoff import Choice, choice_metrics, choice_set, mark_dominated
from experiments.measurement import WindowKind
from tests.factories import a_night

FIGURES = ("output_tok_s_per_card", "ttft_mean", "tpot_mean")


def a_choice(values: tuple[float, ...], violated: tuple[str, ...] = ()) -> Choice:
    return Choice(
        name="c01-x", runs=[], values=dict(zip(FIGURES, values, strict=True)), violated=violated, is_kept=False
    )


def beats(a: Choice, b: Choice, tolerance: float) -> bool:
    """Written out: more throughput is better, less waiting is."""
    better = [
        (a.values["output_tok_s_per_card"] or 0) - (b.values["output_tok_s_per_card"] or 0),
        (b.values["ttft_mean"] or 0) - (a.values["ttft_mean"] or 0),
        (b.values["tpot_mean"] or 0) - (a.values["tpot_mean"] or 0),
    ]
    sizes = [abs(v or 0) for v in b.values.values()]
    return all(x >= 0 for x in better) and any(x > tolerance * s for x, s in zip(better, sizes, strict=True))


@given(st.lists(st.tuples(*[st.integers(1, 9).map(float)] * 3), max_size=25), st.sampled_from([0.0, 0.02, 0.3]))
@settings(deadline=None, max_examples=400)
def test_the_set_is_what_pairwise_comparison_says(points: list[tuple[float, ...]], tolerance: float) -> None:
    """A choice is dominated exactly if some other is as good in all figures and better beyond noise in one."""
    choices = [a_choice(point) for point in points]
    mark_dominated(choices, tolerance)
    expected = [any(beats(other, choice, tolerance) for other in choices) for choice in choices]
    assert [choice.is_dominated for choice in choices] == expected


def test_c128_and_c90_both_stay() -> None:
    """More throughput against less waiting is a choice of the user, not of the service (field record 001)."""
    c128, c90 = a_choice((240.3715, 18.14, 11.5)), a_choice((228.0921, 12.68, 10.3))
    mark_dominated([c128, c90], 0.01)
    assert [c128.is_dominated, c90.is_dominated] == [False, False]


def test_what_differs_by_less_than_the_noise_is_not_beaten() -> None:
    """A tenth of a percent ahead in everything is no reason to drop a configuration."""
    ahead, behind = a_choice((240.24, 18.0, 10.0)), a_choice((240.0, 18.0, 10.0))
    mark_dominated([ahead, behind], 0.01)
    assert behind.is_dominated is False


def test_a_broken_constraint_keeps_a_choice_out_of_the_set() -> None:
    """The fastest card of the night breaks the TPOT limit: it is shown and is not in the set."""
    choices = choice_set(gather(a_night()), 320, WindowKind.WHOLE, selected=True)
    (broken,) = [c for c in choices.choices if c.violated]
    assert broken.name == "c03-max-running-requests-160"
    assert broken not in choices.front


@pytest.mark.parametrize("requests", [320, 640])
def test_a_set_holds_runs_of_one_n_only(requests: int) -> None:
    """No mean is taken over runs of different N."""
    choices = choice_set(gather(a_night()), requests, WindowKind.WHOLE, selected=True)
    assert {run.started.load.requests for c in choices.choices for run in c.runs} == {requests}


def test_the_columns_are_those_of_the_goal() -> None:
    """Objective, constrained and reported figures, each once; counts are no column."""
    assert choice_metrics(gather(a_night())) == (
        "output_tok_s_per_card",
        "tpot_mean",
        "ttft_mean",
        "ttft_p90",
        "e2e_mean",
    )
