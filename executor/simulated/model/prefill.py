"""The prefill ranks of one engine. They run their forwards in step: an MoE forward is collective, so the busiest rank
sets the pace and a rank without work takes part empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from executor.simulated.model.admission import Pending, Piece, compose
from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.parameters import PrefillCost
from executor.simulated.model.setup import PrefillSetup
from executor.simulated.model.trace import PrefillBatch
from executor.simulated.model.workload import Request


@dataclass(slots=True)
class _Rank:
    cache: PrefixCache
    queue: deque[Pending] = field(default_factory=deque)
    chunked: Pending | None = None
    held_tokens: int = 0  # KV of admitted requests that were not handed over yet
    inflight: int = 0
    bootstrap: int = 0

    def has_work(self) -> bool:
        return self.chunked is not None or bool(self.queue)

    def pending_tokens(self) -> int:
        rest = self.chunked.remaining if self.chunked is not None else 0
        return rest + sum(item.remaining for item in self.queue)


def forward_seconds(cost: PrefillCost, setup: PrefillSetup, batches: list[list[Piece]]) -> float:
    """The equation of PrefillCost."""
    tokens = [sum(piece.tokens for piece in pieces) for pieces in batches]
    work = [sum(piece.tokens * (piece.context + piece.tokens / 2) for piece in pieces) for pieces in batches]
    share = setup.dp / setup.dies
    seconds = (
        cost.fixed_s
        + cost.local_s_per_token * max(tokens) * share
        + cost.expert_s_per_token * setup.imbalance * sum(tokens) / setup.dies
        + cost.context_s_per_token2 * max(work) * share
    )
    return seconds * setup.slowdown


class PrefillSide:
    """Queues, caches and forwards of all ranks. The caller owns the clock."""

    def __init__(
        self, setup: PrefillSetup, cost: PrefillCost, requests: list[Request], caches: list[PrefixCache]
    ) -> None:
        self.setup, self._cost, self._requests = setup, cost, requests
        self.ranks = [_Rank(cache) for cache in caches]
        self.batches: list[PrefillBatch] = []
        self.cached: dict[int, int] = {}
        self.rank_of: dict[int, int] = {}
        self._forwards = 0
        self.running_of: Callable[[int], int] = lambda _: 0  # decoding requests of a rank, in a mixed engine

    def assign(self, index: int, rank: int) -> None:
        """A request is known on its rank, but may not be computed before `release`."""
        self.rank_of[index] = rank
        self.ranks[rank].bootstrap += 1

    def release(self, index: int) -> None:
        rank = self.ranks[self.rank_of[index]]
        rank.bootstrap -= 1
        rank.queue.append(Pending(index, self._requests[index].input_tokens, 0))

    def load_of(self, rank: int) -> int:
        state = self.ranks[rank]
        return len(state.queue) + state.inflight + state.bootstrap + (state.chunked is not None)

    def has_work(self) -> bool:
        return any(rank.has_work() for rank in self.ranks)

    def forward(self, now: float, may_enter: Callable[[int], bool]) -> tuple[float, list[list[Piece]]]:
        """Compose one batch per rank; answers its seconds and the batches. `may_enter` limits new requests by rank."""
        batches: list[list[Piece]] = []
        for number, rank in enumerate(self.ranks):
            pieces, rank.chunked = compose(
                self.setup.rule, rank.chunked, rank.queue, self._preparer(number, rank, may_enter)
            )
            batches.append(pieces)
        if not any(batches):
            return 0.0, batches
        self._forwards += 1
        for number, pieces in enumerate(batches):
            if pieces:
                self.batches.append(self._describe(now, number, pieces))
        return forward_seconds(self._cost, self.setup, batches), batches

    def finish(self, batches: list[list[Piece]]) -> list[int]:
        """The forward is over: store what it computed, answer the requests whose prompt is complete."""
        done: list[int] = []
        for rank, pieces in zip(self.ranks, batches, strict=True):
            for piece in pieces:
                if self.setup.radix:
                    rank.cache.insert(self._requests[piece.pending.index].prompt, piece.context + piece.tokens)
                if piece.last:
                    done.append(piece.pending.index)
        return done

    def handed_over(self, index: int) -> None:
        """The KV of a request left this side."""
        rank = self.ranks[self.rank_of[index]]
        rank.inflight -= 1
        rank.held_tokens -= self._requests[index].input_tokens

    def _preparer(self, number: int, rank: _Rank, may_enter: Callable[[int], bool]) -> Callable[[Pending], bool]:
        def prepare(pending: Pending) -> bool:
            if not pending.matched:
                self._match(rank, pending)
            tokens = self._requests[pending.index].input_tokens
            is_full = rank.held_tokens > 0 and rank.held_tokens + tokens > self.setup.pool_tokens
            if is_full or not may_enter(number):
                return False
            rank.held_tokens += tokens
            rank.inflight += 1
            return True

        return prepare

    def _match(self, rank: _Rank, pending: Pending) -> None:
        hit = rank.cache.match(self._requests[pending.index].prompt) if self.setup.radix else 0
        pending.remaining -= hit
        pending.context = pending.cached = hit
        pending.matched = True
        self.cached[pending.index] = hit

    def _describe(self, now: float, number: int, pieces: list[Piece]) -> PrefillBatch:
        rank = self.ranks[number]
        first = [piece for piece in pieces if piece.context == piece.pending.cached]
        return PrefillBatch(
            at=now,
            rank=number,
            sequences=len(pieces),
            new_tokens=sum(piece.tokens for piece in pieces),
            cached_tokens=sum(piece.pending.cached for piece in first),
            running=self.running_of(number),
            queued=len(rank.queue),
            pending_tokens=rank.pending_tokens(),
            bootstrap=rank.bootstrap,
            inflight=rank.inflight - (rank.chunked is not None),
            used_tokens=rank.held_tokens,
            forward=self._forwards,
            shape=tuple(piece.tokens for piece in pieces),
        )
