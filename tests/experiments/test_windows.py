from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.measurement import WindowKind
from experiments.windows import (
    NativeRule,
    NoWindow,
    Window,
    WindowFloor,
    in_window,
    native_window,
    whole_window,
)
from tests.experiments.request_tables import closed_loop, table_of

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracles" / "aisbench_native_window.py"


@pytest.fixture(scope="module")
def oracle() -> ModuleType:
    if not ORACLE.is_file():
        pytest.skip(f"the independent window oracle is not on this machine ({ORACLE})")
    spec = importlib.util.spec_from_file_location("aisbench_oracle", ORACLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["aisbench_oracle"] = module
    spec.loader.exec_module(module)
    return module


def _by_oracle(oracle: ModuleType, spans: list[tuple[float, float]], ok: list[int], slots: int, rule: str):
    requests = [oracle.Req(*spans[i]) for i in ok]
    try:
        window = oracle.native_window(requests, slots, rule)
    except (oracle.NoSteadyWindow, oracle.NoData):
        return None
    return window.t0, window.t1 - window.t0, sorted(ok[k] for k in window.members)


def _by_us(window: Window | NoWindow):
    if isinstance(window, NoWindow):
        return None
    return window.start_s, window.duration_s, window.members.tolist()


@pytest.mark.parametrize("rule", list(NativeRule))
def test_windows_equal_an_independent_reference_on_random_traces(oracle: ModuleType, rule: NativeRule) -> None:
    """Span, length and members are bit-equal to the reference on 2,000 traces of each rule (6,000 in all)."""
    rng = random.Random(rule.value)
    found = 0
    for _ in range(2_000):
        spans, failed, slots = closed_loop(rng)
        ok = [i for i in range(len(spans)) if i not in failed]
        expected = _by_oracle(oracle, spans, ok, slots, rule.value.removeprefix("aisbench-"))
        actual = _by_us(native_window(table_of(spans, failed=failed), slots, rule))
        assert expected == actual
        found += actual is not None
    assert found > 1_000  # the comparison is about windows, not about their absence


def test_the_three_rules_disagree_on_one_trace() -> None:
    """A dip of 0.4 ms ends the oldest rule's window, one of 3 ms the next rule's, and neither ends the newest's."""
    first = [(0.0, 10.0), (0.1, 11.0), (0.2, 11.0001), (0.3, 12.0), (10.0001, 12.0001)]
    after_dips = [(11.0004, 20.0), (11.0005, 20.1), (12.003, 20.2), (12.0035, 20.3)]
    windows = [native_window(table_of([*first, *after_dips]), 4, rule) for rule in NativeRule]
    ends = [round((w.start_s or 0) + w.duration_s, 4) for w in windows if isinstance(w, Window)]
    assert ends == [11.0001, 12.0001, 12.0035]


def test_the_whole_run_lasts_from_first_send_to_last_arrival_of_a_success() -> None:
    """A failed request at either edge does not stretch the run."""
    table = table_of([(0.0, 99.0), (1.0, 3.0), (2.0, 7.0)], failed=[0])
    window = whole_window(table)
    assert isinstance(window, Window)
    assert (window.start_s, window.duration_s, window.members.tolist()) == (1.0, 6.0, [1, 2])


def test_a_client_without_send_times_has_a_whole_window_and_no_other() -> None:
    """The length that the client tells is used; a place in time is never invented."""
    table = table_of([(float("nan"), float("nan")), (float("nan"), float("nan"))], chunks=[[0.1, 0.4], [0.1, 0.5]])
    whole = whole_window(table, duration_s=12.5)
    native = native_window(table, 2, NativeRule.AISBENCH_2026_08)
    assert isinstance(whole, Window)
    assert (whole.start_s, whole.duration_s) == (None, 12.5)
    assert native == NoWindow(WindowKind.NATIVE, "aisbench-2026-08", "the client records no send times")
    assert isinstance(in_window(table, native), NoWindow)


def test_a_run_without_success_has_no_window() -> None:
    """The answer is a reason, not a window of zeros."""
    table = table_of([(0.0, 1.0)], failed=[0])
    assert whole_window(table).reason == "no request succeeded"  # type: ignore[union-attr]
    assert isinstance(native_window(table, 1, NativeRule.AISBENCH_2025_12), NoWindow)


def test_a_load_below_the_configured_concurrency_has_no_native_window() -> None:
    """An open loop that never fills its slots is told apart from a window of length zero."""
    window = native_window(table_of([(float(i), i + 0.5) for i in range(20)]), 8, NativeRule.AISBENCH_2026_08)
    assert isinstance(window, NoWindow)
    assert "configured concurrency of 8" in window.reason


def test_in_window_members_are_the_successes_that_end_inside_the_native_span() -> None:
    """One that ends after the span is no member, though the native rule counts it."""
    spans = [(0.0, 2.0), (0.1, 2.1), (2.0, 4.0), (2.1, 4.2), (4.1, 6.0), (4.2, 6.5)]
    native = native_window(table_of(spans), 2, NativeRule.AISBENCH_2026_08)
    inside = in_window(table_of(spans), native)
    assert isinstance(native, Window)
    assert isinstance(inside, Window)
    assert native.start_s is not None
    ends = [i for i, (_, end) in enumerate(spans) if native.start_s < end <= native.start_s + native.duration_s]
    assert ends == inside.members.tolist()
    assert inside.rule == "in_window:aisbench-2026-08"
    assert set(native.members.tolist()) - set(ends)


def test_the_floor_needs_both_requests_and_seconds() -> None:
    """59.34 s are not enough although the requests are (field record 001, P layout)."""
    floor = WindowFloor(requests=128, seconds=60.0)
    assert [
        floor.is_met(128, 60.0),
        floor.is_met(300, 59.34),
        floor.is_met(127, 133.23),
    ] == [True, False, False]


_spans = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 200)).map(lambda p: (p[0] / 16, (p[0] + p[1]) / 16)),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(spans=_spans, slots=st.integers(1, 6), shift=st.integers(0, 1_000), rule=st.sampled_from(NativeRule))
def test_a_window_does_not_depend_on_when_the_clock_started(
    spans: list[tuple[float, float]], slots: int, shift: int, rule: NativeRule
) -> None:
    """Shifting all times moves the window and changes neither its length nor its members."""
    here = native_window(table_of(spans), slots, rule)
    there = native_window(table_of([(a + shift, b + shift) for a, b in spans]), slots, rule)
    assert isinstance(here, Window) == isinstance(there, Window)
    if isinstance(here, Window) and isinstance(there, Window):
        assert here.members.tolist() == there.members.tolist()
        assert here.duration_s == pytest.approx(there.duration_s, abs=1e-9)


@settings(deadline=None, max_examples=150)
@given(spans=_spans, slots=st.integers(1, 6), rule=st.sampled_from(NativeRule), data=st.data())
def test_failed_requests_never_change_a_window(
    spans: list[tuple[float, float]], slots: int, rule: NativeRule, data: st.DataObject
) -> None:
    """They are removed before the rule looks, so the run without their rows has the same window."""
    failed = data.draw(st.sets(st.integers(0, len(spans) - 1)))
    kept = [i for i in range(len(spans)) if i not in failed]
    with_failures = native_window(table_of(spans, failed=sorted(failed)), slots, rule)
    without = native_window(table_of([spans[i] for i in kept]), slots, rule) if kept else None
    if isinstance(with_failures, Window):
        assert isinstance(without, Window)
        assert with_failures.members.tolist() == np.array(kept)[without.members].tolist()
        assert with_failures.duration_s == without.duration_s
    else:
        assert not isinstance(without, Window)


@settings(deadline=None, max_examples=150)
@given(spans=_spans, slots=st.integers(1, 6), rule=st.sampled_from(NativeRule))
def test_a_native_window_lies_within_the_run(spans: list[tuple[float, float]], slots: int, rule: NativeRule) -> None:
    """It starts at a send, and never outlasts the whole run."""
    table = table_of(spans)
    native, whole = native_window(table, slots, rule), whole_window(table)
    assert isinstance(whole, Window)
    if isinstance(native, Window):
        assert native.start_s in table.start_s
        assert 0 <= native.duration_s <= whole.duration_s
        assert len(native.members) >= 1
