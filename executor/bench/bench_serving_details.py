"""The per-request arrays of one bench_serving record as a request table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from executor.bench.bench_records import BenchRecord
from executor.bench.problem import ResultUnreadable
from experiments.requests import MISSING, Floats, Ints, RequestTable, offsets_of, short_error

_NEEDED = ("output_lens", "ttfts", "itls", "errors")


def read_table(record: BenchRecord, file: str) -> RequestTable:
    """Raises ResultUnreadable where details are absent, ragged in length, or hold values of another type."""
    columns = {name: _column(record, name, file) for name in _NEEDED}
    n = len(columns["errors"])
    for name, column in columns.items():
        if len(column) != n:
            raise ResultUnreadable(f"{file}:{name}", f"{len(column)} entries for {n} requests")
    errors = {i: short_error(str(text)) for i, text in enumerate(columns["errors"]) if text}
    success = np.ones(n, dtype=np.bool_)
    success[list(errors)] = False
    ttft = _floats(columns["ttfts"], f"{file}:ttfts")
    times, offsets = _chunks(ttft, columns["itls"], f"{file}:itls")
    e2e = np.full(n, np.nan)
    streamed = np.flatnonzero(np.diff(offsets) > 0)
    e2e[streamed] = times[offsets[streamed + 1] - 1]
    return RequestTable(
        request_id=range_names(n),
        start_s=np.full(n, np.nan),
        ttft_s=np.where(ttft > 0, ttft, np.nan),  # 0.0: no text ever arrived
        e2e_s=e2e,
        input_tokens=_optional_ints(record, "input_lens", n, file),
        output_tokens=_counts(columns["output_lens"], f"{file}:output_lens"),
        cached_tokens=_optional_ints(record, "cached_tokens", n, file),
        success=success,
        retried=np.zeros(n, dtype=np.bool_),  # this client never sends a request twice
        replacement_characters=_replaced(record, n),
        chunk_times_s=times,
        chunk_offsets=offsets,
        errors=errors,
    )


def range_names(n: int) -> Sequence[str]:
    """Requests have no id in this client's record: their place in the dataset stands for it."""
    return [str(i) for i in range(n)]


def _column(record: BenchRecord, name: str, file: str) -> list[object]:
    column = record.details.get(name)
    if not isinstance(column, list):
        raise ResultUnreadable(f"{file}:{name}", "no per-request details: the run lacks --output-details")
    return column


def _floats(values: list[object], field: str) -> Floats:
    try:
        column = np.array(values)
    except ValueError:
        raise ResultUnreadable(field, "is not a list of numbers") from None
    if len(values) and (column.ndim != 1 or column.dtype.kind not in "iuf"):
        raise ResultUnreadable(field, "is not a list of numbers")
    floats = column.astype(np.float64, copy=False)
    if not bool(np.isfinite(floats).all()) or bool((floats < 0).any()):
        raise ResultUnreadable(field, "holds negative numbers or values that are not finite")
    return floats


def _counts(values: list[object], field: str) -> Ints:
    """Token counts; 0 is how this client says that the answer never ended."""
    floats = _floats(values, field)
    if bool((floats != np.floor(floats)).any()) or bool((floats > 1e12).any()):
        raise ResultUnreadable(field, "holds numbers that are no token counts")
    counts = floats.astype(np.int64)
    return np.where(counts == 0, MISSING, counts)


def _optional_ints(record: BenchRecord, name: str, n: int, file: str) -> Ints:
    values = record.details.get(name)
    if not isinstance(values, list) or any(value is None for value in values):
        return np.full(n, MISSING, dtype=np.int64)
    if len(values) != n:
        raise ResultUnreadable(f"{file}:{name}", f"{len(values)} entries for {n} requests")
    return _floats(values, f"{file}:{name}").astype(np.int64)


def _chunks(ttft: Floats, itls: list[object], field: str) -> tuple[Floats, Ints]:
    """Arrival times since each request's send: the first token, then the gaps added up."""
    if not all(isinstance(gaps, list) for gaps in itls):
        raise ResultUnreadable(field, "is not a list of lists")
    gap_counts = np.fromiter(map(len, itls), dtype=np.int64, count=len(itls))  # type: ignore[arg-type]
    flat = _floats(list(chain.from_iterable(itls)), field)  # type: ignore[arg-type]
    has_first = ttft > 0
    counts = np.where(has_first, gap_counts + 1, 0)
    offsets = offsets_of(counts)
    steps = np.empty(offsets[-1], dtype=np.float64)
    is_first = np.zeros(len(steps), dtype=np.bool_)
    is_first[offsets[:-1][has_first]] = True
    steps[is_first] = ttft[has_first]
    steps[~is_first] = flat if bool(has_first.all()) else flat[np.repeat(has_first, gap_counts)]
    del flat  # as large as the result
    # One running sum over all requests, minus what it was before each of them.
    times = np.cumsum(steps, out=steps)
    before = np.concatenate((np.zeros(1), times))[offsets[:-1]]
    times -= np.repeat(before, counts)
    return times, offsets


def _replaced(record: BenchRecord, n: int) -> Ints:
    texts = record.details.get("generated_texts")
    if not isinstance(texts, list) or len(texts) != n or not all(isinstance(text, str) for text in texts):
        return np.full(n, MISSING, dtype=np.int64)
    return np.fromiter((text.count("\ufffd") for text in texts), dtype=np.int64, count=n)
