"""How long a shared prefix must be for a cache state, and what to change when a measured run missed it.

A prefix cache holds whole pages only, so a design of exactly 90 % may come out at 89.9387 %: that is seen here, before
any run. A proposal from a measured hit rate is an estimate; the per-request proof of the next run decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.measurement import Check


@dataclass(frozen=True, kw_only=True)
class CacheSplit:
    """How the encoded input of one request divides into the part shared with its group and its own question."""

    prefix_tokens: int
    question_tokens: int
    page_size: int

    def __post_init__(self) -> None:
        if self.page_size < 1 or self.prefix_tokens < 0 or self.question_tokens < 1:
            raise ValueError("a split needs a page of at least 1 token and a question of at least 1 token")

    @property
    def input_tokens(self) -> int:
        return self.prefix_tokens + self.question_tokens

    @property
    def cacheable_tokens(self) -> int:
        """Whole pages of the prefix: the most that any server with this page size can reuse."""
        return self.prefix_tokens // self.page_size * self.page_size

    @property
    def cached_share(self) -> float:
        return self.cacheable_tokens / self.input_tokens


@dataclass(frozen=True, kw_only=True)
class CacheProposal:
    """The next split to try and the share that it should reach. `reachable` is False if no split can."""

    split: CacheSplit
    estimated_share: float
    reachable: bool
    because: str


def check_cache_design(split: CacheSplit, min_share: float) -> Check:
    """Whether the split can reach the share at all, after rounding down to whole pages."""
    detail = (
        f"{split.cacheable_tokens} of {split.input_tokens} tokens are whole pages of {split.page_size}: "
        f"{split.cached_share:.4%}, {min_share:.4%} needed"
    )
    return Check(name="cache_design", passed=split.cached_share >= min_share, detail=detail)


def design_split(input_tokens: int, min_share: float, page_size: int, spare_pages: int = 0) -> CacheSplit | None:
    """The shortest whole-page prefix that reaches the share, with pages to spare; None if none leaves a question.

    Pages to spare absorb what the design cannot know: a template or a re-encoding that shifts the prefix.
    """
    pages = math.ceil(min_share * input_tokens / page_size)
    while pages * page_size < min_share * input_tokens:  # ceil of a float product may fall one short
        pages += 1
    prefix = (pages + spare_pages) * page_size
    if prefix >= input_tokens:
        return None
    return CacheSplit(prefix_tokens=prefix, question_tokens=input_tokens - prefix, page_size=page_size)


def estimate_share(measured_share: float, from_prefix: int, to_prefix: int) -> float:
    """The hit rate grows with the prefix: 85.8 % x 31900 / 30000 is about 91.2 %. Capped at all of it."""
    return min(1.0, measured_share * to_prefix / from_prefix)


def propose_split(
    current: CacheSplit, cached_tokens: int, input_tokens: int, min_share: float, spare_pages: int = 1
) -> CacheProposal:
    """The next split from what the servers counted for the current one (sums over all requests).

    The total length stays as designed. A run may measure more input than designed (text re-encodes longer) and fewer
    cached tokens than whole pages allow (eviction, other ranks); both are in the measured ratio.
    """
    if not 0 < cached_tokens <= input_tokens:
        raise ValueError("a measured hit rate needs cached tokens between 1 and the input tokens")
    measured = cached_tokens / input_tokens
    page, total = current.page_size, current.input_tokens
    pages = math.ceil(current.prefix_tokens * min_share / measured / page) + spare_pages
    longest = (total - 1) // page * page
    prefix = min(pages * page, longest)
    estimate = estimate_share(measured, current.prefix_tokens, prefix)
    split = CacheSplit(prefix_tokens=prefix, question_tokens=total - prefix, page_size=page)
    because = (
        f"measured {measured:.4%} with a prefix of {current.prefix_tokens}; {prefix} should give {estimate:.2%}, "
        f"at most {split.cached_share:.4%} in whole pages"
    )
    reachable = min(estimate, split.cached_share) >= min_share
    return CacheProposal(split=split, estimated_share=estimate, reachable=reachable, because=because)
