"""What a run leaves behind: per request times, per batch figures. Times in seconds since the run began."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PrefillBatch(NamedTuple):
    """One rank's batch in one forward, as SGLang's `Prefill batch` line counts it."""

    at: float
    rank: int
    sequences: int
    new_tokens: int
    cached_tokens: int
    running: int
    queued: int
    pending_tokens: int
    bootstrap: int
    inflight: int
    used_tokens: int
    forward: int  # number of the forward; ranks of one forward share it
    shape: tuple[int, ...]  # new tokens of each request


class DecodeSample(NamedTuple):
    """One rank's state at a decode log interval, as SGLang's `Decode batch` line counts it."""

    at: float
    rank: int
    running: int
    tokens: int
    accept_length: float
    prealloc: int
    transfer: int
    queued: int
    retracted: int
    gen_throughput: float
    graph: bool
    reserved_tokens: int = 0


class Retraction(NamedTuple):
    """A running request that was taken back, with the output tokens it had."""

    at: float
    rank: int
    output_tokens: int


@dataclass(slots=True, kw_only=True)
class RequestTrace:
    """One request as its client saw it. `tokens[k]` tokens arrived at `times[k]`; the first is the prefill's token."""

    index: int
    sent: float
    times: Floats
    tokens: Ints
    input_tokens: int
    cached_tokens: int
    prefill_rank: int
    decode_rank: int
    prefill_end: float = 0.0
    retractions: int = 0

    @property
    def first(self) -> float:
        return float(self.times[0])

    @property
    def end(self) -> float:
        return float(self.times[-1])

    @property
    def output_tokens(self) -> int:
        return int(self.tokens.sum())


@dataclass(slots=True, kw_only=True)
class RunTrace:
    """One whole run."""

    requests: list[RequestTrace]
    prefill_batches: list[PrefillBatch] = field(default_factory=list)
    decode_samples: list[DecodeSample] = field(default_factory=list)
    retractions: list[Retraction] = field(default_factory=list)
    verify_steps: int = 0  # sum over requests
    prefill_busy_s: float = 0.0
    decode_busy_s: float = 0.0

    @property
    def duration(self) -> float:
        return max((request.end for request in self.requests), default=0.0)
