"""From the records of one run and a window to its metrics. The one place where a figure of a run is computed.

Throughput counts successful requests only and "per card" divides by every card of the pool. A metric that
needs an unobserved value is None; a metric is never the mean of what happened to be there.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from experiments.measurement import WindowKind, WindowMetrics
from experiments.requests import MISSING, Floats, RequestTable, total
from experiments.windows import (
    NativeRule,
    NoWindow,
    Window,
    WindowFloor,
    in_window,
    native_window,
    whole_window,
)

_Unit = Literal["s", "ms"]


def summarise(table: RequestTable, window: Window, cards: int, floor: WindowFloor) -> WindowMetrics:
    """The metrics of one window.

    whole, native: a member counts with all of its tokens, wherever they arrived (AISBench's definition).
    in_window: tokens by chunk arrival within the span, concurrency as its time average over the span;
    latencies are those of the requests that ended inside it.
    """
    rows, duration = window.members, window.duration_s
    output: float | None = total(table.output_tokens[rows])
    busy = _sum(table.e2e_s[rows])
    if window.kind is WindowKind.IN_WINDOW:
        output, busy = _tokens_in_span(table, window), _busy_in_span(table, window)
    rate = _per_second(output, duration)
    tpot = table.tpot_s()[rows]
    tpot = tpot[table.output_tokens[rows] != 1]  # one token has no time per further token
    return WindowMetrics(
        kind=window.kind,
        rule=window.rule,
        meets_floor=floor.is_met(len(rows), duration),
        n_requests=len(rows),
        duration_s=duration,
        output_tok_s=rate,
        output_tok_s_per_card=None if rate is None else rate / cards,
        request_per_s=_per_second(len(rows), duration),
        concurrency_mean=_per_second(busy, duration),
        **_spread("ttft", table.ttft_s[rows], "s", (50, 90, 99)),
        **_spread("tpot", tpot, "ms", (50, 90, 99)),
        **_spread("e2e", table.e2e_s[rows], "s", (90,)),
    )


def summarise_run(
    table: RequestTable,
    *,
    concurrency: int,
    rule: NativeRule,
    cards: int,
    floor: WindowFloor,
    duration_s: float | None = None,
) -> tuple[WindowMetrics, ...]:
    """Every window this run has, whole first. A window that it lacks is absent, never zero."""
    native = native_window(table, concurrency, rule)
    windows = (whole_window(table, duration_s), native, in_window(table, native))
    return tuple(summarise(table, w, cards, floor) for w in windows if not isinstance(w, NoWindow))


def native_inflation(windows: tuple[WindowMetrics, ...]) -> float | None:
    """How far the native rule's throughput exceeds what arrived in its own span: 0.14 means 14 % too high."""
    rate = {w.kind: w.output_tok_s for w in windows}
    native, arrived = rate.get(WindowKind.NATIVE), rate.get(WindowKind.IN_WINDOW)
    return native / arrived - 1 if native is not None and arrived else None


def _tokens_in_span(table: RequestTable, window: Window) -> float | None:
    """Output tokens of every success, by the share of its chunks that arrived in (start, end] of the span."""
    rows = np.flatnonzero(table.success)
    if bool((table.output_tokens[rows] == MISSING).any()) or window.start_s is None:
        return None
    inside = table.chunks_within(window.start_s, window.start_s + window.duration_s)
    share = inside[rows] / table.chunk_counts[rows]
    return float((table.output_tokens[rows] * share).sum())


def _busy_in_span(table: RequestTable, window: Window) -> float | None:
    if window.start_s is None:
        return None
    start = np.maximum(table.start_s[table.success], window.start_s)
    end = np.minimum(table.end_s[table.success], window.start_s + window.duration_s)
    return _sum(np.maximum(end - start, 0.0))


def _sum(values: Floats) -> float | None:
    return float(values.sum()) if len(values) and bool(np.isfinite(values).all()) else None


def _per_second(amount: float | None, duration_s: float) -> float | None:
    return amount / duration_s if amount is not None and duration_s > 0 else None


def _spread(name: str, seconds: Floats, unit: _Unit, percentiles: tuple[int, ...]) -> dict[str, float]:
    """Mean and percentiles (linear) as fields of WindowMetrics; nothing if any value is unobserved."""
    if len(seconds) == 0 or not bool(np.isfinite(seconds).all()):
        return {}
    values = seconds * 1000.0 if unit == "ms" else seconds
    points = np.percentile(values, percentiles)
    fields = {f"{name}_p{q}_{unit}": float(point) for q, point in zip(percentiles, points, strict=True)}
    return {f"{name}_mean_{unit}": float(values.mean()), **fields}
