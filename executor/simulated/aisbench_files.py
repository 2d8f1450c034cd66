"""The files of one AISBench run: details, database of arrival times, failed rows. Written as the tool writes them."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from executor.simulated.client_records import ClientRecord
from executor.simulated.model.trace import Floats

_TABLE = "CREATE TABLE numpy_store (id INTEGER PRIMARY KEY AUTOINCREMENT, arr_blob BLOB NOT NULL)"
_ROLE_GAP_S, _USAGE_GAP_S = 2e-6, 1.5e-6  # the role chunk comes with the first token, the usage right after the last


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """Where one run of one model on one dataset keeps its files."""

    root: Path  # <work dir>/<timestamp>
    model: str
    dataset: str

    @property
    def performance(self) -> Path:
        return self.root / "performances" / self.model

    @property
    def details(self) -> Path:
        return self.performance / f"{self.dataset}_details.jsonl"

    @property
    def log(self) -> Path:
        return self.root / "logs" / "infer" / self.model / f"{self.dataset}.out"


def time_points(record: ClientRecord, origin: float) -> Floats:
    """`[send, role chunk, chunk …, finish, usage]` in seconds of the monotonic clock."""
    if not record.is_success or len(record.times) == 0:
        return np.asarray(origin + np.array([record.sent, *record.times]), dtype=np.float64)
    first, last = record.times[0], record.times[-1]
    arrivals = np.concatenate(
        ([record.sent, first - _ROLE_GAP_S], record.times, [last + _USAGE_GAP_S, last + 2 * _USAGE_GAP_S])
    )
    return np.asarray(origin + arrivals, dtype=np.float64)


def write_run(folder: RunFolder, records: Sequence[ClientRecord], inputs: Sequence[str], *, is_chat: bool) -> None:
    """Details, database and failed rows of a run, in order of completion."""
    origin = time.perf_counter()
    identity = Random(f"{folder.root}{time.time_ns()}")
    name = f"{identity.getrandbits(32):08x}"
    (folder.performance / "db_data").mkdir(parents=True, exist_ok=True)
    write_database(folder.performance / "db_data" / f"{name}.db", [time_points(r, origin) for r in records])
    rows = [
        detail_row(folder.dataset, record, number, f"{name}.db", inputs[record.index], is_chat, identity)
        for number, record in enumerate(records, start=1)
    ]
    write_lines(folder.details, rows)
    failures = [row for row in rows if not row["success"]]
    if failures:
        brief = [
            {
                "data_abbr": row["data_abbr"],
                "id": row["id"],
                "input": inputs[row["id"]],
                "error_info": row["error_info"],
            }
            for row in failures
        ]
        write_lines(folder.performance / f"{folder.dataset}_failed.jsonl", brief)
        (folder.performance / "tmp").mkdir(exist_ok=True)
        write_lines(folder.performance / "tmp" / f"tmp_{name}.jsonl", rows)


def write_database(path: Path, vectors: Sequence[Floats]) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(_TABLE)
        connection.executemany("INSERT INTO numpy_store (arr_blob) VALUES (?)", [(_blob(v),) for v in vectors])
    connection.close()


def _blob(vector: Floats) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, vector)
    return buffer.getvalue()


def detail_row(
    dataset: str, record: ClientRecord, reference: int, database: str, text: str, is_chat: bool, identity: Random
) -> dict[str, Any]:
    """One row of `*_details.jsonl`, fields in the tool's order."""
    success = record.is_success
    return {
        "data_abbr": dataset,
        "id": record.index,
        "success": success,
        "error_info": record.error or record.retried,
        "time_points": {"__db_ref__": reference},
        "input_tokens": record.input_tokens if success else 0,
        "output_tokens": record.output_tokens if success else 0,
        "extra_perf_data": {},
        "extra_details_data": {},
        "input": [{"role": "user", "content": text}] if is_chat else text,
        "uuid": f"{identity.getrandbits(128):032x}",
        "turn_id": 0,
        "data_id": record.index,
        "prediction": record.text() if success else "",
        "db_name": database,
    }


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@dataclass(frozen=True, kw_only=True)
class StoredRequest:
    """One successful row of a finished run, as the summary reads it back."""

    points: Floats
    input_tokens: int
    output_tokens: int


def read_run(folder: RunFolder) -> tuple[list[StoredRequest], int]:
    """The successful requests in the order of the details file, and how many rows there are in all.

    FileNotFoundError when there are no details; ValueError when they are damaged; sqlite3.Error without a database.
    """
    vectors: dict[str, dict[int, bytes]] = {}
    stored: list[StoredRequest] = []
    total = 0
    with folder.details.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            total += 1
            if not row["success"]:
                continue
            database = str(row["db_name"])
            if database not in vectors:
                vectors[database] = _read_blobs(folder.performance / "db_data" / database)
            blob = vectors[database][int(row["time_points"]["__db_ref__"])]
            stored.append(
                StoredRequest(
                    points=np.load(io.BytesIO(blob), allow_pickle=False),
                    input_tokens=int(row["input_tokens"]),
                    output_tokens=int(row["output_tokens"]),
                )
            )
    return stored, total


def _read_blobs(path: Path) -> dict[int, bytes]:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    blobs = dict(connection.execute("SELECT id, arr_blob FROM numpy_store").fetchall())
    connection.close()
    return blobs
