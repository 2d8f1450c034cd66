"""The two clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from executor.clock import ManualClock, SystemClock

START = datetime(2026, 12, 1, 22, 0, tzinfo=UTC)


def test_sleeping_on_a_manual_clock_takes_no_time_and_moves_both_faces() -> None:
    """Sleep advances the monotonic and the wall clock by the same amount, at once."""
    clock = ManualClock(START)
    clock.sleep(3600.0)
    assert (clock.monotonic(), clock.now()) == (3600.0, START + timedelta(hours=1))
    clock.sleep(-1.0)
    assert clock.monotonic() == 3600.0


def test_a_step_of_the_wall_clock_leaves_durations_alone() -> None:
    """An NTP step moves what people read and not what is measured."""
    clock = ManualClock(START)
    clock.step_wall(-7200.0)
    assert (clock.monotonic(), clock.now()) == (0.0, START - timedelta(hours=2))


def test_a_manual_clock_refuses_what_cannot_be() -> None:
    """Time without a zone, and time that goes back, are errors."""
    with pytest.raises(ValueError, match="aware"):
        ManualClock(datetime(2026, 12, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock(START).advance(-1.0)


def test_the_system_clock_is_aware_and_monotonic() -> None:
    """The wall clock carries its zone; the monotonic one does not go back over a sleep."""
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(-5.0)
    assert clock.monotonic() >= before
    assert clock.now().tzinfo is UTC
