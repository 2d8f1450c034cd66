"""The metrics a goal may name: the spelling in the file, where the value is read, its unit, its better side.

The only place that joins a spelling to a field of `WindowMetrics`. A value that was not observed is `None`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.measurement import Measurement, WindowKind, WindowMetrics
from experiments.quantity import (
    COUNT,
    MILLISECONDS,
    REQUESTS_PER_SECOND,
    SECONDS,
    TOKENS_PER_SECOND,
    TOKENS_PER_SECOND_PER_CARD,
    Unit,
)
from experiments.schema import suggestion


class Direction(StrEnum):
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. `field` is its name in `WindowMetrics`; `None` means a count over the whole run."""

    id: str
    field: str | None
    unit: Unit
    better: Direction | None  # None: neither side is better by itself
    label: str

    @property
    def maximise(self) -> bool:
        return self.better is Direction.MAXIMIZE

    def read(self, window: WindowMetrics) -> float | None:
        """The value in one window; `None` where it was not observed or is not a matter of windows."""
        return None if self.field is None else getattr(window, self.field)

    def of(self, measurement: Measurement, kind: WindowKind) -> float | None:
        """The value that a goal judges: from the window it names, or from the run as a whole for counts."""
        if self.field is None:
            return float(measurement.n_failed)
        window = measurement.window(kind)
        return None if window is None else self.read(window)


def _latency(id: str, unit: Unit, label: str) -> Metric:
    return Metric(id=id, field=f"{id}_{unit.symbol}", unit=unit, better=Direction.MINIMIZE, label=label)


def _rate(id: str, unit: Unit, label: str, better: Direction | None = Direction.MAXIMIZE) -> Metric:
    return Metric(id=id, field=id, unit=unit, better=better, label=label)


FAILED_REQUESTS = Metric(
    id="failed_requests", field=None, unit=COUNT, better=Direction.MINIMIZE, label="failed requests"
)

METRICS: dict[str, Metric] = {
    metric.id: metric
    for metric in (
        _rate("output_tok_s_per_card", TOKENS_PER_SECOND_PER_CARD, "output throughput per card"),
        _rate("output_tok_s", TOKENS_PER_SECOND, "output throughput"),
        _rate("request_per_s", REQUESTS_PER_SECOND, "request throughput"),
        _rate("concurrency_mean", COUNT, "mean concurrency", better=None),
        _latency("ttft_mean", SECONDS, "mean TTFT"),
        _latency("ttft_p50", SECONDS, "median TTFT"),
        _latency("ttft_p90", SECONDS, "P90 TTFT"),
        _latency("ttft_p99", SECONDS, "P99 TTFT"),
        _latency("tpot_mean", MILLISECONDS, "mean TPOT"),
        _latency("tpot_p50", MILLISECONDS, "median TPOT"),
        _latency("tpot_p90", MILLISECONDS, "P90 TPOT"),
        _latency("tpot_p99", MILLISECONDS, "P99 TPOT"),
        _latency("e2e_mean", SECONDS, "mean E2E latency"),
        _latency("e2e_p90", SECONDS, "P90 E2E latency"),
        FAILED_REQUESTS,
    )
}


def metric(id: str) -> Metric:
    """The metric of this spelling. ValueError with the closest one, or all of them."""
    if id not in METRICS:
        raise ValueError(f"unknown metric {id[:60]!r}; {suggestion(id, METRICS)}")
    return METRICS[id]
