"""Virtual time for many threads: it moves on when all of them sleep, straight to the first that wakes."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

PATIENCE_S = 60.0  # of real time, for a thread that neither works nor sleeps


class Over(BaseException):
    """The night is over: every thread ends where it sleeps."""


@dataclass(order=True)
class _Sleeper:
    wake_at: float
    is_awake: bool = field(default=False, compare=False)


class VirtualClock:
    """Threads that take part count as awake until they sleep; time stands still while one of them is."""

    def __init__(self, start: datetime) -> None:
        self._start, self._elapsed = start.astimezone(UTC), 0.0
        self._sleepers: list[_Sleeper] = []
        self._awake = 0
        self._over = False
        self._turn = threading.Condition()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        with self._turn:
            sleeper = _Sleeper(self._elapsed + max(0.0, seconds))
            heapq.heappush(self._sleepers, sleeper)
            self._rest()
            while not sleeper.is_awake and not self._over:
                if not self._turn.wait(PATIENCE_S):
                    raise AssertionError(f"virtual time stands still at {self._elapsed} s")
            if self._over:
                raise Over

    def jump(self, seconds: float) -> None:
        """Time passes although somebody is awake: for a thread that hangs."""
        with self._turn:
            self._elapsed += seconds

    def park(self, is_parked: Callable[[], bool]) -> None:
        """Be as a process that is frozen or dead: no time passes here, and the others go on."""
        with self._turn:
            self._rest()
            while is_parked() and not self._over:
                self._turn.wait(PATIENCE_S)
            if self._over:
                raise Over
            self._awake += 1

    def enter(self) -> None:
        """Count a thread that is about to start."""
        with self._turn:
            self._awake += 1

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        """The body of a thread that was entered before."""
        try:
            yield
        except Over:
            pass
        finally:
            with self._turn:
                self._rest()

    def end(self) -> None:
        with self._turn:
            self._over = True
            self._turn.notify_all()

    def _rest(self) -> None:
        """One thread less is awake; the last one moves time on. Who is woken counts as awake from that moment."""
        self._awake -= 1
        if self._awake == 0 and self._sleepers and not self._over:
            self._elapsed = max(self._elapsed, self._sleepers[0].wake_at)
            while self._sleepers and self._sleepers[0].wake_at <= self._elapsed:
                heapq.heappop(self._sleepers).is_awake = True
                self._awake += 1
        self._turn.notify_all()


class MachineClock:
    """The clock as one service sees it. A service that is frozen stands where it sleeps next."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.is_frozen = False

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        if self.is_frozen:
            self._clock.park(lambda: self.is_frozen)
