"""The decode ranks of one engine, stepping together.

A request's number of steps is drawn when the run begins, so time moves from one change of the batch to the next:
between two changes all steps last equally long. Invariant: reserved tokens of a rank never exceed its pool.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from executor.simulated.model.parameters import DecodeCost
from executor.simulated.model.setup import DecodeSetup
from executor.simulated.model.trace import Floats, Ints, Retraction
from executor.simulated.model.workload import Request


@dataclass(slots=True)
class _Rank:
    running: int = 0
    context_tokens: int = 0
    reserved_tokens: int = 0
    growth_tokens: int = 0  # what the running requests will hold at most beyond their reservation
    slots: int = 0
    waiting: deque[int] = field(default_factory=deque)  # no memory yet; retracted requests are first
    ready: deque[int] = field(default_factory=deque)  # KV is here, no running slot
    members: set[int] = field(default_factory=set)  # the running requests


@dataclass(frozen=True, slots=True)
class Span:
    """Steps `first` … `first + count − 1` of the engine, all `seconds` long, from `at` on."""

    at: float
    first: int
    count: int
    seconds: float


class Snapshot(NamedTuple):
    """One rank between two changes of the batch."""

    running: int
    context_tokens: int
    prealloc: int
    transfer: int
    queued: int
    reserved_tokens: int
    retracted: int


def step_seconds(cost: DecodeCost, setup: DecodeSetup, busiest: int, context_tokens: int) -> float:
    """The equation of DecodeCost."""
    bucket = next((size for size in setup.graph_sizes if size >= busiest), None)
    rows = (bucket if bucket is not None else busiest) * setup.width
    seconds = (
        cost.fixed_s + cost.draft_s * (setup.width - 1) + cost.row_s * rows + cost.context_s_per_token * context_tokens
    ) * (setup.imbalance * setup.slowdown)
    return seconds if bucket is not None else seconds * cost.eager_factor


class DecodeSide:
    """Running requests of all ranks. `yields[i]` are the tokens of request i per step. The caller owns the clock.

    Memory is reserved for the prompt and `reserved_tokens` of output. Where longer outputs outgrow the pool, the
    running request with the least output is retracted and comes back when there is room; this is looked at when the
    batch changes.
    """

    def __init__(self, setup: DecodeSetup, cost: DecodeCost, requests: list[Request], yields: list[Ints]) -> None:
        self.setup, self._cost, self._requests, self.yields = setup, cost, requests, yields
        self.ranks = [_Rank() for _ in range(setup.dp)]
        self.rank_of: dict[int, int] = {}
        self.pieces: dict[int, list[tuple[int, int]]] = {}  # (first step, yields done before) of each stay in the batch
        self.retractions: dict[int, int] = {}
        self.retracted: list[Retraction] = []
        self.admitted_at: dict[int, float] = {}
        self.spans: list[Span] = []
        self.history: list[tuple[float, int, tuple[Snapshot, ...]]] = []
        self.version = 0
        self._step = 0
        self._since = 0.0
        self._seconds = 0.0
        self._ends: list[tuple[int, int]] = []  # (last step, request); outdated where a request was retracted
        self._end_of: dict[int, int] = {}
        self._done: dict[int, int] = {}  # yields done, of retracted requests
        self._produced = [np.concatenate(([0], np.cumsum(item))) for item in yields]
        self.speed = 1.0

    def assign(self, index: int, rank: int) -> bool:
        """A request is meant for `rank`; whether memory for it could be reserved at once."""
        self.rank_of[index] = rank
        state = self.ranks[rank]
        if state.waiting or not self._fits(state, index):
            state.waiting.append(index)
            return False
        self._reserve(state, index)
        return True

    def deliver(self, index: int) -> None:
        """The KV of a request has arrived."""
        self.ranks[self.rank_of[index]].ready.append(index)

    def load_of(self, rank: int) -> int:
        state = self.ranks[rank]
        return state.slots + len(state.waiting)

    @property
    def running(self) -> int:
        return len(self._end_of)

    def boundary(self, now: float) -> tuple[float, int]:
        """The first step boundary at or after `now`: its time and the number of the step that begins there."""
        if not self._end_of or self._seconds <= 0:
            return now, self._step
        steps = max(0, int(np.ceil((now - self._since) / self._seconds - 1e-9)))
        return self._since + steps * self._seconds, self._step + steps

    def time_of(self, step: int) -> tuple[float, int]:
        """When a later step begins, if the batch stays as it is."""
        return self._since + max(0, step - self._step) * self._seconds, max(step, self._step)

    def next_end(self) -> tuple[float, int] | None:
        self._drop_outdated()
        if not self._ends:
            return None
        step = self._ends[0][0]
        return self._since + (step - self._step) * self._seconds, step

    def advance(self, now: float, step: int) -> tuple[list[int], list[int]]:
        """At a boundary: end what is finished, let in what is ready. Answers the finished and the newly reserved."""
        self._close(now, step)
        finished = self._finish(step)
        retracted = self._retract(now, step)
        reserved = self._promote() if finished or retracted else []
        self._admit(now, step)
        self._restart(now)
        return finished, reserved

    def pause(self, now: float, step: int) -> None:
        """Stop stepping at a boundary (a mixed engine runs a prefill forward)."""
        self._close(now, step)
        self._restart(now)

    def resume(self, now: float) -> None:
        self._since = now
        self.version += 1

    def _close(self, now: float, step: int) -> None:
        if step > self._step:
            self.spans.append(Span(self._since, self._step, step - self._step, self._seconds))
        self._step, self._since = step, now

    def _drop_outdated(self) -> None:
        while self._ends and self._end_of.get(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)

    def _finish(self, step: int) -> list[int]:
        finished: list[int] = []
        self._drop_outdated()
        while self._ends and self._ends[0][0] <= step:
            index = heapq.heappop(self._ends)[1]
            self._leave(index)
            finished.append(index)
            self._drop_outdated()
        return finished

    def _leave(self, index: int) -> None:
        """Out of the batch and out of memory."""
        state = self.ranks[self.rank_of[index]]
        state.running -= 1
        state.slots -= 1
        state.context_tokens -= self._context(index)
        state.reserved_tokens -= self._need(index)
        state.growth_tokens -= self._growth(index)
        state.members.discard(index)
        del self._end_of[index]

    def _retract(self, now: float, step: int) -> bool:
        """Take back requests of ranks whose real use has outgrown the pool; whether any was."""
        found = False
        for state in self.ranks:
            if state.reserved_tokens + state.growth_tokens <= self.setup.pool_tokens:
                continue
            while len(state.members) > 1 and self._used(state, step) > self.setup.pool_tokens:
                index = min(state.members, key=lambda item: (self._output(item, step), -item))
                self.retractions[index] = self.retractions.get(index, 0) + 1
                first, done = self.pieces[index][-1]
                self._done[index] = done + step - first
                self.retracted.append(Retraction(now, self.rank_of[index], self._output(index, step)))
                self._leave(index)
                state.waiting.appendleft(index)
                found = True
        return found

    def _used(self, state: _Rank, step: int) -> int:
        """Tokens in use: what runs has, and what is promised to the requests that do not run yet."""
        running = sum(self._requests[index].input_tokens + self._output(index, step) for index in state.members)
        return running + state.reserved_tokens - sum(self._need(index) for index in state.members)

    def _output(self, index: int, step: int) -> int:
        first, done = self.pieces[index][-1]
        return int(self._produced[index][done + step - first])

    def _promote(self) -> list[int]:
        """Give memory to those that wait for it; answers the ones whose prefill may now begin."""
        promoted: list[int] = []
        for state in self.ranks:
            while state.waiting and self._fits(state, state.waiting[0]):
                index = state.waiting.popleft()
                self._reserve(state, index)
                if index in self._done:
                    state.ready.append(index)
                else:
                    promoted.append(index)
        return promoted

    def _admit(self, now: float, step: int) -> None:
        for state in self.ranks:
            while state.ready and state.running < self.setup.max_running:
                self._enter(state, state.ready.popleft(), now, step)

    def _enter(self, state: _Rank, index: int, now: float, step: int) -> None:
        state.running += 1
        state.context_tokens += self._context(index)
        state.growth_tokens += self._growth(index)
        state.members.add(index)
        done = self._done.get(index, 0)
        self.pieces.setdefault(index, []).append((step, done))
        self.admitted_at.setdefault(index, now)
        self._end_of[index] = step + len(self.yields[index]) - done
        heapq.heappush(self._ends, (self._end_of[index], index))

    def _restart(self, now: float) -> None:
        self.version += 1
        busiest = max(state.running for state in self.ranks)
        context = max(state.context_tokens for state in self.ranks)
        self._seconds = step_seconds(self._cost, self.setup, busiest, context) * self.speed if busiest else 0.0
        self.history.append((now, self._step, tuple(self._snapshot(state) for state in self.ranks)))

    def _snapshot(self, state: _Rank) -> Snapshot:
        retracted = sum(index in self._done for index in state.waiting)
        return Snapshot(
            running=state.running,
            context_tokens=state.context_tokens,
            prealloc=len(state.waiting) - retracted,
            transfer=state.slots - state.running - len(state.ready),
            queued=len(state.ready),
            reserved_tokens=state.reserved_tokens,
            retracted=retracted,
        )

    def _fits(self, state: _Rank, index: int) -> bool:
        """Room for the reservation; for a request that was retracted, room for all of its output and everyone's."""
        room = self.setup.pool_tokens - state.reserved_tokens
        need = self._need(index)
        if index in self._done:
            need += self._growth(index) + state.growth_tokens
        return state.slots < self.setup.slots and (need <= room or state.slots == 0)

    def _reserve(self, state: _Rank, index: int) -> None:
        state.slots += 1
        state.reserved_tokens += self._need(index)

    def _need(self, index: int) -> int:
        return self._requests[index].input_tokens + self.setup.reserved_tokens

    def _growth(self, index: int) -> int:
        return max(0, self._requests[index].output_tokens - self.setup.reserved_tokens)

    def _context(self, index: int) -> int:
        """Context of a request half-way through its output: the growth is averaged over its life."""
        request = self._requests[index]
        return request.input_tokens + request.output_tokens // 2


def step_ends(spans: list[Span], steps: int) -> Floats:
    """End time of every step of the engine, from the spans."""
    ends = np.zeros(steps)
    for span in spans:
        ends[span.first : span.first + span.count] = span.at + span.seconds * np.arange(1, span.count + 1)
    return ends
