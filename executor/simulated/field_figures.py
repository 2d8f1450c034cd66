"""Figures of a simulated run by the definitions of the record: whole run, and the native window of 2026-08. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.simulated.model.trace import RequestTrace, RunTrace

CARDS = 16


def whole_figures(trace: RunTrace) -> dict[str, float]:
    """Everything, ramp and drain included."""
    start = min(item.sent for item in trace.requests)
    return _figures(trace.requests, trace.duration - start) | {
        "accept_length": sum(item.output_tokens for item in trace.requests) / trace.verify_steps
    }


def native_figures(trace: RunTrace, concurrency: int) -> dict[str, float]:
    """Requests sent between the second send that fills the last slot and the last event that leaves all slots full."""
    events = [(item.sent, 1) for item in trace.requests] + [(item.end, -1) for item in trace.requests]
    level, starts, landings = 0, [], []
    for at, change in sorted(events):
        level += change
        if level == concurrency:
            landings.append(at)
            if change > 0:
                starts.append(at)
    if len(starts) < 2:
        return {}
    first, last = starts[1], landings[-1]
    return _figures([item for item in trace.requests if first <= item.sent <= last], last - first)


def _figures(requests: Sequence[RequestTrace], seconds: float) -> dict[str, float]:
    tokens = sum(item.output_tokens for item in requests)
    return {
        "requests": float(len(requests)),
        "seconds": seconds,
        "tok_s": tokens / seconds,
        "tok_s_per_card": tokens / seconds / CARDS,
        "ttft_s": float(np.mean([item.first - item.sent for item in requests])),
        "tpot_ms": float(np.mean([(item.end - item.first) / (item.output_tokens - 1) for item in requests])) * 1000.0,
        "e2e_s": float(np.mean([item.end - item.sent for item in requests])),
        "concurrency": sum(item.end - item.sent for item in requests) / seconds,
        "hit_pct": 100.0 * sum(i.cached_tokens for i in requests) / sum(i.input_tokens for i in requests),
    }
