"""One run of a prefill/decode pool in virtual time: client, prefill ranks, KV hand-over, decode ranks.

Event-driven: sends, ends of prefill forwards, KV arrivals and changes of the decode batch. The same inputs and the same
seed give the same trace.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import inf
from typing import Literal

import numpy as np

from executor.simulated.model.acceptance import draw_load
from executor.simulated.model.admission import Piece
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

Kind = Literal["send", "forward", "kv", "decode"]


@dataclass(order=True, slots=True)
class _Event:
    at: float
    number: int
    kind: Kind = field(compare=False)
    payload: object = field(compare=False)


class PoolRun:
    """The event loop of one run."""

    def __init__(
        self, pool: PoolSetup, requests: list[Request], load: Load, caches: list[PrefixCache], noise: RunNoise
    ) -> None:
        rng = noise.rng
        self._pool, self._requests, self._noise = pool, requests, noise
        self._client = Client(load, arrival_times(load, len(requests), rng))
        yields = draw_load(pool.calibration.acceptance, requests, pool.decode, rng)
        self._prefill = PrefillSide(pool.prefill, pool.calibration.prefill, requests, caches)
        self._decode = DecodeSide(pool.decode, pool.calibration.decode, requests, yields)
        self._router = RankChoice(rng)
        self._events: list[_Event] = []
        self._numbers = 0
        self._sent = np.zeros(len(requests))
        self._prefill_end = np.zeros(len(requests))
        self._forwarding = False
        self._busy_s = 0.0
        self._wake_at = inf

    def run(self) -> RunTrace:
        self._send(0.0)
        while self._events:
            event = heapq.heappop(self._events)
            self._handle(event)
        return collect(self._requests, self._prefill, self._decode, self._sent, self._prefill_end, self._busy_s)

    def _handle(self, event: _Event) -> None:
        match event.kind, event.payload:
            case "send", _:
                self._wake_at = inf
                self._send(event.at)
            case "forward", list() as batches:
                self._end_forward(event.at, batches)
            case "kv", int() as index:
                self._receive(event.at, index)
            case "decode", (int() as version, int() as step) if version == self._decode.version:
                self._change_batch(event.at, step)

    def _schedule(self, at: float, kind: Kind, payload: object) -> None:
        self._numbers += 1
        heapq.heappush(self._events, _Event(at, self._numbers, kind, payload))

    def _send(self, now: float) -> None:
        for index, at in self._client.due(now):
            self._sent[index] = at
            self._prefill.assign(index, self._router.choose_prefill(self._prefill, self._requests[index]))
            if self._decode.assign(index, self._router.choose_decode(self._decode)):
                self._prefill.release(index)
        self._plan_send()
        self._start_forward(now)

    def _plan_send(self) -> None:
        """Wake up for the next send, once."""
        upcoming = self._client.next_send()
        if upcoming is not None and upcoming < self._wake_at:
            self._wake_at = upcoming
            self._schedule(upcoming, "send", None)

    def _start_forward(self, now: float) -> None:
        if self._forwarding or not self._prefill.has_work():
            return
        seconds, batches = self._prefill.forward(now, self._may_enter)
        if not any(batches):
            return
        seconds *= self._noise.forward_factor(now)
        self._forwarding = True
        self._busy_s += seconds
        self._schedule(now + seconds, "forward", batches)

    def _may_enter(self, rank: int) -> bool:
        return self._prefill.ranks[rank].inflight < self._pool.prefill.max_running

    def _end_forward(self, now: float, batches: list[list[Piece]]) -> None:
        self._forwarding = False
        transfer = self._pool.calibration.transfer
        for index in self._prefill.finish(batches):
            self._prefill_end[index] = now
            seconds = transfer.base_s + transfer.s_per_token * self._requests[index].input_tokens
            self._schedule(now + seconds, "kv", index)
        self._start_forward(now)

    def _receive(self, now: float, index: int) -> None:
        self._prefill.handed_over(index)
        self._decode.deliver(index)
        at, step = self._decode.boundary(now)
        self._schedule(at, "decode", (self._decode.version, step))
        self._start_forward(now)

    def _change_batch(self, now: float, step: int) -> None:
        self._decode.speed = self._noise.step_factor(now)
        finished, reserved = self._decode.advance(now, step)
        for index in reserved:
            self._prefill.release(index)
        for _ in finished:
            self._client.complete(now)
        following = self._decode.next_end()
        if following is not None:
            self._schedule(following[0], "decode", (self._decode.version, following[1]))
        self._plan_send()
        if reserved:
            self._start_forward(now)
