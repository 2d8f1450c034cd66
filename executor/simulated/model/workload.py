"""The load of one run: requests as lists of prompt segments, and how the client sends them.

Two prompts share a prefix exactly as far as their leading segments have equal keys; a segment key stands for text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Segment(NamedTuple):
    """A stretch of prompt tokens named by its content."""

    key: str
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request of the load. `rank` pins the prefill rank, as the request field `data_parallel_rank` does."""

    index: int
    prompt: tuple[Segment, ...]
    output_tokens: int
    task: str = "ordinary"
    rank: int | None = None

    @property
    def input_tokens(self) -> int:
        return sum(segment.tokens for segment in self.prompt)


@dataclass(frozen=True, kw_only=True)
class Load:
    """How the client sends: at most `concurrency` in flight, arrivals at `rate` per second (None: at once)."""

    concurrency: int | None
    rate: float | None
    gap_s: float = 0.005  # AISBench sleeps 5 ms between sends when it does not pace
    turnaround_s: float = 0.002  # from a completion to the next send in its slot
