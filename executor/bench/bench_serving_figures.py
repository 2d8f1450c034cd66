"""bench_serving's own summary, and the same figures recomputed from its records by its own definitions."""

from __future__ import annotations

from experiments.requests import RequestTable
from experiments.windows import Window


def recompute(table: RequestTable, window: Window, concurrency: int, stage: str) -> dict[str, float]:
    return {}
