"""Request tables for tests: built by hand, or by a random closed loop."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from experiments.requests import MISSING, RequestTable, offsets_of


def table_of(
    spans: Sequence[tuple[float, float]],
    *,
    chunks: Sequence[Sequence[float]] | None = None,
    output_tokens: int | Sequence[int] = 10,
    input_tokens: int = 100,
    cached_tokens: int | Sequence[int] = MISSING,
    failed: Sequence[int] = (),
    replaced: Sequence[int] | None = None,
) -> RequestTable:
    """Requests (send, end) in seconds. Without `chunks`, each answer arrives in its first and last instant."""
    n = len(spans)
    times = chunks if chunks is not None else [(start, end) for start, end in spans]
    success = np.ones(n, dtype=np.bool_)
    success[list(failed)] = False
    start = np.array([s for s, _ in spans], dtype=np.float64)
    end = np.array([e for _, e in spans], dtype=np.float64)
    first = np.array([t[0] if len(t) else np.nan for t in times], dtype=np.float64)
    return RequestTable(
        request_id=[f"r{i}" for i in range(n)],
        start_s=start,
        ttft_s=first - start,
        e2e_s=end - start,
        input_tokens=np.full(n, input_tokens, dtype=np.int64),
        output_tokens=np.broadcast_to(np.array(output_tokens, dtype=np.int64), (n,)).copy(),
        cached_tokens=np.broadcast_to(np.array(cached_tokens, dtype=np.int64), (n,)).copy(),
        success=success,
        retried=np.zeros(n, dtype=np.bool_),
        replacement_characters=np.array(replaced if replaced is not None else [0] * n, dtype=np.int64),
        chunk_times_s=np.array([t for ts in times for t in ts], dtype=np.float64),
        chunk_offsets=offsets_of(np.array([len(t) for t in times], dtype=np.int64)),
        errors=dict.fromkeys(failed, "Internal Server Error"),
    )


def closed_loop(rng: random.Random) -> tuple[list[tuple[float, float]], list[int], int]:
    """A random trace: spans in record order, failed rows, and the configured concurrency.

    Ties of time, dips around the 1 ms grace, shuffled records and failures are all frequent, since the window
    rules turn on them.
    """
    slots = rng.choice([1, 2, 3, 8, 16, 50, 60, 100])
    n = int(slots * rng.uniform(0.5, 4)) + 1
    free = [i * 0.005 for i in range(slots)]
    on_grid = rng.random() < 0.4
    spans = []
    for _ in range(n):
        slot = min(range(slots), key=free.__getitem__)
        start = free[slot] + rng.choice([0.0, 0.0, 0.0005, 0.001, 0.002]) * rng.random()
        end = start + rng.uniform(0.01, 2.0)
        if on_grid:
            start, end = round(start, 2), max(round(start, 2), round(end, 2))
        spans.append((start, end))
        free[slot] = end
    if rng.random() < 0.5:
        rng.shuffle(spans)
    failed = [i for i in range(n) if rng.random() < 0.1] if rng.random() < 0.3 else []
    return spans, failed, slots
