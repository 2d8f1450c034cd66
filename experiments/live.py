"""What servers answered about their queues while a load ran: evidence, sampled every few seconds, never a result.

A figure that no answer held is `None` (shown as `NOT_OBSERVED`), never zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from experiments.serving_config import Role


class Spread(BaseModel):
    """Of the samples that held the figure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    p50: float | None = None
    max: float | None = None
    n: int = 0


class RankLive(BaseModel):
    """One DP rank of one server. Queues are in requests, usage is a share of the KV pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    rank: int
    samples: int
    running: Spread = Spread()
    waiting: Spread = Spread()
    bootstrap: Spread = Spread()
    inflight: Spread = Spread()
    prealloc: Spread = Spread()
    transfer: Spread = Spread()
    retracted: Spread = Spread()
    token_usage: Spread = Spread()
    gen_tok_s: Spread = Spread()
    accept_length: Spread = Spread()


def spread_of(values: Sequence[float]) -> Spread:
    """The lower median, so that it is a value that was seen."""
    if not values:
        return Spread()
    ordered = sorted(values)
    return Spread(p50=ordered[(len(ordered) - 1) // 2], max=ordered[-1], n=len(ordered))
