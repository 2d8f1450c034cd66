"""How fast a details file is read and summarised, against one bare orjson pass over the same file.

`python -m executor.bench.speed` prints the table; `measure_speed` returns it for `make bench`. The files are written
in AISBench's real layout, of random but consistent times, and removed afterwards.
"""

from __future__ import annotations

import io
import resource
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter

import numpy as np
import orjson

from executor.bench.aisbench_records import find_run, read_records
from experiments.requests import RequestTable
from experiments.summary import summarise_run
from experiments.validity import ServerEvidence, Workload, check_run
from experiments.windows import NativeRule, WindowFloor

SIZES = (10_000, 100_000, 1_000_000)
_CHUNKS = 16
_CONCURRENCY = 128
_SHORT_PROMPT, _FIELD_PROMPT = 40, 13_000  # words; the second is about a 16K prompt: 65 KB of a row
_FIELD_SIZE = 10_000


def measure_speed(sizes: tuple[int, ...] = SIZES, prompt_words: int = _SHORT_PROMPT) -> dict[str, dict[str, float]]:
    """Per size: seconds of the bare pass, of reading, of summarising, their ratio, and the peak memory so far."""
    figures = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="tuneloop-speed-") as folder:
            write_run(Path(folder), size, prompt_words)
            figures[str(size)] = _measure_one(Path(folder))
    return figures


def _measure_one(folder: Path) -> dict[str, float]:
    run = find_run(folder)
    cpu_before = _cpu_s()
    bare_s = _bare_pass(run.details)
    cpu_bare, began = _cpu_s() - cpu_before, perf_counter()
    table = read_records(run).table
    read_s = perf_counter() - began
    summarise_s = _summarise(table)
    cpu_ours = _cpu_s() - cpu_before - cpu_bare
    return {
        "requests": len(table),
        "file_mb": round(run.details.stat().st_size / 1e6, 1),
        "bare_orjson_s": round(bare_s, 3),
        "read_s": round(read_s, 3),
        "summarise_s": round(summarise_s, 3),
        "ratio": round((read_s + summarise_s) / bare_s, 2),
        # Of all threads and processes, hashing and chunk databases included: independent of what else runs.
        "cpu_ratio": round(cpu_ours / cpu_bare, 2),
        "us_per_request": round((read_s + summarise_s) / len(table) * 1e6, 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _bare_pass(details: Path) -> float:
    began = perf_counter()
    with details.open("rb") as file:
        for line in file:
            orjson.loads(line)
    return perf_counter() - began


def _summarise(table: RequestTable) -> float:
    began = perf_counter()
    summarise_run(table, concurrency=_CONCURRENCY, rule=NativeRule.AISBENCH_2026_08, cards=16, floor=WindowFloor())
    plan = Workload(requests=len(table), concurrency=_CONCURRENCY, output_tokens=_CHUNKS)
    check_run(table, plan, None, ServerEvidence())
    return perf_counter() - began


def write_run(folder: Path, size: int, prompt_words: int = _SHORT_PROMPT) -> None:
    """A closed loop of `size` requests in the layout of one AISBench run."""
    text = "word " * prompt_words
    directory = folder / "out" / "20260101_000000" / "performances" / "model"
    (directory / "db_data").mkdir(parents=True)
    rng = np.random.default_rng(42)
    with (
        (directory / "load_details.jsonl").open("wb") as rows,
        closing(sqlite3.connect(directory / "db_data" / "0badcafe.db")) as database,
    ):
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("CREATE TABLE numpy_store (id INTEGER PRIMARY KEY AUTOINCREMENT, arr_blob BLOB)")
        for first in range(0, size, 10_000):
            count = min(10_000, size - first)
            starts = (first + np.arange(count)) // _CONCURRENCY * 1.0
            steps = rng.uniform(0.01, 0.05, (count, _CHUNKS))
            points = starts[:, None] + np.concatenate((np.zeros((count, 1)), np.cumsum(steps, axis=1)), axis=1)
            database.executemany("INSERT INTO numpy_store (arr_blob) VALUES (?)", ((_npy(p),) for p in points))
            rows.writelines(_row(first + i, text) for i in range(count))
        database.commit()


def _npy(points: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, points, allow_pickle=False)
    return buffer.getvalue()


def _row(index: int, prompt: str) -> bytes:
    return orjson.dumps(
        {
            "data_abbr": "load",
            "id": index,
            "success": True,
            "error_info": "",
            "time_points": {"__db_ref__": index + 1},
            "input_tokens": 40,
            "output_tokens": _CHUNKS,
            "extra_perf_data": {},
            "extra_details_data": {},
            "input": [{"role": "user", "content": prompt}],
            "uuid": f"{index:032x}",
            "turn_id": 0,
            "data_id": index,
            "prediction": prompt,
            "db_name": "0badcafe.db",
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


def main() -> int:
    short = [(f"{size:>9} requests", figures) for size, figures in measure_speed().items()]
    field = [(f"{size:>9} of 16K", figures) for size, figures in measure_speed((_FIELD_SIZE,), _FIELD_PROMPT).items()]
    for name, figures in [*short, *field]:
        sys.stdout.write(f"{name}: " + ", ".join(f"{k} {v:g}" for k, v in figures.items()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
