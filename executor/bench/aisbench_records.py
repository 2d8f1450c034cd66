"""AISBench's per-request records: `<abbr>_details.jsonl` joined with the chunk times of its SQLite files.

A success without its time points, a damaged row, or a database that was never committed makes the run
incomplete; nothing is guessed. One pass over the file, columns only: a million requests fit into a few
hundred megabytes.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from executor.bench.json_lines import read_json_lines
from executor.bench.npy_blobs import Ragged, decode_vectors
from executor.bench.problem import ResultUnreadable
from experiments.requests import MISSING, Floats, Ints, RequestTable, offsets_of, short_error

_DB_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}\.db")
_BATCH = 2_000
_ROW: Final = (
    "success",
    "error_info",
    "time_points",
    "input_tokens",
    "output_tokens",
    "uuid",
    "prediction",
    "db_name",
)


@dataclass(frozen=True, kw_only=True)
class AISBenchRun:
    """Where the files of one run lie: `performances/<model>/` and the dataset's abbreviation."""

    directory: Path
    abbr: str

    @property
    def details(self) -> Path:
        return self.directory / f"{self.abbr}_details.jsonl"


@dataclass(frozen=True, kw_only=True)
class AISBenchRecords:
    table: RequestTable
    sha256: str  # of the details file and of every database it refers to, in this order
    version: str | None


def find_run(folder: Path) -> AISBenchRun:
    """The only run below the folder; none or several is a fault of collection."""
    found = sorted(folder.rglob("performances/*/*_details.jsonl"))
    if not found:
        raise ResultUnreadable("*_details.jsonl", f"not found in {folder.name}: the client wrote no records")
    if len(found) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in found[:3])
        raise ResultUnreadable("*_details.jsonl", f"{len(found)} runs in one result folder: {names}")
    return AISBenchRun(directory=found[0].parent, abbr=found[0].name.removesuffix("_details.jsonl"))


def read_records(run: AISBenchRun) -> AISBenchRecords:
    columns = _read_rows(run.details)
    points, databases = _read_points(run, columns)
    return AISBenchRecords(
        table=_table(columns, points, run.details.name),
        sha256=_sha256((run.details, *databases)),
        version=_version(run),
    )


class _Columns:
    """The rows of a details file, transposed as they are read."""

    def __init__(self) -> None:
        self.success: list[bool] = []
        self.errors: dict[int, str] = {}
        self.refs: list[int] = []
        self.input_tokens: list[int] = []
        self.output_tokens: list[int] = []
        self.uuid: list[str] = []
        self.replaced: list[int] = []
        self.database: list[str] = []

    def extend(self, rows: Sequence[tuple[Any, ...]]) -> None:
        first = len(self.uuid)
        success, error, points, inputs, outputs, uuid, prediction, database = zip(*rows, strict=True)
        self.success += success
        self.errors.update({first + i: short_error(str(text)) for i, text in enumerate(error) if text})
        self.refs += [p["__db_ref__"] if p else MISSING for p in points]
        self.input_tokens += [n or MISSING for n in inputs]  # 0 means that the server reported no usage
        self.output_tokens += [n or MISSING for n in outputs]
        self.uuid += uuid
        self.replaced += [text.count("\ufffd") for text in prediction]
        self.database += database


def _read_rows(path: Path) -> _Columns:
    columns = _Columns()
    rows = map(_pick, read_json_lines(path))
    read = 0
    try:
        while batch := list(islice(rows, _BATCH)):
            columns.extend(batch)
            read += len(batch)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        lines = f"between lines {read + 1} and {read + _BATCH}"
        raise ResultUnreadable(path.name, f"a row {lines} is not an AISBench record: {error!r}") from None
    if not columns.uuid:
        raise ResultUnreadable(path.name, "holds no request record")
    return columns


_pick_present: Callable[[dict[str, Any]], tuple[Any, ...]] = itemgetter(*_ROW)
# Only what a failed request never had may be absent; a row without the others is not a record.
_ABSENT = {"error_info": "", "prediction": "", "db_name": "", "time_points": None}


def _pick(row: dict[str, Any]) -> tuple[Any, ...]:
    try:
        return _pick_present(row)
    except KeyError:
        return _pick_present(_ABSENT | row)


def _read_points(run: AISBenchRun, columns: _Columns) -> tuple[Ragged, tuple[Path, ...]]:
    """The time points of every row in row order, from as many databases as there were workers."""
    names = np.array(columns.database, dtype=object)
    refs = np.array(columns.refs, dtype=np.int64)
    flat: list[Floats] = []
    source = np.full(len(refs), MISSING, dtype=np.int64)
    counts: list[Ints] = []
    paths: list[Path] = []
    rows_before = 0
    for name in sorted({str(n) for n in columns.database if n}):
        path = _database_path(run, name)
        ids, vectors = _read_database(path)
        rows = np.flatnonzero(names == name)
        place = np.searchsorted(ids, refs[rows])
        known = (place < len(ids)) & (ids[np.minimum(place, len(ids) - 1)] == refs[rows])
        source[rows[known]] = place[known] + rows_before
        rows_before += len(ids)
        flat.append(vectors.values)
        counts.append(vectors.counts)
        paths.append(path)
    everything = Ragged(
        np.concatenate(flat) if flat else np.zeros(0),
        np.concatenate(counts) if counts else np.zeros(0, np.int64),
    )
    return everything.take(source), tuple(paths)


def _database_path(run: AISBenchRun, name: str) -> Path:
    if not _DB_NAME.fullmatch(name):
        raise ResultUnreadable(run.details.name, f"db_name {short_error(name)!r} is not a database file name")
    for path in (run.directory / "db_data" / name, run.directory / "tmp" / f"tmp_{name}"):
        if path.is_file():
            return path
    raise ResultUnreadable(f"db_data/{name}", "missing: the chunk times of its requests were not collected")


def _read_database(path: Path) -> tuple[Ints, Ragged]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
            cursor = connection.execute("SELECT id, arr_blob FROM numpy_store ORDER BY id")
            ids, vectors = decode_vectors(_batches(cursor))
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise ResultUnreadable(f"{path.parent.name}/{path.name}", f"damaged: {error}") from None
    if len(ids) == 0:
        raise ResultUnreadable(f"{path.parent.name}/{path.name}", "holds no time points: it was not committed")
    return ids, vectors


def _batches(cursor: sqlite3.Cursor) -> Iterator[list[tuple[Any, Any]]]:
    while batch := cursor.fetchmany(_BATCH):
        yield batch


def _table(columns: _Columns, points: Ragged, file: str) -> RequestTable:
    success = np.array(columns.success, dtype=np.bool_)
    unproved = np.flatnonzero(success & (points.counts < 2))
    if len(unproved):
        why = f"{len(unproved)} succeeded requests without time points, first in line {unproved[0] + 1}"
        raise ResultUnreadable(f"{file}:time_points", why)
    _refuse_disorder(points, file)
    offsets = offsets_of(points.counts)
    timed = np.flatnonzero(points.counts > 0)
    start, ttft, e2e = (np.full(len(success), np.nan) for _ in range(3))
    start[timed] = points.values[offsets[timed]]
    e2e[timed] = points.values[offsets[timed + 1] - 1] - start[timed]
    streamed = np.flatnonzero(points.counts > 1)
    ttft[streamed] = points.values[offsets[streamed] + 1] - start[streamed]
    is_chunk = np.ones(len(points.values), dtype=np.bool_)
    is_chunk[offsets[timed]] = False
    retried = np.zeros(len(success), dtype=np.bool_)
    retried[list(columns.errors)] = True  # a success with an error text is one that was sent again
    return RequestTable(
        request_id=columns.uuid,
        start_s=start,
        ttft_s=ttft,
        e2e_s=e2e,
        input_tokens=np.array(columns.input_tokens, dtype=np.int64),
        output_tokens=np.array(columns.output_tokens, dtype=np.int64),
        cached_tokens=np.full(len(success), MISSING, dtype=np.int64),
        success=success,
        retried=retried & success,
        replacement_characters=np.array(columns.replaced, dtype=np.int64),
        chunk_times_s=points.values[is_chunk],
        chunk_offsets=offsets_of(np.maximum(points.counts - 1, 0)),
        errors=columns.errors,
    )


def _refuse_disorder(points: Ragged, file: str) -> None:
    """Time points of one request never decrease; a clock that does has told nothing."""
    if not bool(np.isfinite(points.values).all()):
        raise ResultUnreadable(f"{file}:time_points", "hold values that are not finite numbers")
    steps = np.diff(points.values)
    borders = offsets_of(points.counts)[1:-1] - 1
    steps[borders[(borders >= 0) & (borders < len(steps))]] = 0.0
    if bool((steps < 0).any()):
        raise ResultUnreadable(f"{file}:time_points", "run backwards within a request")


def _version(run: AISBenchRun) -> str | None:
    """The version that the executor noted beside the results; AISBench writes none into them."""
    for note in (run.directory / "client_version.txt", run.directory.parents[2] / "client_version.txt"):
        if note.is_file():
            return short_error(note.read_text(encoding="utf-8", errors="replace")) or None
    return None


def _sha256(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
