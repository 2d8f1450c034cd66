"""What a client's raw files say, in one shape for every client: the records, and the figures it printed
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from experiments.requests import RequestTable

ClientName = Literal["aisbench", "bench_serving"]


@dataclass(frozen=True)
class Figure:
    """One printed figure and the largest difference that its printing and rounding can cause."""

    value: float
    tolerance: float

    def agrees(self, recomputed: float) -> bool:
        return abs(self.value - recomputed) <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class Printed:
    """The client's own summary of one stage. A figure that it printed as "not measured" is absent."""

    stage: str  # "total" or "stable" for AISBench, "whole" for bench_serving
    figures: Mapping[str, Figure]
    required: tuple[str, ...] = ()  # figures without which the summary is no cross-check
    inconsistent: tuple[str, ...] = ()  # figures that contradict one another, such as a mean below the minimum

    @property
    def missing(self) -> str | None:
        """The first required figure that is absent."""
        return next((name for name in self.required if name not in self.figures), None)


@dataclass(frozen=True, kw_only=True)
class ClientReading:
    client: ClientName
    version: str | None
    table: RequestTable
    printed: Sequence[Printed]
    duration_s: float | None  # where the client measures it instead of giving send times
    raw_sha256: str
    accept_length: float | None = None
    retokenized_tokens: int | None = None
    notes: tuple[str, ...] = field(default=())
