"""How a service leaves: what it was about to do is not done, what runs on the hosts is left to them."""

from __future__ import annotations

import threading
from datetime import datetime

from executor.clock import SystemClock


class Leaving(BaseException):
    """Unwinds a running study like a signal would. Not an Exception: no fault may be recorded for it."""


class LeavingClock:
    """The system's clock, whose sleepers wake when the service leaves."""

    def __init__(self, leaving: threading.Event) -> None:
        self._clock, self._leaving = SystemClock(), leaving

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        if self._leaving.wait(max(0.0, seconds)):
            raise Leaving
