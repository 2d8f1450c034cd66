"""Faults of a load: how the records of a run change when something goes wrong on the way. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from executor.simulated.client_records import ClientRecord, failed

RECORD_FAULTS = (
    "client_exit_0_some_failed",
    "client_zero_tokens",
    "client_short_output",
    "stream_ends_in_error",
    "silent_retry",
    "garbled_output",
    "cache_not_zero",
)


def spoil(records: Sequence[ClientRecord], fault: Mapping[str, Any]) -> list[ClientRecord]:
    """The records with one fault of RECORD_FAULTS in them; `every` (8) says which: every n-th request."""
    every = int(fault.get("every", 8))
    change = _CHANGES[str(fault["fault"])]
    return [change(record) if record.index % every == every - 1 else record for record in records]


def fail_after(records: Sequence[ClientRecord], at: float, error: str) -> list[ClientRecord]:
    """A server died at `at`: what had not ended by then failed."""
    return [record if record.end <= at else failed(record, error, at) for record in records]


def _zero_tokens(record: ClientRecord) -> ClientRecord:
    return replace(record, tokens=np.zeros_like(record.tokens))


def _short(record: ClientRecord) -> ClientRecord:
    keep = max(1, len(record.times) // 2)
    return replace(record, times=record.times[:keep], tokens=record.tokens[:keep])


# An error event within a stream counts as a success with a short answer in AISBench.
_CHANGES: dict[str, Callable[[ClientRecord], ClientRecord]] = {
    "client_exit_0_some_failed": lambda record: failed(record, "Internal Server Error", record.sent + 0.01),
    "client_zero_tokens": _zero_tokens,
    "client_short_output": _short,
    "stream_ends_in_error": lambda record: replace(_short(record), stream_error="NPU out of memory"),
    "silent_retry": lambda record: replace(record, retried="Server disconnected"),
    "garbled_output": lambda record: replace(record, garbled=True),
    "cache_not_zero": lambda record: replace(record, cached_tokens=record.input_tokens // 256 * 128),
}
