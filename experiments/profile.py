"""Conclusions of a short profile of one server. Taken after the formal load; no result, and never the trace itself."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from experiments.serving_config import Role


class KernelShare(BaseModel):
    """One class of kernels, by its own time. The name comes from a trace: it is shown and never interpreted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=60)
    family: str
    share: float
    calls: int


class ServerProfile(BaseModel):
    """Shares of the time in which operators ran; `idle` is the share of the span in which none did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    basis: str  # "device", or "processor" where the trace holds no device
    steps: int  # that were asked for
    traces: int  # that the server left, one per rank
    read: int
    events: int
    span_s: float
    idle: float
    families: Mapping[str, float]  # attention, moe, communication, sampling, matmul, other
    top: tuple[KernelShare, ...]

    def __str__(self) -> str:
        shares = sorted(self.families.items(), key=lambda item: -item[1])
        said = ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005)
        return f"{self.role} ({self.basis}): {said}; idle {self.idle:.0%} of {self.span_s:.3f} s"
