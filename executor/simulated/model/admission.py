"""SGLang's prefill admission for one rank and one scheduler pass (PrefillAdder), as reference/sglang.md §6 states it.

Decides which requests, and how many of their tokens, enter the next batch. Invariant: tokens are conserved, and at most
one request is unfinished ("chunked") at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

UNLIMITED = 1 << 60


@dataclass(frozen=True, kw_only=True)
class AdmissionRule:
    """The effective limits of one rank. `chunk` and `cap` are None when chunking or the cap is off."""

    chunk: int | None
    page: int
    cap: int | None
    max_prefill_tokens: int
    gate: bool  # releases up to 0.5.12.post1 with the radix cache: a whole second request must fit max_prefill_tokens


@dataclass(slots=True)
class Pending:
    """A request on its way through prefill: `context` tokens are in the cache already, `remaining` are not."""

    index: int
    remaining: int
    context: int
    cached: int = 0
    matched: bool = False


class Piece(NamedTuple):
    """One request's share of a batch. `context` counts the tokens before this piece."""

    pending: Pending
    tokens: int
    context: int
    last: bool


Prepare = Callable[[Pending], bool]


def page_ceil(tokens: int, page: int) -> int:
    return -(-tokens // page) * page


def is_gated_release(version: str) -> bool:
    """Whether a release still applies the max-prefill-tokens gate to requests that it would chunk anyway."""
    numbers = version.split(".")
    try:
        major, minor, patch = (int(part) for part in numbers[:3])
    except ValueError:
        return False
    return (major, minor, patch) <= (0, 5, 12)


@dataclass(slots=True)
class _Budget:
    rule: AdmissionRule
    chunk: int
    tokens: int

    def charge(self, tokens: int) -> None:
        charged = page_ceil(tokens, self.rule.page)
        self.chunk -= charged
        self.tokens -= charged

    def is_closed(self, admitted: int) -> bool:
        capped = self.rule.cap is not None and admitted >= self.rule.cap
        return capped or self.chunk <= 0 or self.tokens <= 0

    def refuses(self, need: int, admitted: int) -> bool:
        gated = self.rule.gate or self.rule.chunk is None
        return gated and admitted > 0 and page_ceil(need, self.rule.page) >= self.tokens

    def share(self, need: int) -> int:
        """Tokens of `need` that fit: all of it, or the rest of the chunk rounded down to a page."""
        if page_ceil(need, self.rule.page) <= self.chunk:
            return need
        return self.chunk // self.rule.page * self.rule.page


def compose(
    rule: AdmissionRule, chunked: Pending | None, queue: deque[Pending], prepare: Prepare
) -> tuple[list[Piece], Pending | None]:
    """The next batch of a rank and the request left unfinished by it.

    `prepare` is called once a waiting request comes up: it matches the cached prefix and answers whether KV memory
    allows the request in; a False ends the pass.
    """
    budget = _Budget(rule, UNLIMITED if rule.chunk is None else rule.chunk, rule.max_prefill_tokens)
    pieces: list[Piece] = []
    if chunked is not None:
        pieces.append(_take(chunked, min(chunked.remaining, budget.chunk), budget))
        chunked = None if chunked.remaining == 0 else chunked
    while queue and not budget.is_closed(len(pieces)):
        head = queue[0]
        if not prepare(head) or budget.refuses(head.remaining, len(pieces)):
            break
        share = budget.share(head.remaining)
        if share <= 0:
            break
        queue.popleft()
        pieces.append(_take(head, share, budget))
        if head.remaining:
            return pieces, head
    return pieces, chunked


def _take(pending: Pending, tokens: int, budget: _Budget) -> Piece:
    piece = Piece(pending, tokens, pending.context, tokens == pending.remaining)
    pending.remaining -= tokens
    pending.context += tokens
    budget.charge(tokens)
    return piece
