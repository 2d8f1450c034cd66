"""Time points of requests: vectors of float64 as `.npy` blobs, decoded without pickle or one object per number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.requests import MISSING, Bools, Floats, Ints, offsets_of

_MAGIC = b"\x93NUMPY"
_HEADER_LIMIT = 4096
_USUAL_HEADER = 128
_NOT_FINITE = "time points that are not finite numbers"
_BACKWARDS = "time points that run backwards within a request"
_HEADER = re.compile(r"\{'descr': '<f8', 'fortran_order': (?:True|False), 'shape': (\(\d{1,9},\)), \}\s*")


@dataclass(frozen=True, eq=False)
class TimePoints:
    """Vectors `[send, chunk, chunk, …]` of seconds, taken apart: the sends, and all chunks one after the other."""

    send: Floats  # NaN for an empty vector
    chunks: Floats
    counts: Ints  # chunks per vector

    def take(self, rows: Ints) -> TimePoints:
        """These vectors in this order; MISSING takes an empty one."""
        if len(rows) == len(self.counts) and bool((rows == np.arange(len(rows))).all()):
            return self
        known = rows != MISSING
        counts = np.zeros(len(rows), dtype=np.int64)
        counts[known] = self.counts[rows[known]]
        send = np.full(len(rows), np.nan)
        send[known] = self.send[rows[known]]
        first_source, first_target = offsets_of(self.counts), offsets_of(counts)
        # Position within the result, shifted to where its vector starts in the source.
        shift = np.repeat(first_source[rows] - first_target[:-1], counts)
        return TimePoints(send, self.chunks[np.arange(first_target[-1]) + shift], counts)


def no_time_points(rows: int) -> TimePoints:
    return TimePoints(np.full(rows, np.nan), np.zeros(0), np.zeros(rows, dtype=np.int64))


def concatenate(parts: Sequence[TimePoints]) -> TimePoints:
    if len(parts) == 1:
        return parts[0]
    empty = np.zeros(0)
    return TimePoints(
        np.concatenate((empty, *(part.send for part in parts))),
        np.concatenate((empty, *(part.chunks for part in parts))),
        np.concatenate((np.zeros(0, dtype=np.int64), *(part.counts for part in parts))),
    )


def decode_time_points(batches: Iterable[list[tuple[Any, Any]]]) -> tuple[Ints, TimePoints]:
    """Ids and vectors of (id, blob) rows.

    Raises ValueError for a blob that is not a 1-D float64 vector, and for times that are not finite or run backwards.
    """
    ids: list[Ints] = [np.zeros(0, dtype=np.int64)]
    parts: list[TimePoints] = []
    for batch in batches:
        keys, blobs = zip(*batch, strict=True)
        ids.append(np.array(keys, dtype=np.int64))
        parts.append(_decode_uniform(blobs) or _decode_mixed(blobs))
    return np.concatenate(ids), concatenate(parts)


def _decode_uniform(blobs: Sequence[bytes]) -> TimePoints | None:
    """Answers of one length, the usual case of a fixed output: one matrix, without a step per request. Else None."""
    joined, size = b"".join(blobs), len(blobs[0])
    if len(set(map(len, blobs))) > 1 or size % 8 or size < _USUAL_HEADER + 8:
        return None
    rows = np.frombuffer(joined, dtype=np.int64).reshape(len(blobs), -1)
    headers, points = rows[:, : _USUAL_HEADER // 8], rows[:, _USUAL_HEADER // 8 :].view("<f8")
    if not bool((headers == headers[0]).all()) or _layout(blobs[0]) != (_USUAL_HEADER, points.shape[1]):
        return None
    if not bool(np.isfinite(points).all()):
        raise ValueError(_NOT_FINITE)
    if bool((np.diff(points, axis=1) < 0).any()):
        raise ValueError(_BACKWARDS)
    counts = np.full(len(blobs), points.shape[1] - 1, dtype=np.int64)
    return TimePoints(points[:, 0].copy(), points[:, 1:].ravel(), counts)


def _decode_mixed(blobs: Sequence[bytes]) -> TimePoints:
    words, is_header, counts = _lay_out_alike(blobs) or _lay_out_each(blobs)
    return _take_apart(words[~is_header], counts)


def _take_apart(values: Floats, counts: Ints) -> TimePoints:
    offsets = offsets_of(counts)
    filled = np.flatnonzero(counts > 0)
    send = np.full(len(counts), np.nan)
    send[filled] = values[offsets[filled]]
    is_send = np.zeros(len(values), dtype=np.bool_)
    is_send[offsets[filled]] = True
    if not bool(np.isfinite(values).all()):
        raise ValueError(_NOT_FINITE)
    if bool((np.diff(values)[~is_send[1:]] < 0).any()):
        raise ValueError(_BACKWARDS)
    return TimePoints(send, values[~is_send], np.maximum(counts - 1, 0))


_LaidOut = tuple[Floats, Bools, Ints]  # all words of a batch, which of them are header, numbers per vector


def _lay_out_alike(blobs: Sequence[bytes]) -> _LaidOut | None:
    """The usual batch, as a whole: every header has 128 bytes, as numpy writes it for any vector. Else None."""
    lengths = np.fromiter(map(len, blobs), dtype=np.int64, count=len(blobs))
    if int(lengths.min()) < _USUAL_HEADER or bool((lengths % 8 != 0).any()):
        return None
    words = np.frombuffer(b"".join(blobs), dtype="<f8")
    in_header = offsets_of(lengths // 8)[:-1, None] + np.arange(_USUAL_HEADER // 8)
    # Blobs of one length must share one header, so only one of each length is parsed.
    distinct, first, which = np.unique(lengths, return_index=True, return_inverse=True)
    headers = words.view(np.int64)[in_header]
    if not bool((headers == headers[first][which]).all()):
        return None
    for length, index in zip(distinct.tolist(), first.tolist(), strict=True):
        if _layout(blobs[index]) != (_USUAL_HEADER, (length - _USUAL_HEADER) // 8):
            return None
    is_header = np.zeros(len(words), dtype=np.bool_)
    is_header[in_header.ravel()] = True
    return words, is_header, (lengths - _USUAL_HEADER) // 8


def _lay_out_each(blobs: Sequence[bytes]) -> _LaidOut:
    counts, bodies = [], []
    for blob in blobs:
        offset, count = _layout(blob)
        if len(blob) != offset + 8 * count:
            raise ValueError(f"a vector has {len(blob)} bytes where its header says {offset + 8 * count}")
        counts.append(count)
        bodies.append(blob[offset:])
    words = np.frombuffer(b"".join(bodies), dtype="<f8")
    return words, np.zeros(len(words), dtype=np.bool_), np.array(counts, dtype=np.int64)


def _layout(blob: bytes) -> tuple[int, int]:
    """Where the numbers start and how many there are, by the header of format 1 or 2."""
    head = blob[:12]
    if len(head) < 12 or not head.startswith(_MAGIC):
        raise ValueError("a blob is not in .npy format")
    size, start = (2, 10) if head[6] == 1 else (4, 12)
    length = int.from_bytes(head[8 : 8 + size], "little")
    if length > _HEADER_LIMIT:
        raise ValueError(f"a .npy header of {length} bytes")
    text = blob[start : start + length].decode("latin1")
    found = _HEADER.fullmatch(text)
    if found is None:
        raise ValueError(f"not a vector of float64: {text.strip()[:80]!r}")
    (count,) = ast.literal_eval(found[1])
    return start + length, int(count)
