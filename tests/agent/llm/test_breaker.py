"""The breaker as arithmetic, over a clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.llm.breaker import CALLS, LONGEST_PAUSE_S, WINDOW_S, Breaker
from agent.llm.chat import ChatUnavailable
from executor.clock import ManualClock


def a_clock() -> ManualClock:
    return ManualClock(datetime(2026, 12, 1, tzinfo=UTC))


STEPS = st.lists(
    st.tuples(st.floats(min_value=0, max_value=30), st.sampled_from(["call", "call", "call", "failed", "succeeded"])),
    max_size=150,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_no_minute_has_more_than_six_unsuccessful_calls(steps: list[tuple[float, str]]) -> None:
    """Whatever the order of calls, failures and successes: after the last success, six a minute."""
    clock = a_clock()
    breaker = Breaker(clock)
    admitted: list[float] = []
    for pause, step in steps:
        clock.advance(pause)
        if step == "failed":
            breaker.failed()
        elif step == "succeeded":
            breaker.succeeded()
            admitted.clear()
        else:
            try:
                breaker.admit()
            except ChatUnavailable:
                continue
            admitted.append(clock.monotonic())
            assert sum(1 for at in admitted if at > clock.monotonic() - WINDOW_S) <= CALLS


def test_pauses_grow_to_a_limit_and_end() -> None:
    """Ten seconds, twenty, forty … ten minutes; never for ever."""
    clock = a_clock()
    breaker = Breaker(clock)
    pauses = []
    for _ in range(12):
        breaker.failed()
        began = clock.monotonic()
        while True:
            try:
                breaker.admit()
                break
            except ChatUnavailable:
                clock.advance(1)
        pauses.append(clock.monotonic() - began)
    assert pauses[:6] == [10, 20, 40, 80, 160, 320]
    assert {LONGEST_PAUSE_S} == set(pauses[6:])


def test_message_says_when_the_next_call_is_due() -> None:
    """An operator reads it in the ledger."""
    breaker = Breaker(a_clock())
    for _ in range(CALLS):
        breaker.admit()
    with pytest.raises(ChatUnavailable, match=r"6 calls .* within a minute; the next is due in 60 s"):
        breaker.admit()
