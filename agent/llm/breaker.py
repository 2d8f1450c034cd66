"""Limits what an endpoint in an outage costs: at most six unsuccessful calls in any minute, and pauses that grow.

Asked before every single HTTP call. It never waits: a refused caller goes on without the model.
"""

from __future__ import annotations

import threading
from collections import deque

from agent.llm.chat import ChatUnavailable
from executor.clock import Clock

CALLS = 6
WINDOW_S = 60.0
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 600.0


class Breaker:
    """A call counts as unsuccessful from its start, so that parallel callers cannot exceed the limit either."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._unsuccessful: deque[float] = deque()
        self._failures = 0
        self._closed_until = float("-inf")

    def admit(self) -> None:
        """Takes one call out of the allowance. Raises ChatUnavailable when there is none."""
        with self._lock:
            now = self._clock.monotonic()
            if now < self._closed_until:
                raise ChatUnavailable(
                    f"the LLM endpoint failed lately; the next call is due in {self._closed_until - now:.0f} s"
                )
            while self._unsuccessful and self._unsuccessful[0] <= now - WINDOW_S:
                self._unsuccessful.popleft()
            if len(self._unsuccessful) >= CALLS:
                due = self._unsuccessful[0] + WINDOW_S - now
                raise ChatUnavailable(
                    f"{CALLS} calls to the LLM endpoint failed within a minute; the next is due in {due:.0f} s"
                )
            self._unsuccessful.append(now)

    def succeeded(self) -> None:
        with self._lock:
            self._unsuccessful.clear()
            self._failures = 0
            self._closed_until = float("-inf")

    def failed(self, at_least_s: float = 0.0) -> None:
        """A whole completion failed: no call for a while, twice as long each time."""
        with self._lock:
            pause = min(FIRST_PAUSE_S * 2**self._failures, LONGEST_PAUSE_S)
            self._failures = min(self._failures + 1, 16)
            self._closed_until = self._clock.monotonic() + max(pause, min(at_least_s, LONGEST_PAUSE_S))
