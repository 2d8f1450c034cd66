"""The SQLite files of AISBench's chunk times. Large ones are decoded by a process of their own, beside the JSON rows.

The schema is not trusted: work is bounded by the size of the file, and nothing in it is unpickled.
`python -m executor.bench.point_databases DATABASE FOLDER` is that process; if it fails, the file is read here and
tells its own error.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import numpy as np

from executor.bench.npy_blobs import TimePoints, decode_time_points
from experiments.requests import Ints

WORTH_A_PROCESS_BYTES = 64 << 20
_BATCH = 300  # rows whose vectors fit the processor's cache
_STEPS_AT_ONCE = 1_000
_SMALLEST_LIMIT = 1 << 16
_PARTS = ("ids", "send", "chunks", "counts")

Decoded = tuple[Ints, TimePoints]


def read_database(path: Path) -> Decoded:
    """Ids and time points in id order. Raises sqlite3.Error, ValueError, TypeError or OverflowError if damaged."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as connection:
        _bound_work(connection, path.stat().st_size)
        cursor = connection.execute("SELECT id, arr_blob FROM numpy_store ORDER BY id")
        return decode_time_points(iter(lambda: cursor.fetchmany(_BATCH), []))


def _bound_work(connection: sqlite3.Connection, file_bytes: int) -> None:
    """A schema may hide endless work behind the table's name: real rows take few steps per byte of the file."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(file_bytes, _SMALLEST_LIMIT))
    budget = iter(range(file_bytes // _STEPS_AT_ONCE + _STEPS_AT_ONCE))
    connection.set_progress_handler(lambda: 0 if next(budget, None) is not None else 1, _STEPS_AT_ONCE)


@contextmanager
def decoding_ahead(paths: Sequence[Path]) -> Iterator[Callable[[Path], Decoded]]:
    """Start decoding the large files now; the function given waits for one, or reads it here."""
    large = [path for path in paths if path.stat().st_size >= WORTH_A_PROCESS_BYTES] if os.cpu_count() != 1 else []
    with TemporaryDirectory(prefix="tuneloop-points-") as scratch:
        children = {path: _start(path, Path(scratch) / str(i)) for i, path in enumerate(large)}

        def decoded(path: Path) -> Decoded:
            child = children.get(path)
            if child is None or child.wait() != 0:
                return read_database(path)
            return _load(Path(scratch) / str(large.index(path)))

        try:
            yield decoded
        finally:
            for child in children.values():
                child.kill()
                child.wait()


def _start(path: Path, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    package_root = str(Path(__file__).resolve().parents[2])
    return subprocess.Popen(
        (sys.executable, "-m", __name__, str(path), str(folder)),
        env={**os.environ, "PYTHONPATH": package_root},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _load(folder: Path) -> Decoded:
    ids, send, chunks, counts = (np.load(folder / f"{part}.npy", allow_pickle=False) for part in _PARTS)
    return ids, TimePoints(send, chunks, counts)


def main(arguments: Sequence[str]) -> int:
    database, folder = map(Path, arguments)
    try:
        ids, points = read_database(database)
    except (sqlite3.Error, ValueError, TypeError, OverflowError):
        return 1
    for part, column in zip(_PARTS, (ids, points.send, points.chunks, points.counts), strict=True):
        np.save(folder / f"{part}.npy", column, allow_pickle=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
