"""AISBench's per-request records: `<abbr>_details.jsonl` joined with the chunk times of its SQLite files.

A success without its time points, a damaged row, or a database that was never committed makes the run
incomplete; nothing is guessed. One pass over the file, columns only: a million requests fit into a few
hundred megabytes.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from executor.bench.aisbench_rows import DetailRows, read_rows
from executor.bench.npy_blobs import TimePoints, concatenate, no_time_points
from executor.bench.point_databases import Decoded, decoding_ahead
from executor.bench.problem import ResultUnreadable
from experiments.requests import MISSING, RequestTable, offsets_of, short_error

_HASH_BYTES = 8 << 20  # at once: with small pieces the thread asks for the interpreter lock all the time
_DB_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}\.db")


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
    beside = sorted(path for path in run.directory.glob("db_data/*.db") if path.is_file())
    # Hashing releases the interpreter lock: it costs a second core, and little time.
    with ThreadPoolExecutor(max_workers=1) as hashing, decoding_ahead(beside) as decoded:
        hashes = {path: hashing.submit(_file_sha256, path) for path in (run.details, *beside)}
        rows = read_rows(run.details)
        points, databases = _read_points(run, rows, decoded)
        table = _table(rows, points, run.details.name)
        known = [hashes.get(path) or hashing.submit(_file_sha256, path) for path in (run.details, *databases)]
        sha256 = hashlib.sha256(b"".join(each.result() for each in known)).hexdigest()
    return AISBenchRecords(table=table, sha256=sha256, version=_version(run))


def _read_points(
    run: AISBenchRun, rows: DetailRows, decoded: Callable[[Path], Decoded]
) -> tuple[TimePoints, tuple[Path, ...]]:
    """The time points of every row in row order, from as many databases as there were workers."""
    paths = tuple(_database_path(run, name) for name in rows.database_names)
    refs, database = rows.refs, rows.database
    source = np.full(len(rows), MISSING, dtype=np.int64)
    vectors: list[TimePoints] = []
    rows_before = 0
    for code, path in enumerate(paths):
        ids, found = _checked(path, decoded)
        here = np.flatnonzero(database == code)
        place = np.searchsorted(ids, refs[here])
        known = ids[np.minimum(place, len(ids) - 1)] == refs[here]
        source[here[known]] = place[known] + rows_before
        rows_before += len(ids)
        vectors.append(found)
    return (concatenate(vectors).take(source) if vectors else no_time_points(len(rows))), paths


def _database_path(run: AISBenchRun, name: str) -> Path:
    if not _DB_NAME.fullmatch(name):
        raise ResultUnreadable(run.details.name, f"db_name {short_error(name)!r} is not a database file name")
    for path in (run.directory / "db_data" / name, run.directory / "tmp" / f"tmp_{name}"):
        if path.is_file():
            return path
    raise ResultUnreadable(f"db_data/{name}", "missing: the chunk times of its requests were not collected")


def _checked(path: Path, decoded: Callable[[Path], Decoded]) -> Decoded:
    field = f"{path.parent.name}/{path.name}"
    try:
        ids, points = decoded(path)
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise ResultUnreadable(field, f"damaged: {error}") from None
    if len(ids) == 0:
        raise ResultUnreadable(field, "holds no time points: it was not committed")
    return ids, points


def _table(rows: DetailRows, points: TimePoints, file: str) -> RequestTable:
    success = rows.success
    unproved = np.flatnonzero(success & (points.counts < 1))
    if len(unproved):
        why = f"{len(unproved)} succeeded requests without time points, the first is record {unproved[0] + 1}"
        raise ResultUnreadable(f"{file}:time_points", why)
    offsets = offsets_of(points.counts)
    streamed = np.flatnonzero(points.counts > 0)
    ttft, e2e = (np.full(len(rows), np.nan) for _ in range(2))
    ttft[streamed] = points.chunks[offsets[streamed]] - points.send[streamed]
    e2e[streamed] = points.chunks[offsets[streamed + 1] - 1] - points.send[streamed]
    retried = np.zeros(len(rows), dtype=np.bool_)
    retried[list(rows.errors)] = True  # a success with an error text is one that was sent again
    return RequestTable(
        request_id=rows.uuid,
        start_s=points.send,
        ttft_s=ttft,
        e2e_s=e2e,
        input_tokens=rows.input_tokens,
        output_tokens=rows.output_tokens,
        cached_tokens=np.full(len(rows), MISSING, dtype=np.int64),
        success=success,
        retried=retried & success,
        replacement_characters=rows.replacement_characters,
        chunk_times_s=points.chunks,
        chunk_offsets=offsets,
        errors=rows.errors,
    )


def _version(run: AISBenchRun) -> str | None:
    """A version noted beside the results by whoever installed the client; AISBench writes none into them."""
    for note in (run.directory / "client_version.txt", run.directory.parents[2] / "client_version.txt"):
        if note.is_file():
            return short_error(note.read_text(encoding="utf-8", errors="replace")) or None
    return None


def _file_sha256(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_HASH_BYTES):
            digest.update(piece)
    return digest.digest()
