"""Live samples of a load: merged from two pages, written line by line, summarised per rank."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.live_series import busy_part, merge_answers, parse_series, render_sample, summarise_series
from executor.engines.loads import LoadSample, parse_loads
from executor.engines.prometheus import parse_metrics
from experiments.live import Spread, spread_of
from experiments.serving_config import Role

LAB = Path(__file__).parent / "lab_samples"
LOADS = {"loads": [{"dp_rank": 0, "num_running_reqs": 3, "queues": {"waiting": 1}, "token_usage": 0.5}]}
METRICS = """\
sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 9.0
sglang:num_running_reqs{dp_rank="1",tp_rank="1"} 4.0
sglang:token_usage{dp_rank="1",tp_rank="1"} 0.25
sglang:spec_accept_length{dp_rank="0",tp_rank="0"} 2.5
sglang:spec_accept_length{dp_rank="1",tp_rank="1"} 0.0
"""


def sample(at: float, loads: object = LOADS, metrics: str | None = None) -> LoadSample:
    merged = merge_answers(at, parse_loads(loads, at), None if metrics is None else parse_metrics(metrics))
    assert merged is not None
    return merged


def test_the_loads_page_speaks_first_and_the_gauges_fill_in() -> None:
    """A queue that both tell is that of the loads page; the accept length comes from the gauges."""
    (rank,) = sample(1.0, metrics=METRICS).ranks
    assert (rank.running, rank.waiting, rank.token_usage, rank.accept_length) == (3, 1, 0.5, 2.5)


def test_a_server_without_the_loads_page_is_read_by_its_gauges() -> None:
    """Each DP rank has its own; an accept length of zero was never observed."""
    first, second = sample(1.0, loads=None, metrics=METRICS).ranks
    assert (first.dp_rank, first.running, first.accept_length) == (0, 9, 2.5)
    assert (second.dp_rank, second.running, second.token_usage, second.accept_length) == (1, 4, 0.25, None)


def test_nothing_answered_is_no_sample() -> None:
    """Neither page, or pages without a rank."""
    assert merge_answers(1.0, None, None) is None
    assert merge_answers(1.0, None, parse_metrics("python_info 1.0\n")) is None


def test_a_series_is_summarised_per_server_and_rank() -> None:
    """Median and maximum over the samples; what no sample held stays unobserved."""
    lines = [
        render_sample(Role.PREFILL, sample(float(at), {"loads": [{"dp_rank": 2, "num_running_reqs": running}]}))
        for at, running in enumerate([1, 7, 2])
    ]
    (rank,) = summarise_series(parse_series("\n".join(lines)))
    assert (rank.role, rank.rank, rank.samples) == (Role.PREFILL, 2, 3)
    assert rank.running == Spread(p50=2.0, max=7.0, n=3)
    assert rank.accept_length == Spread()


def test_a_line_that_was_cut_off_is_left_out() -> None:
    """The service was killed while it wrote; every whole line counts."""
    line = render_sample(Role.DECODE, sample(1.0))
    (rank,) = summarise_series(parse_series(f"{line}\n{line}\n{line[: len(line) // 2]}"))
    assert rank.samples == 2


def queue(at: float, waiting: int) -> LoadSample:
    return sample(at, {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "queues": {"waiting": waiting}}]})


def test_the_start_and_the_end_of_a_client_are_no_part_of_the_load() -> None:
    """Samples before the first and after the last request of any server say nothing about queues; gaps between do."""
    prefill = [queue(at, waiting) for at, waiting in enumerate([0, 0, 4, 0, 2, 0, 0])]
    decode = [queue(at + 0.5, 0) for at in range(7)]
    found = busy_part({Role.PREFILL: prefill, Role.DECODE: decode})
    assert [s.at for s in found[Role.PREFILL]] == [2, 3, 4]
    assert [s.at for s in found[Role.DECODE]] == [2.5, 3.5]


def test_a_load_that_no_sample_saw_is_not_observed() -> None:
    """Zeros of an idle service are no queues of zero."""
    assert busy_part({Role.PREFILL: [queue(1.0, 0), queue(2.0, 0)]}) == {}


def test_answers_of_real_servers_become_samples() -> None:
    """The lab's own pages of a busy pair: one rank each, with its queues."""
    import json

    for role in ("prefill", "decode"):
        body = json.loads((LAB / f"loads_{role}_busy.json").read_text())
        (rank,) = sample(1.0, body).ranks
        assert rank.running is not None
        assert rank.token_usage is not None


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_the_median_is_a_value_that_was_seen(values: list[int]) -> None:
    """No queue is ever 2.5 requests long."""
    spread = spread_of(values)
    assert spread.p50 in values
    assert spread.max == max(values)
    assert sum(value <= (spread.p50 or 0) for value in values) * 2 >= len(values)
