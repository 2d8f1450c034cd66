"""How fast a client's details are read and summarised, against one bare orjson pass over the same file.

`python -m tests.bench.reading` prints the table; `measure` returns it for `make bench`. The files have the clients'
real layouts, hold random but consistent times, and are removed afterwards.
"""

from __future__ import annotations

import io
import os
import resource
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import orjson

from executor.bench.aisbench_records import find_run, read_records
from executor.bench.bench_records import read_bench_records, select_record
from executor.bench.bench_serving_details import read_table
from experiments.requests import RequestTable
from experiments.summary import summarise_run
from experiments.validity import ServerEvidence, Workload, check_run
from experiments.windows import NativeRule, WindowFloor

SIZES = (10_000, 100_000, 1_000_000)
_CHUNKS = 16
_CONCURRENCY = 128
_SHORT_PROMPT, _FIELD_PROMPT = 40, 13_000  # words; the second is about a 16K prompt: 65 KB of a row
_FIELD_SIZE = 10_000

Figures = dict[str, dict[str, float]]


def measure() -> dict[str, Figures]:
    """AISBench with short rows and with rows of the field's size, and bench_serving."""
    return {
        "aisbench": measure_aisbench(),
        "aisbench_16k": measure_aisbench((_FIELD_SIZE,), _FIELD_PROMPT),
        "bench_serving": measure_bench_serving(),
    }


def measure_aisbench(sizes: tuple[int, ...] = SIZES, prompt_words: int = _SHORT_PROMPT) -> Figures:
    """Per size, see `_figures`."""
    write = partial(write_run, prompt_words=prompt_words)
    return {str(size): _in_folder(write, size, _details, _read_aisbench) for size in sizes}


def measure_bench_serving(sizes: tuple[int, ...] = SIZES) -> Figures:
    return {str(size): _in_folder(write_record, size, _record, _read_bench_serving) for size in sizes}


def _in_folder(
    write: Callable[[Path, int], None],
    size: int,
    file_of: Callable[[Path], Path],
    read: Callable[[Path], RequestTable],
) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="tuneloop-reading-") as name:
        folder = Path(name)
        _alone(write, folder, size)
        os.sync()  # nothing is still being written while the clock runs
        file = file_of(folder)
        return _figures(size, file, _best(_bare_pass, file), _best(_ours, read, folder))


def _figures(size: int, file: Path, bare: dict[str, float], ours: dict[str, float]) -> dict[str, float]:
    return {
        "file_mb": round(file.stat().st_size / 1e6, 1),
        "bare_orjson_s": round(bare["s"], 3),
        "read_s": round(ours["read_s"], 3),
        "summarise_s": round(ours["s"] - ours["read_s"], 3),
        "ratio": round(ours["s"] / bare["s"], 2),
        # Of all threads and processes, hashing and chunk databases included: independent of what else runs.
        "cpu_ratio": round(ours["cpu_s"] / bare["cpu_s"], 2),
        "us_per_request": round(ours["s"] / size * 1e6, 2),
        "peak_rss_mb": round(ours["peak_rss_mb"], 1),
    }


def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """In a process of its own, so that neither memory nor garbage of another measurement is in the figure."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _best(function: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Of three: the one that was disturbed least."""
    return min((_alone(function, *arguments) for _ in range(3)), key=lambda figures: figures["s"])


def _bare_pass(file: Path) -> dict[str, float]:
    began, cpu_before = perf_counter(), _cpu_s()
    with file.open("rb") as lines:
        for line in lines:
            orjson.loads(line)
    return {"s": perf_counter() - began, "cpu_s": _cpu_s() - cpu_before}


def _ours(read: Callable[[Path], RequestTable], folder: Path) -> dict[str, float]:
    began, cpu_before = perf_counter(), _cpu_s()
    table = read(folder)
    read_s = perf_counter() - began
    summarise_run(table, concurrency=_CONCURRENCY, rule=NativeRule.AISBENCH_2026_08, cards=16, floor=WindowFloor())
    plan = Workload(requests=len(table), concurrency=_CONCURRENCY, output_tokens=_CHUNKS)
    check_run(table, plan, None, ServerEvidence())
    seconds, cpu_s = perf_counter() - began, _cpu_s() - cpu_before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"s": seconds, "cpu_s": cpu_s, "read_s": read_s, "peak_rss_mb": peak}


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _read_aisbench(folder: Path) -> RequestTable:
    return read_records(find_run(folder)).table


def _details(folder: Path) -> Path:
    return find_run(folder).details


def _read_bench_serving(folder: Path) -> RequestTable:
    file = _record(folder)
    return read_table(select_record(read_bench_records(file), None), file.name)


def _record(folder: Path) -> Path:
    return folder / "result.jsonl"


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


def write_record(folder: Path, size: int) -> None:
    """One record of bench_serving with its details: a single line of arrays."""
    rng = np.random.default_rng(42)
    record = {
        "backend": "sglang",
        "duration": size / _CONCURRENCY,
        "completed": size,
        "input_lens": [40] * size,
        "output_lens": [_CHUNKS] * size,
        "ttfts": rng.uniform(0.1, 0.2, size).tolist(),
        "itls": rng.uniform(0.01, 0.05, (size, _CHUNKS - 1)).tolist(),
        "generated_texts": ["word " * _SHORT_PROMPT] * size,
        "errors": [""] * size,
    }
    _record(folder).write_bytes(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def main() -> int:
    for client, sizes in measure().items():
        for size, figures in sizes.items():
            shown = ", ".join(f"{name} {figure:g}" for name, figure in figures.items())
            sys.stdout.write(f"{client} {size:>9} requests: {shown}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
