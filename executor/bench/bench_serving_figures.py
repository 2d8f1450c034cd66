"""bench_serving's own summary figures, recomputed from its per-request records by its own definitions."""

from __future__ import annotations

import numpy as np

from executor.bench.bench_records import statistic_name
from experiments.requests import MISSING, Floats, RequestTable
from experiments.windows import Window


def recompute(table: RequestTable, window: Window, concurrency: int, stage: str) -> dict[str, float]:
    """Totals, throughputs and latency statistics over the successes of the whole run.

    Input totals are left out: the client counts its dataset's tokens there, the records hold the server's
    count.
    """
    rows, duration = window.members, window.duration_s
    figures = {"completed": float(len(rows)), "duration": duration, "request_throughput": len(rows) / duration}
    lengths = table.output_tokens[rows]
    if not bool((lengths == MISSING).any()):
        figures["total_output_tokens"] = float(lengths.sum())
        figures["output_throughput"] = float(lengths.sum()) / duration
    e2e = table.e2e_s[rows]
    if bool(np.isfinite(e2e).all()):
        figures["concurrency"] = float(e2e.sum()) / duration
    ttft = np.nan_to_num(table.ttft_s[rows], nan=0.0)  # the client averages its zeros as well
    return figures | _all_statistics(ttft, e2e, _tpot(table, window), table.gaps_s(table.success))


def _all_statistics(ttft: Floats, e2e: Floats, tpot: Floats, itl: Floats) -> dict[str, float]:
    named = {"ttft": ttft, "e2e_latency": e2e, "tpot": tpot, "itl": itl}
    return {
        statistic_name(statistic, metric): value
        for metric, seconds in named.items()
        for statistic, value in _statistics(seconds * 1000.0).items()
    }


def _tpot(table: RequestTable, window: Window) -> Floats:
    rows = window.members
    return table.tpot_s()[rows][table.output_tokens[rows] > 1]


def _statistics(values: Floats) -> dict[str, float]:
    if len(values) == 0 or not bool(np.isfinite(values).all()):
        return {}
    points = dict(zip(("median", "p90", "p95", "p99"), np.percentile(values, (50, 90, 95, 99)), strict=True))
    named = {name: float(point) for name, point in points.items()}
    return {"mean": float(values.mean()), "std": float(values.std()), **named}
