from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.measurement import WindowKind
from experiments.requests import MISSING
from experiments.summary import native_inflation, summarise, summarise_run
from experiments.windows import NativeRule, Window, WindowFloor, whole_window
from tests.experiments.request_tables import table_of

FLOOR = WindowFloor(requests=2, seconds=1.0)


def test_output_per_card_divides_by_every_card_of_the_pool() -> None:
    """16 cards of a P8+D8 pool, not the eight that decode."""
    table = table_of([(0.0, 10.0), (0.0, 10.0)], output_tokens=1024)
    window = whole_window(table)
    assert isinstance(window, Window)
    metrics = summarise(table, window, 16, FLOOR)
    assert (metrics.output_tok_s, metrics.output_tok_s_per_card) == (204.8, 12.8)


def test_littles_law_of_the_field_record() -> None:
    """C24: 0.8404 req/s x 26.26541 s = 22.07 in flight (field record 000)."""
    n, duration, e2e = 96, 114.23, 26.26541
    table = table_of([(float("nan"), float("nan"))] * n, chunks=[[5.24, e2e]] * n, output_tokens=1024)
    table = type(table)(**{**vars(table), "e2e_s": np.full(n, e2e), "ttft_s": np.full(n, 5.24)})
    window = whole_window(table, duration_s=duration)
    assert isinstance(window, Window)
    metrics = summarise(table, window, 8, FLOOR)
    assert (
        round(metrics.request_per_s or 0, 4),
        round(metrics.concurrency_mean or 0, 2),
        round(metrics.output_tok_s or 0, 1),
    ) == (0.8404, 22.07, 860.6)
    assert round(metrics.tpot_mean_ms or 0, 2) == 20.55


def test_one_unobserved_length_leaves_throughput_unobserved() -> None:
    """A sum over those that were reported would be a lower throughput that nobody measured."""
    table = table_of([(0.0, 10.0), (0.0, 10.0)], output_tokens=[1024, MISSING])
    window = whole_window(table)
    assert isinstance(window, Window)
    metrics = summarise(table, window, 16, FLOOR)
    assert (metrics.output_tok_s, metrics.output_tok_s_per_card, metrics.tpot_mean_ms) == (None, None, None)
    assert metrics.e2e_mean_s == 10.0


def test_a_one_token_answer_has_no_share_in_time_per_output_token() -> None:
    """It is left out, not averaged in as zero as AISBench does."""
    table = table_of([(0.0, 1.0), (0.0, 1.1)], chunks=[[1.0], [1.0, 1.1]], output_tokens=[1, 11])
    window = whole_window(table)
    assert isinstance(window, Window)
    assert summarise(table, window, 1, FLOOR).tpot_mean_ms == pytest.approx(10.0)


def test_the_native_rule_inflates_a_fixed_length_load() -> None:
    """Eight waves of equal length: the 2026-08 rule prints tokens that arrived after its span."""
    spans = [(10.0 * wave + 0.005 * slot, 10.0 * (wave + 1) + 0.005 * slot) for wave in range(8) for slot in range(4)]
    chunks = [list(np.linspace(a + 1, b, 20)) for a, b in spans]
    windows = summarise_run(
        table_of(spans, chunks=chunks, output_tokens=20),
        concurrency=4,
        rule=NativeRule.AISBENCH_2026_08,
        cards=1,
        floor=FLOOR,
    )
    assert [w.kind for w in windows] == [WindowKind.WHOLE, WindowKind.NATIVE, WindowKind.IN_WINDOW]
    inflation = native_inflation(windows)
    assert inflation is not None
    assert 0.1 < inflation < 0.25
    whole, _, inside = windows
    assert inside.output_tok_s == pytest.approx(whole.output_tok_s, rel=0.03)


def test_concurrency_inside_a_span_is_its_time_average() -> None:
    """Half of one request, all of another and none of those before and after: 1.5 over a span of 2 s."""
    table = table_of([(0.0, 3.0), (2.0, 4.0), (0.0, 1.0), (5.0, 6.0)])
    span = Window(kind=WindowKind.IN_WINDOW, rule="in_window:x", start_s=2.0, duration_s=2.0, members=np.array([0, 1]))
    assert summarise(table, span, 1, FLOOR).concurrency_mean == pytest.approx(1.5)


def test_windows_that_a_run_lacks_are_absent() -> None:
    """Without send times there is the whole run only."""
    table = table_of([(float("nan"), float("nan"))] * 2, chunks=[[0.1, 0.4]] * 2)
    windows = summarise_run(
        table, concurrency=2, rule=NativeRule.AISBENCH_2025_12, cards=1, floor=FLOOR, duration_s=4.0
    )
    assert [w.kind for w in windows] == [WindowKind.WHOLE]
    assert native_inflation(windows) is None


_loads = st.lists(
    st.tuples(st.integers(0, 100), st.lists(st.integers(1, 30), min_size=2, max_size=5)), min_size=1, max_size=20
)


@settings(deadline=None)
@given(loads=_loads, cards=st.integers(1, 32))
def test_a_window_over_the_whole_run_counts_every_token_once(loads: list[tuple[int, list[int]]], cards: int) -> None:
    """Tokens by arrival over the whole span equal tokens by request: nothing is lost and nothing doubled."""
    chunks = [[float(start + sum(steps[: i + 1])) for i in range(len(steps))] for start, steps in loads]
    spans = [(float(start), times[-1]) for (start, _), times in zip(loads, chunks, strict=True)]
    table = table_of(spans, chunks=chunks, output_tokens=64)
    whole = whole_window(table)
    assert isinstance(whole, Window)
    assert whole.start_s is not None
    as_span = Window(
        kind=WindowKind.IN_WINDOW,
        rule="in_window:whole",
        start_s=whole.start_s,
        duration_s=whole.duration_s,
        members=whole.members,
    )
    by_request, by_arrival = summarise(table, whole, cards, FLOOR), summarise(table, as_span, cards, FLOOR)
    assert by_arrival.output_tok_s == pytest.approx(by_request.output_tok_s)
    assert by_arrival.concurrency_mean == pytest.approx(by_request.concurrency_mean)
