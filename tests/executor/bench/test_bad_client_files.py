"""More than 300 damaged, hostile or foreign result files: each is refused by name, at once, without a traceback."""

from __future__ import annotations

import io
import json
import random
import resource
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.bench.problem import Problem
from executor.bench.reading import read_measurement
from experiments.measurement import Measurement
from experiments.trial import FAULT_REASONS
from experiments.validity import Workload
from tests.executor.bench.client_files import (
    bench_record,
    closed_loop,
    detail_row,
    npy,
    write_aisbench,
    write_bench,
    write_database,
)

AISBENCH_PLAN = Workload(requests=24, concurrency=4, output_tokens=8)
BENCH_PLAN = Workload(requests=12, concurrency=3, output_tokens=8)
LIMIT_S = 1.0
LIMIT_MB = 200

Damage = Callable[[Path], None]
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    3.5,
    10**30,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "8",
    "8 ms",
    [],
    [1],
    {},
    {"a": 1},
    "\x00",
    "x" * 100_000,
)


def _details(folder: Path) -> Path:
    return next(folder.rglob("*_details.jsonl"))


def _database(folder: Path) -> Path:
    return next(folder.rglob("db_data/*.db"))


def _replace(find: Callable[[Path], Path], content: bytes) -> Damage:
    return lambda folder: find(folder).write_bytes(content)  # type: ignore[return-value]


def _edit(find: Callable[[Path], Path], edit: Callable[[bytes], bytes]) -> Damage:
    return lambda folder: find(folder).write_bytes(edit(find(folder).read_bytes()))  # type: ignore[return-value]


def _foreign() -> Iterator[tuple[str, bytes]]:
    """Content that is not a result of any client."""
    yield "empty", b""
    yield "blank", b"\n \n\t\n"
    yield "null", b"null\n"
    yield "list", b"[1, 2, 3]\n"
    yield "text", b"Traceback (most recent call last):\n"
    yield "html", b"<html><body>502 Bad Gateway</body></html>"
    yield "gzip", b"\x1f\x8b\x08\x00" + bytes(range(256))
    yield "utf16", '{"success": true}\n'.encode("utf-16")
    yield "bom", b'\xef\xbb\xbf{"success": true}\n'
    yield "latin1", b'{"uuid": "\xe9"}\n'
    yield "nul", b"\x00" * 4096
    yield "deep", b"[" * 200_000
    yield "deep_object", b'{"a":' * 100_000
    yield "unclosed", b'{"success": true, "uuid": "'
    yield "other_record", b'{"metrics": {}}\n'
    yield "surrogate", b'{"uuid": "\\ud800"}\n'
    yield "long_line", b'{"a": "' + b"x" * 5_000_000
    yield "huge_integer", b'{"success": ' + b"9" * 20_000 + b"}\n"


def _row_damage() -> Iterator[tuple[str, Damage]]:
    """One field of one details row holding a value of another kind, or gone."""
    fields = ("success", "time_points", "input_tokens", "output_tokens", "uuid", "prediction", "db_name", "error_info")
    for field in fields:
        for number, value in enumerate(STRANGE):
            yield f"row_{field}_{number}", _row(field, value)
        yield f"row_{field}_gone", _without(field)


def _row(field: str, value: Any) -> Damage:
    def damage(folder: Path) -> None:
        lines = _details(folder).read_text().splitlines()
        row = json.loads(lines[7])
        row[field] = value
        lines[7] = json.dumps(row)
        _details(folder).write_text("\n".join(lines) + "\n")

    return damage


def _without(field: str) -> Damage:
    def damage(folder: Path) -> None:
        lines = _details(folder).read_text().splitlines()
        row = json.loads(lines[7])
        del row[field]
        lines[7] = json.dumps(row)
        _details(folder).write_text("\n".join(lines) + "\n")

    return damage


def _byte_damage(name: str, find: Callable[[Path], Path], seed: int) -> Iterator[tuple[str, Damage]]:
    """Files that were cut, or of which single bytes or blocks went wrong."""
    rng = random.Random(seed)
    for percent in (1, 10, 33, 50, 77, 95, 99):
        yield f"{name}_cut_{percent}", _edit(find, lambda b, p=percent: b[: len(b) * p // 100])
    for number in range(8):
        place, block = rng.random(), rng.randbytes(64)
        yield f"{name}_block_{number}", _edit(find, lambda b, p=place, x=block: _overwrite(b, int(len(b) * p), x))
    for number in range(8):
        place = rng.random()
        yield f"{name}_zeros_{number}", _edit(find, lambda b, p=place: _overwrite(b, int(len(b) * p), bytes(512)))


def _overwrite(content: bytes, at: int, block: bytes) -> bytes:
    return content[:at] + block + content[at + len(block) :]


def _array(values: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(values, **options), allow_pickle=True)
    return buffer.getvalue()


def _blobs() -> Iterator[tuple[str, Any]]:
    """What may stand in the column of time points instead of a vector of seconds."""
    good = npy([0.0, 1.0, 2.0])
    yield "empty", b""
    yield "text", "not a blob"
    yield "number", 17
    yield "null", None
    yield "pickle", _array([{"a": 1}], dtype=object)
    yield "matrix", _array([[0.0, 1.0], [2.0, 3.0]])
    yield "scalar", _array(1.0)
    yield "float32", _array([0.0, 1.0, 2.0], dtype=np.float32)
    yield "big_endian", _array([0.0, 1.0, 2.0], dtype=">f8")
    yield "integers", _array([0, 1, 2])
    yield "no_points", npy([])
    yield "one_point", npy([0.0])
    yield "nan", npy([0.0, float("nan"), 2.0])
    yield "infinite", npy([0.0, 1.0, float("inf")])
    yield "backwards", npy([0.0, 2.0, 1.0])
    yield "short", good[:-4]
    yield "cut_header", good[:40]
    yield "long", good + b"\x00" * 8
    yield "header_lies", good.replace(b"(3,)", b"(9,)")
    yield "header_code", good.replace(b"'<f8'", b"abort")
    yield "header_huge", good[:8] + b"\xff\xff" + good[10:]
    yield "version_9", good[:6] + b"\x09" + good[7:]


def _with_blob(blob: Any) -> Damage:
    def damage(folder: Path) -> None:
        with sqlite3.connect(_database(folder)) as database:
            database.execute("UPDATE numpy_store SET arr_blob = ? WHERE id = 8", (blob,))
        database.close()

    return damage


def _schema(statement: str) -> Damage:
    def damage(folder: Path) -> None:
        path = _database(folder)
        path.unlink()
        with sqlite3.connect(path) as database:
            database.executescript(statement)
        database.close()

    return damage


def _schemas() -> Iterator[tuple[str, Damage]]:
    yield "no_table", _schema("CREATE TABLE other (id INTEGER);")
    yield "no_column", _schema("CREATE TABLE numpy_store (id INTEGER);")
    yield "no_rows", _schema("CREATE TABLE numpy_store (id INTEGER, arr_blob BLOB);")
    yield (
        "text_ids",
        _schema("CREATE TABLE numpy_store (id TEXT, arr_blob BLOB); INSERT INTO numpy_store VALUES ('a', x'00');"),
    )
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, x'00' AS arr_blob FROM n"
    yield "endless_view", _schema(f"CREATE VIEW numpy_store AS {endless};")
    yield (
        "directory",
        lambda folder: (_database(folder).unlink(), next(folder.rglob("db_data")).joinpath("0badcafe.db").mkdir()),
    )  # type: ignore[func-returns-value,return-value]


def _summaries() -> Iterator[tuple[str, Damage]]:
    """The client's own result files: missing, foreign, or telling another story."""
    for suffix in ("json", "csv"):
        yield f"{suffix}_gone", lambda folder, s=suffix: next(folder.rglob(f"load.{s}")).unlink()
        for name, content in _foreign():
            yield f"{suffix}_{name}", _replace(lambda f, s=suffix: next(f.rglob(f"load.{s}")), content)
    for label in ("Benchmark Duration", "Success Requests", "Concurrency", "Output Token Throughput"):
        for value in ("inf req/s", "9e99 ms", 1e308, -1, 7):
            yield f"json_{label}_{value}", _common(label, value)


def _common(label: str, value: Any) -> Damage:
    def damage(folder: Path) -> None:
        path = next(folder.rglob("load.json"))
        document = json.loads(path.read_text())
        document[label] = {"total": value}
        path.write_text(json.dumps(document))

    return damage


def _layouts() -> Iterator[tuple[str, Damage]]:
    yield "nothing", lambda folder: shutil.rmtree(folder / "out")
    yield "details_gone", lambda folder: _details(folder).unlink()
    yield "database_gone", lambda folder: _database(folder).unlink()
    yield "doubled_rows", _edit(_details, lambda b: b + b)
    yield "first_half_of_rows", _edit(_details, lambda b: b"".join(b.splitlines(keepends=True)[:12]))
    yield "no_newline_at_all", _edit(_details, lambda b: b.replace(b"\n", b" "))
    yield "second_run", lambda folder: shutil.copytree(folder / "out", folder / "again")  # type: ignore[return-value]
    yield "every_request_failed", _edit(_details, lambda b: b.replace(b'"success": true', b'"success": false'))
    yield "swapped_ids", _edit(_details, lambda b: b.replace(b'"__db_ref__": ', b'"__db_ref__": 10'))


def _aisbench_cases() -> Iterator[tuple[str, Damage]]:
    yield from ((f"details_{name}", _replace(_details, content)) for name, content in _foreign())
    yield from _row_damage()
    yield from _byte_damage("details", _details, 1)
    yield from _byte_damage("database", _database, 2)
    yield from ((f"blob_{name}", _with_blob(blob)) for name, blob in _blobs())
    yield from _schemas()
    yield from _summaries()
    yield from _layouts()


def _result(folder: Path) -> Path:
    return folder / "bench.jsonl"


def _bench_cases() -> Iterator[tuple[str, Damage]]:
    yield from ((f"bench_{name}", _replace(_result, content)) for name, content in _foreign())
    yield from _byte_damage("bench", _result, 3)
    fields = ("duration", "completed", "output_lens", "ttfts", "itls", "errors", "output_throughput", "mean_ttft_ms")
    for field in fields:
        for number, value in enumerate(STRANGE):
            yield f"bench_{field}_{number}", lambda f, n=field, v=value: write_bench(f, bench_record() | {n: v})  # type: ignore[return-value]
    for field in ("output_lens", "ttfts", "itls", "errors"):
        for number, value in enumerate(STRANGE):
            column = [*bench_record()[field][:11], value]
            yield f"bench_{field}_item_{number}", lambda f, n=field, c=column: write_bench(f, bench_record() | {n: c})  # type: ignore[return-value]


def _judge(folder: Path, client: str, plan: Workload) -> Measurement | Problem:
    return read_measurement(folder, client, plan, 16, simulated=False)  # type: ignore[arg-type]


def _run(
    cases: Iterator[tuple[str, Damage]], good: Path, client: str, plan: Workload, scratch: Path
) -> tuple[int, list[str]]:
    """How many files were refused by name, and what went wrong with any."""
    expected = _judge(good, client, plan)
    assert isinstance(expected, Measurement)
    refused, wrong = 0, []
    for name, damage in cases:
        folder = scratch / "case"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        damage(folder)
        began = time.process_time()  # other processes of the machine are not its doing
        found = _judge(folder, client, plan)
        took = time.process_time() - began
        if took > LIMIT_S:
            wrong.append(f"{name}: {took:.2f} s")
        if isinstance(found, Problem):
            refused += 1
            if found.reason not in FAULT_REASONS or not found.field or not found.detail or "\n" in found.detail:
                wrong.append(f"{name}: {found}")
        elif found.windows != expected.windows:
            wrong.append(f"{name}: read as another measurement")
    return refused, wrong


@pytest.mark.parametrize(("client", "least"), [("aisbench", 255), ("bench_serving", 220)])
def test_damaged_files_are_refused_by_name_and_at_once(tmp_path: Path, client: str, least: int) -> None:
    """A fault with a field and a finding, within a second and 200 MB; harmless damage changes no number."""
    good = tmp_path / "good"
    good.mkdir()
    if client == "aisbench":
        write_aisbench(good)
        cases, plan = _aisbench_cases(), AISBENCH_PLAN
    else:
        write_bench(good, bench_record())
        cases, plan = _bench_cases(), BENCH_PLAN
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, wrong = _run(cases, good, client, plan, tmp_path)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert wrong == []
    assert refused >= least
    assert grown < LIMIT_MB


def test_a_details_row_of_a_private_request_is_not_in_the_message(tmp_path: Path) -> None:
    """Messages go to ledgers and logs; request texts never do."""
    rows = [detail_row(i, 8) for i in range(24)]
    rows[3]["output_tokens"] = "eight"
    write_aisbench(tmp_path, closed_loop(), rows=[detail_row(i, 8) for i in range(24)])
    _details(tmp_path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = _judge(tmp_path, "aisbench", AISBENCH_PLAN)
    assert isinstance(found, Problem)
    assert "private words" not in str(found)


def test_a_database_name_never_leaves_the_result_folder(tmp_path: Path) -> None:
    """A row may name any file; only one beside it is opened."""
    directory = write_aisbench(tmp_path / "run")
    write_database(tmp_path / "outside.db", [npy(trace) for trace in closed_loop()])
    for name in ("../../../../../outside.db", str(tmp_path / "outside.db"), "a/b.db", "x.db?mode=rwc", ".db"):
        rows = [detail_row(i, 8, db_name=name) for i in range(24)]
        (directory / "load_details.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert isinstance(_judge(tmp_path / "run", "aisbench", AISBENCH_PLAN), Problem)
