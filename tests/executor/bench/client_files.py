"""Result files of both clients, written from plain traces by formulas of this module's own, and where samples lie."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples"
FIELD = SAMPLES / "field"
AISBENCH = SAMPLES / "aisbench"

TIMESTAMP = "20260101_000000"


def sample(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"stored sample {path.name} is not on this machine ({path.parent})")
    return path


def field_expectations(part: str) -> dict[str, Any]:
    """`expected.json` of the field samples, for one folder of them; empty where the samples are absent."""
    path = FIELD / "expected.json"
    if not path.is_file():
        return {}
    every = json.loads(path.read_text())
    return {name: case for name, case in every.items() if name.startswith(f"{part}/")}


Trace = Sequence[Sequence[float]]  # per request: send, chunk, chunk, …


def closed_loop(requests: int = 24, slots: int = 4, tokens: int = 8) -> list[list[float]]:
    """Waves of equal requests: 0.2 s to the first token, 0.05 s a token."""
    traces = []
    for i in range(requests):
        send = 0.003 * (i % slots) + (i // slots) * (0.2 + 0.05 * tokens)
        traces.append([send, *(send + 0.2 + 0.05 * t for t in range(tokens))])
    return traces


def detail_row(index: int, tokens: int, **changes: Any) -> dict[str, Any]:
    row = {
        "data_abbr": "load",
        "id": index,
        "success": True,
        "error_info": "",
        "time_points": {"__db_ref__": index + 1},
        "input_tokens": 100,
        "output_tokens": tokens,
        "extra_perf_data": {},
        "extra_details_data": {},
        "input": [{"role": "user", "content": "private words"}],
        "uuid": f"{index:032x}",
        "turn_id": 0,
        "data_id": index,
        "prediction": "w " * tokens,
        "db_name": "0badcafe.db",
    }
    return row | changes


def npy(points: Sequence[float]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(points, dtype=np.float64), allow_pickle=False)
    return buffer.getvalue()


def write_database(path: Path, blobs: Sequence[bytes], first_id: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE numpy_store (id INTEGER PRIMARY KEY AUTOINCREMENT, arr_blob BLOB)")
        rows = [(first_id + i, blob) for i, blob in enumerate(blobs)]
        database.executemany("INSERT INTO numpy_store VALUES (?, ?)", rows)
        database.commit()


def write_aisbench(
    folder: Path,
    traces: Trace | None = None,
    *,
    tokens: int = 8,
    slots: int = 4,
    rows: Sequence[dict[str, Any]] | None = None,
) -> Path:
    """One whole-run result in AISBench's layout. Returns the `performances/<model>` folder."""
    traces = closed_loop(tokens=tokens, slots=slots) if traces is None else traces
    rows = [detail_row(i, tokens) for i in range(len(traces))] if rows is None else rows
    directory = folder / "out" / TIMESTAMP / "performances" / "trial-1"
    write_database(directory / "db_data" / "0badcafe.db", [npy(trace) for trace in traces])
    (directory / "load_details.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ok = [(trace, row) for trace, row in zip(traces, rows, strict=False) if row.get("success") is True]
    write_summary(directory, ok, failed=len(rows) - len(ok), slots=slots)
    return directory


def write_summary(
    directory: Path, ok: Sequence[tuple[Sequence[float], dict[str, Any]]], failed: int, slots: int
) -> None:
    """`load.json` and `load.csv` by AISBench's own definitions of stage `total`."""
    duration = max(t[-1] for t, _ in ok) - min(t[0] for t, _ in ok)
    outputs = sum(row["output_tokens"] for _, row in ok)
    inputs = sum(row["input_tokens"] for _, row in ok)
    common = {
        "Benchmark Duration": f"{round(duration * 1000, 4)} ms",
        "Total Requests": len(ok) + failed,
        "Failed Requests": failed,
        "Success Requests": len(ok),
        "Concurrency": round(sum(t[-1] - t[0] for t, _ in ok) / duration, 4),
        "Max Concurrency": slots,
        "Request Throughput": f"{round(len(ok) / duration, 4)} req/s",
        "Total Input Tokens": inputs,
        "Total Generated Tokens": outputs,
        "Input Token Throughput": f"{round(inputs / duration, 4)} token/s",
        "Output Token Throughput": f"{round(outputs / duration, 4)} token/s",
        "Total Token Throughput": f"{round((inputs + outputs) / duration, 4)} token/s",
    }
    document = {name: {"total": value} for name, value in common.items()}
    (directory / "load.json").write_text(json.dumps(document, indent=4))
    rows = {
        "E2EL": [(t[-1] - t[0]) * 1000 for t, _ in ok],
        "TTFT": [(t[1] - t[0]) * 1000 for t, _ in ok],
        "TPOT": [(t[-1] - t[1]) / max(row["output_tokens"] - 1, 1) * 1000 for t, row in ok],
    }
    decoded = sum(len(t) > 2 for t, _ in ok)  # requests with a gap between chunks
    lines = ["Performance Parameters,Stage,Average,Min,Max,Median,P90,N"]
    for name, values in rows.items():
        cells = [np.mean(values), min(values), max(values), np.median(values), np.percentile(values, 90)]
        lines.append(
            f"{name},total,"
            + ",".join(f"{round(float(c), 1)} ms" for c in cells)
            + f",{decoded if name == 'TPOT' else len(ok)}"
        )
    (directory / "load.csv").write_text("\n".join(lines) + "\n")


def bench_record(
    requests: int = 12, tokens: int = 8, tag: str | None = "trial-1", cached: int | None = None
) -> dict[str, Any]:
    """One bench_serving record with details, of `requests` equal answers, three at a time."""
    gaps = [0.05] * (tokens - 1)
    ttfts, itls = [0.2] * requests, [gaps] * requests
    e2e_s = 0.2 + sum(gaps)
    duration = e2e_s * requests / 3
    record: dict[str, Any] = {
        "tag": tag,
        "backend": "sglang-oai-chat",
        "dataset_name": "custom",
        "request_rate": float("inf"),
        "max_concurrency": 3,
        "server_info": {"version": "0.5.23"},
        "duration": duration,
        "completed": requests,
        "total_input_tokens": 100 * requests,
        "total_output_tokens": tokens * requests,
        "total_output_tokens_retokenized": tokens * requests,
        "request_throughput": requests / duration,
        "output_throughput": tokens * requests / duration,
        "concurrency": e2e_s * requests / duration,
        "accept_length": None,
    }
    for name, value in {"e2e_latency": e2e_s, "ttft": 0.2, "tpot": 0.05, "itl": 0.05}.items():
        record |= {f"{stat}_{name}_ms": value * 1000 for stat in ("mean", "median", "p90", "p99")}
        record[f"std_{name}_ms"] = 0.0
    record |= {
        "input_lens": [100] * requests,
        "output_lens": [tokens] * requests,
        "ttfts": ttfts,
        "itls": itls,
        "generated_texts": ["w " * tokens] * requests,
        "errors": [""] * requests,
    }
    if cached is not None:
        record["cached_tokens"] = [cached] * requests
    return record


def write_bench(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "bench.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
