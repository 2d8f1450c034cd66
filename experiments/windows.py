"""Which part of a run is measured: the whole, or AISBench's steady window by a named version of its rule.

Three generations of that rule disagree on identical data by more than most tuning effects, so a window always
carries the name of the rule that cut it. Failed requests are removed first, as AISBench does, although they
held a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from experiments.measurement import WindowKind
from experiments.requests import Bools, Floats, Ints, RequestTable


class NativeRule(StrEnum):
    """AISBench's steady-stage rule, by the month its code changed."""

    AISBENCH_2025_11 = "aisbench-2025-11"  # up to tag v3.0-20251203
    AISBENCH_2025_12 = "aisbench-2025-12"  # v3.0-20251210 … v3.1-20260813, both PyPI releases
    AISBENCH_2026_08 = "aisbench-2026-08"  # from commit 13908d2 on


DIP_TOLERANCE = 0.02  # 2025 rules: the plateau may fall to int(0.98 x concurrency)
DIP_GRACE_S = 0.001  # 2025-12: and lower, if it is back within this time


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """A span of a run and the successful requests (rows of the whole table) that count in it.

    `start_s` is None where the client records no send times: such a window has a length but no place.
    """

    kind: WindowKind
    rule: str
    start_s: float | None
    duration_s: float
    members: Ints


@dataclass(frozen=True)
class NoWindow:
    """This run has no such window, and why. Shown as NOT_OBSERVED."""

    kind: WindowKind
    rule: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class WindowFloor:
    """The goal's smallest acceptable window."""

    requests: int = 128
    seconds: float = 60.0

    def is_met(self, n_requests: int, duration_s: float) -> bool:
        return n_requests >= self.requests and duration_s >= self.seconds


def whole_window(table: RequestTable, duration_s: float | None = None) -> Window | NoWindow:
    """From the first send to the last arrival of a success, or `duration_s` if the client tells only that."""
    rows = np.flatnonzero(table.success)
    if len(rows) == 0:
        return NoWindow(WindowKind.WHOLE, "whole", "no request succeeded")
    start = float(table.start_s[rows].min())
    if duration_s is None:
        duration_s = float(table.end_s[rows].max()) - start
    if not np.isfinite(duration_s) or duration_s <= 0:
        return NoWindow(WindowKind.WHOLE, "whole", "the length of the run was not observed")
    placed = start if np.isfinite(start) else None
    return Window(kind=WindowKind.WHOLE, rule="whole", start_s=placed, duration_s=duration_s, members=rows)


def native_window(table: RequestTable, concurrency: int, rule: NativeRule) -> Window | NoWindow:
    """AISBench's steady window at this configured concurrency, over the successful requests."""
    rows = np.flatnonzero(table.success)
    start, end = table.start_s[rows], table.end_s[rows]
    if len(rows) == 0 or not (np.isfinite(start).all() and np.isfinite(end).all()):
        why = "the client records no send times" if len(rows) else "no request succeeded"
        return NoWindow(WindowKind.NATIVE, rule, why)
    steady = _RULES[rule](_Timeline.of(start, end), concurrency)
    if steady is None:
        why = f"fewer than two sends reached the configured concurrency of {concurrency}"
        return NoWindow(WindowKind.NATIVE, rule, why)
    t0, t1, is_member = steady
    return Window(kind=WindowKind.NATIVE, rule=rule, start_s=t0, duration_s=t1 - t0, members=rows[is_member])


def in_window(table: RequestTable, native: Window | NoWindow) -> Window | NoWindow:
    """The native span, for tokens by their own arrival. Members are the successes that ended inside it."""
    rule = f"in_window:{native.rule}"
    if isinstance(native, NoWindow):
        return NoWindow(WindowKind.IN_WINDOW, rule, native.reason)
    if native.start_s is None or native.duration_s <= 0:
        return NoWindow(WindowKind.IN_WINDOW, rule, "the native span has no length")
    if not bool((table.chunk_counts[table.success] > 0).all()):
        return NoWindow(WindowKind.IN_WINDOW, rule, "the client records no arrival times of chunks")
    end = table.end_s
    inside = table.success & (end > native.start_s) & (end <= native.start_s + native.duration_s)
    return Window(
        kind=WindowKind.IN_WINDOW,
        rule=rule,
        start_s=native.start_s,
        duration_s=native.duration_s,
        members=np.flatnonzero(inside),
    )


@dataclass(frozen=True, eq=False)
class _Timeline:
    """All sends and ends in order of time, with the number of running requests after each.

    Equal times keep record order, and a request's own send precedes its end: the exact values depend on it.
    """

    time_s: Floats
    is_send: Bools
    row: Ints
    level: Ints
    start_s: Floats

    @classmethod
    def of(cls, start_s: Floats, end_s: Floats) -> _Timeline:
        times = np.column_stack((start_s, end_s)).ravel()
        order = np.argsort(times, kind="stable")
        is_send = order % 2 == 0
        level = np.cumsum(np.where(is_send, 1, -1), dtype=np.int64)
        return cls(times[order], is_send, order // 2, level, start_s)


_Steady = tuple[float, float, Bools]


def _steady_2026_08(line: _Timeline, concurrency: int) -> _Steady | None:
    """From the second send landing on the concurrency to the last event doing so; sends between are in."""
    landings = np.flatnonzero(line.level == concurrency)
    sends = landings[line.is_send[landings]]
    if len(sends) < 2:
        return None
    t0, t1 = float(line.time_s[sends[1]]), float(line.time_s[landings[-1]])
    return t0, t1, (line.start_s >= t0) & (line.start_s <= t1)


def _steady_2025(line: _Timeline, concurrency: int, grace_s: float | None) -> _Steady | None:
    """The first plateau: from the second full send to the first lasting dip or end after the last send."""
    floor = int(concurrency * (1 - DIP_TOLERANCE))
    full = np.flatnonzero(line.is_send & (line.level == concurrency))
    stop = _plateau_end(line, full, floor, grace_s)
    full = full[full < stop]
    if len(full) < 2:
        return None
    members = line.row[full[1:]]
    if len(full) > 2:  # once settled, sends near the concurrency count as well
        near = line.is_send & (line.level >= floor) & (line.level != concurrency)
        near[: full[2] + 1] = False
        near[stop:] = False
        members = np.concatenate((members, line.row[near]))
    is_member = np.zeros(len(line.start_s), dtype=np.bool_)
    is_member[members] = True
    return float(line.time_s[full[1]]), float(line.time_s[stop]), is_member


def _plateau_end(line: _Timeline, full: Ints, floor: int, grace_s: float | None) -> int:
    """Index of the event that ends the first plateau."""
    last_send = int(np.flatnonzero(line.is_send)[-1])
    stop = last_send + 1  # sends are over: the next event is an end
    if len(full) < 2:
        return stop
    low_ends = np.flatnonzero(~line.is_send & (line.level < floor))
    dips = low_ends[(low_ends > full[1]) & (low_ends < stop)]
    if grace_s is not None and len(dips):
        back = np.flatnonzero(line.is_send & (line.level >= floor))
        following = np.append(line.time_s[back], np.inf)[np.searchsorted(back, dips)]
        dips = dips[following - line.time_s[dips] > grace_s]
    return int(dips[0]) if len(dips) else stop


_RULES: dict[NativeRule, Callable[[_Timeline, int], _Steady | None]] = {
    NativeRule.AISBENCH_2025_11: lambda line, concurrency: _steady_2025(line, concurrency, None),
    NativeRule.AISBENCH_2025_12: lambda line, concurrency: _steady_2025(line, concurrency, DIP_GRACE_S),
    NativeRule.AISBENCH_2026_08: _steady_2026_08,
}
