"""The load client: when each request may be sent. In-flight requests never exceed C; a send takes its start time after
its slot, so waiting in the client is in nobody's latency."""

from __future__ import annotations

import numpy as np

from executor.simulated.model.trace import Floats
from executor.simulated.model.workload import Load


def arrival_times(load: Load, count: int, rng: np.random.Generator) -> Floats:
    """Earliest send of each request: Poisson arrivals at `rate`, or one every `gap_s` when it does not pace."""
    if load.rate is None:
        return np.arange(count) * load.gap_s
    gaps = rng.exponential(1.0 / load.rate, size=count)
    gaps[:1] = 0.0
    times: Floats = np.cumsum(gaps)
    return times


class Client:
    """Sends in order: request k once its arrival time has come and a slot is free."""

    def __init__(self, load: Load, arrivals: Floats) -> None:
        self._arrivals, self._limit = arrivals, load.concurrency or len(arrivals)
        self._next, self.in_flight = 0, 0

    def due(self, now: float) -> list[int]:
        """Requests to send now."""
        sent: list[int] = []
        while self._next < len(self._arrivals) and self.in_flight < self._limit:
            if self._arrivals[self._next] > now:
                break
            sent.append(self._next)
            self._next += 1
            self.in_flight += 1
        return sent

    def next_arrival(self) -> float | None:
        """When the next request arrives, or None while that waits for a slot or nothing is left."""
        if self._next >= len(self._arrivals) or self.in_flight >= self._limit:
            return None
        return float(self._arrivals[self._next])

    def complete(self) -> None:
        self.in_flight -= 1
