"""Vectors of float64 as `.npy` blobs, decoded without pickle and without one object per number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.requests import MISSING, Floats, Ints, offsets_of

_MAGIC = b"\x93NUMPY"
_HEADER_LIMIT = 4096
_HEADER = re.compile(r"\{'descr': '<f8', 'fortran_order': (?:True|False), 'shape': (\(\d{1,9},\)), \}\s*")


@dataclass(frozen=True, eq=False)
class Ragged:
    """Vectors of different lengths, one after the other."""

    values: Floats
    counts: Ints

    def take(self, rows: Ints) -> Ragged:
        """These vectors in this order; MISSING takes an empty one."""
        if len(rows) == len(self.counts) and bool((rows == np.arange(len(rows))).all()):
            return self
        counts = np.where(rows == MISSING, 0, self.counts[rows]) if len(self.counts) else np.zeros(len(rows), int)
        starts = offsets_of(self.counts)[rows]
        ends = offsets_of(counts)
        # Position within the result, shifted to where its vector starts in the source.
        shift = np.repeat(starts - ends[:-1], counts)
        return Ragged(self.values[np.arange(ends[-1]) + shift], counts)


def decode_vectors(batches: Iterable[list[tuple[Any, Any]]]) -> tuple[Ints, Ragged]:
    """Ids and vectors of (id, blob) rows. Raises ValueError for a blob that is not a 1-D float64 vector."""
    ids: list[int] = []
    counts: list[int] = []
    parts: list[Floats] = [np.zeros(0)]
    headers: dict[bytes, tuple[int, int]] = {}
    for batch in batches:
        bodies = []
        for key, blob in batch:
            head = bytes(blob[:128])
            layout = headers.get(head) or headers.setdefault(head, _layout(head, blob))
            offset, count = layout
            if len(blob) != offset + 8 * count:
                raise ValueError(f"vector {key} has {len(blob)} bytes where its header says {offset + 8 * count}")
            ids.append(int(key))
            counts.append(count)
            bodies.append(blob[offset:])
        parts.append(np.frombuffer(b"".join(bodies), dtype="<f8"))
    return np.array(ids, dtype=np.int64), Ragged(np.concatenate(parts), np.array(counts, dtype=np.int64))


def _layout(head: bytes, blob: bytes) -> tuple[int, int]:
    """Where the numbers start and how many there are, by the header of format 1 or 2."""
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
