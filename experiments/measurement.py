"""What one measured run says, per window. Every number is recomputed by us from per-request records.

`None` is the only spelling of a value that was not observed; it is shown as `NOT_OBSERVED` and never derived.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict


class WindowKind(StrEnum):
    WHOLE = "whole"  # everything, ramp and drain included
    NATIVE = "native"  # the steady window by AISBench's own rule, of a named version
    IN_WINDOW = "in_window"  # tokens that arrived inside the native span


class WindowMetrics(BaseModel):
    """One window of one run. Throughputs count successful requests only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: WindowKind
    rule: str  # "whole", "aisbench-2026-08", "aisbench-2025-12", "in_window:aisbench-2026-08"
    meets_floor: bool  # at least the goal's requests and seconds
    n_requests: int
    duration_s: float
    output_tok_s: float | None = None  # of the whole system
    output_tok_s_per_card: float | None = None  # divided by all cards, prefill and decode
    request_per_s: float | None = None
    concurrency_mean: float | None = None  # sum of E2E / duration
    ttft_mean_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p90_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_mean_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p90_ms: float | None = None
    tpot_p99_ms: float | None = None
    e2e_mean_s: float | None = None
    e2e_p90_s: float | None = None


class Check(BaseModel):
    """One validity gate and what it saw."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # "success", "exact_output_length", "zero_cache", …
    passed: bool | None  # None: could not be observed, with the reason in `detail`
    detail: str


class Measurement(BaseModel):
    """A run that was judged complete enough to hold numbers. Faults have no Measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: Literal["aisbench", "bench_serving"]
    client_version: str | None
    windows: tuple[WindowMetrics, ...]
    n_planned: int
    n_succeeded: int
    n_failed: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    accept_length: float | None  # output tokens / verify steps over the whole run
    retokenized_ratio: float | None = None  # answers encoded again / tokens generated; judged by history only
    checks: tuple[Check, ...]
    raw_sha256: str  # of the per-request file that the numbers were computed from
    simulated: bool

    def window(self, kind: WindowKind) -> WindowMetrics | None:
        return next((w for w in self.windows if w.kind is kind), None)
