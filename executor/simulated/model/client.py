"""The load client: when each request may be sent. In-flight requests never exceed C; a send takes its start time after
its slot, so waiting in the client is in nobody's latency."""

from __future__ import annotations

import numpy as np

from executor.simulated.model.trace import Floats
from executor.simulated.model.workload import Load


def arrival_times(load: Load, count: int, rng: np.random.Generator) -> Floats:
    """Earliest send of each request: Poisson arrivals at `rate`, or one every `gap_s` when it does not pace."""
    if load.rate is None:
        return np.arange(count, dtype=np.float64) * load.gap_s
    gaps = rng.exponential(1.0 / load.rate, size=count)
    gaps[:1] = 0.0
    return np.cumsum(gaps).astype(np.float64)


class Client:
    """Sends in order: request k once its arrival time has come and a slot is free."""

    def __init__(self, load: Load, arrivals: Floats) -> None:
        self._arrivals, self._limit = arrivals, load.concurrency or len(arrivals)
        self._turnaround = load.turnaround_s
        self._next = 0
        self._freed: list[float] = []  # times at which slots became free, in order

    def due(self, now: float) -> list[tuple[int, float]]:
        """Requests to send until now, each with its own time."""
        sent: list[tuple[int, float]] = []
        at = self.next_send()
        while at is not None and at <= now:
            sent.append((self._next, at))
            self._next += 1
            at = self.next_send()
        return sent

    def next_send(self) -> float | None:
        """When the next request is sent; None while that waits for a completion, or nothing is left."""
        place = self._next - self._limit
        if self._next >= len(self._arrivals) or place >= len(self._freed):
            return None
        arrival = float(self._arrivals[self._next])
        return arrival if place < 0 else max(arrival, self._freed[place])

    def complete(self, now: float) -> None:
        """A request ended; its slot is free after the client's own turnaround."""
        self._freed.append(now + self._turnaround)
