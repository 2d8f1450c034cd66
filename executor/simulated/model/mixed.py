"""One run of an engine that prefills and decodes with the same devices (no PD separation), in virtual time.

As in SGLang's scheduler a prefill forward goes first whenever some rank may admit work, and decoding stands still
meanwhile; ranks go in step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from executor.simulated.model.acceptance import draw_load
from executor.simulated.model.admission import UNLIMITED, Piece
from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.client import Client, arrival_times
from executor.simulated.model.decode import DecodeSide
from executor.simulated.model.noise import RunNoise
from executor.simulated.model.pool_setup import PoolSetup
from executor.simulated.model.prefill import PrefillSide
from executor.simulated.model.results import collect
from executor.simulated.model.routing import RankChoice
from executor.simulated.model.trace import RunTrace
from executor.simulated.model.workload import Load, Request


class MixedRun:
    """The scheduler loop of one run."""

    def __init__(
        self, pool: PoolSetup, requests: list[Request], load: Load, caches: list[PrefixCache], noise: RunNoise
    ) -> None:
        self._pool, self._requests, self._noise = pool, requests, noise
        self._client = Client(load, arrival_times(load, len(requests), noise.rng))
        yields = draw_load(pool.calibration.acceptance, requests, pool.decode, noise.rng)
        self._prefill = PrefillSide(pool.prefill, pool.calibration.prefill, requests, caches)
        # A request holds its memory from its prefill on, so the prefill side alone decides what fits.
        unlimited = replace(pool.decode, slots=UNLIMITED, pool_tokens=UNLIMITED)
        self._decode = DecodeSide(unlimited, pool.calibration.decode, requests, yields)
        self._prefill.running_of = lambda rank: self._decode.ranks[rank].running
        self._sent = np.zeros(len(requests))
        self._prefill_end = np.zeros(len(requests))
        self._now = 0.0
        self._router = RankChoice(noise.rng)
        self._busy_s = 0.0
        self._delayed_since: int | None = None  # step at which some, but not all, ranks could have prefilled

    def run(self) -> RunTrace:
        self._send()
        while self._forward() or self._step() or self._wait():
            self._send()
        return collect(self._requests, self._prefill, self._decode, self._sent, self._prefill_end, self._busy_s)

    def _send(self) -> None:
        """Requests that became due until now take their own arrival time, not the scheduler's."""
        for index, at in self._client.due(self._now):
            self._sent[index] = at
            self._prefill.assign(index, self._router.choose_prefill(self._prefill, self._requests[index]))
            self._prefill.release(index)

    def _forward(self) -> bool:
        """One prefill forward, if any rank has work that may enter."""
        if not self._prefill.has_work() or self._is_delayed():
            return False
        self._decode.speed = self._noise.step_factor(self._now)
        seconds, batches = self._prefill.forward(self._now, self._may_enter)
        if not any(batches):
            return False
        seconds *= self._noise.forward_factor(self._now)
        self._busy_s += seconds
        self._now += seconds
        self._delayed_since = None
        self._finish_forward(batches)
        return True

    def _is_delayed(self) -> bool:
        """The prefill delayer: while only some ranks have work to admit, decoding goes on for some passes first."""
        if not self._pool.prefill.delay_passes or not self._decode.running:
            return False
        ready = [self._may_enter(rank) and state.has_work() for rank, state in enumerate(self._prefill.ranks)]
        if all(ready) or not any(ready):
            return False
        if any(state.chunked is not None for state in self._prefill.ranks):
            return False
        if self._delayed_since is None:
            self._delayed_since = self._decode.boundary(self._now)[1]
        return self._decode.boundary(self._now)[1] - self._delayed_since < self._pool.prefill.delay_passes

    def _finish_forward(self, batches: list[list[Piece]]) -> None:
        self._decode.resume(self._now)
        for index in self._prefill.finish(batches):
            self._prefill_end[index] = self._now
            self._decode.assign(index, self._prefill.rank_of[index])
            self._decode.deliver(index)
        self._change_batch(self._decode.boundary(self._now)[1])

    def _may_enter(self, rank: int) -> bool:
        return self._prefill.ranks[rank].inflight < self._pool.decode.max_running

    def _step(self) -> bool:
        """Decode until a request ends or one arrives that could be admitted."""
        following = self._decode.next_end()
        if following is None:
            return False
        at, step = following
        arrival = self._client.next_send()
        if arrival is not None and arrival < at:
            at, step = self._decode.boundary(max(arrival, self._now))
        if self._delayed_since is not None:
            expiry = self._decode.time_of(self._delayed_since + self._pool.prefill.delay_passes)
            if expiry[0] > self._now:
                at, step = min((at, step), expiry)
        self._now = at
        self._change_batch(step)
        return True

    def _change_batch(self, step: int) -> None:
        self._decode.speed = self._noise.step_factor(self._now)
        finished, _ = self._decode.advance(self._now, step)
        for index in finished:
            self._prefill.handed_over(index)
            self._client.complete(self._now)

    def _wait(self) -> bool:
        """Nothing runs: go to the next arrival."""
        arrival = self._client.next_send()
        if arrival is None:
            return False
        self._now = max(self._now, arrival)
        return True
