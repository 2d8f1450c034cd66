"""One run's per-request records, as columns. The only input of every window, metric and validity gate.

A value that the client did not observe is NaN in a float column and `MISSING` in an integer column; nothing
here or after it fills such a hole from another field. Times are seconds on the client's own monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MISSING = -1
ERROR_TEXT_LIMIT = 120
_BLOCK = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestTable:
    """Columns of equal length, in the client's own record order (AISBench breaks ties of time by it)."""

    request_id: Sequence[str]
    start_s: Floats  # NaN where the client records no send times
    ttft_s: Floats
    e2e_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    success: Bools
    retried: Bools
    replacement_characters: Ints  # U+FFFD in the answer; MISSING where the text was not kept
    chunk_times_s: Floats  # arrivals of all chunks, request after request; since the send if start_s is NaN
    chunk_offsets: Ints  # request i owns chunk_times_s[chunk_offsets[i] : chunk_offsets[i + 1]]
    errors: Mapping[int, str] = field(default_factory=dict)  # by row, failed and retried requests only

    def __post_init__(self) -> None:
        n = len(self.request_id)
        columns = (
            self.start_s,
            self.ttft_s,
            self.e2e_s,
            self.input_tokens,
            self.output_tokens,
            self.cached_tokens,
            self.success,
            self.retried,
            self.replacement_characters,
        )
        if any(len(column) != n for column in columns) or len(self.chunk_offsets) != n + 1:
            raise ValueError("columns of a request table must have one entry per request")

    def __len__(self) -> int:
        return len(self.request_id)

    @property
    def n_succeeded(self) -> int:
        return int(self.success.sum())

    @property
    def n_failed(self) -> int:
        return len(self) - self.n_succeeded

    @cached_property
    def end_s(self) -> Floats:
        """When the answer was complete: the last chunk's own time where it was kept, to the last bit."""
        if len(self.chunk_times_s) == 0:
            return self.start_s + self.e2e_s
        last = self.chunk_times_s[np.maximum(self.chunk_offsets[1:] - 1, 0)]
        kept = (self.chunk_counts > 0) & np.isfinite(self.start_s)
        return np.where(kept, last, self.start_s + self.e2e_s)

    @cached_property
    def chunk_counts(self) -> Ints:
        return np.diff(self.chunk_offsets)

    def tpot_s(self) -> Floats:
        """(E2E - TTFT) / (output tokens - 1); NaN where not defined: one token, or something unobserved."""
        steps = np.where(self.output_tokens > 1, self.output_tokens - 1, np.nan)
        return (self.e2e_s - self.ttft_s) / steps

    def max_gap_s(self) -> Floats:
        """The longest silence between two chunks of each request; NaN for fewer than two chunks."""
        gaps = np.full(len(self), np.nan)
        many = np.flatnonzero(self.chunk_counts >= 2)
        # In blocks of requests: the steps of a million long answers need not exist at once.
        for first in range(0, len(many), _BLOCK):
            rows = many[first : first + _BLOCK]
            begin, end = self.chunk_offsets[rows[0]], self.chunk_offsets[rows[-1] + 1]
            steps = np.diff(self.chunk_times_s[begin:end])
            borders = self.chunk_offsets[rows[0] + 1 : rows[-1] + 1] - begin - 1
            steps[borders[(borders >= 0) & (borders < len(steps))]] = -np.inf
            gaps[rows] = np.maximum.reduceat(steps, self.chunk_offsets[rows] - begin)
        return gaps

    def chunks_within(self, after_s: float, until_s: float) -> Ints:
        """How many chunks of each request arrived in (after, until]."""
        inside = np.empty(len(self), dtype=np.int64)
        for first in range(0, len(self), _BLOCK):
            offsets = self.chunk_offsets[first : first + _BLOCK + 1]
            times = self.chunk_times_s[offsets[0] : offsets[-1]]
            running = offsets_of((times > after_s) & (times <= until_s))
            inside[first : first + _BLOCK] = np.diff(running[offsets - offsets[0]])
        return inside

    def gaps_s(self, of: Bools) -> Floats:
        """Every gap between two chunks of one request, of the requests chosen, one after the other."""
        steps = np.diff(self.chunk_times_s)
        within = np.repeat(of, self.chunk_counts)[1:]
        within[self._borders()] = False
        return steps[within]

    def _borders(self) -> Ints:
        """Positions between two neighbouring chunks that belong to different requests: no gap of either."""
        borders = self.chunk_offsets[1:-1] - 1
        return borders[(borders >= 0) & (borders < len(self.chunk_times_s) - 1)]

    def select(self, keep: Bools) -> RequestTable:
        """The rows where `keep` is true, in order."""
        rows = np.flatnonzero(keep)
        counts = self.chunk_counts
        new_row = {old: new for new, old in enumerate(rows.tolist())} if self.errors else {}
        return RequestTable(
            request_id=[self.request_id[i] for i in rows.tolist()],
            start_s=self.start_s[rows],
            ttft_s=self.ttft_s[rows],
            e2e_s=self.e2e_s[rows],
            input_tokens=self.input_tokens[rows],
            output_tokens=self.output_tokens[rows],
            cached_tokens=self.cached_tokens[rows],
            success=self.success[rows],
            retried=self.retried[rows],
            replacement_characters=self.replacement_characters[rows],
            chunk_times_s=self.chunk_times_s[np.repeat(keep, counts)],
            chunk_offsets=offsets_of(counts[rows]),
            errors={new_row[i]: text for i, text in self.errors.items() if i in new_row},
        )

    def succeeded(self) -> RequestTable:
        return self if bool(self.success.all()) else self.select(self.success)


def offsets_of(counts: Ints | Bools) -> Ints:
    """Where each of the consecutive runs of these lengths starts, and the end of the last."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def total(column: Ints) -> int | None:
    """The sum of an integer column, or None if any entry is missing: a partial sum is not a total."""
    if len(column) == 0 or bool((column == MISSING).any()):
        return None
    return int(column.sum())


def short_error(text: str) -> str:
    """One line of an error, bounded: log text is untrusted and may be huge."""
    line = " ".join(text.split())
    return line if len(line) <= ERROR_TEXT_LIMIT else line[: ERROR_TEXT_LIMIT - 1] + "…"
