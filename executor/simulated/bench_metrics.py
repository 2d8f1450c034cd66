"""The record and the console of sglang.bench_serving 0.5.23, computed by its formulas."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from executor.simulated.client_records import ClientRecord
from executor.simulated.model.trace import Floats

_DONE_GAP_S = 2e-5  # from the last chunk to the [DONE] line
WIDTH = 50


@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """What a run produced, in dataset order."""

    arguments: argparse.Namespace
    records: Sequence[ClientRecord]
    client_inputs: Sequence[int]  # tokens of each prompt as the client's dataset counted them
    duration: float
    server_info: Any
    accept_length: float | None
    splits_chunks: bool  # one ITL entry per token instead of one per chunk

    @property
    def successes(self) -> list[ClientRecord]:
        return [record for record in self.records if record.is_success]


def gaps(record: ClientRecord, splits_chunks: bool) -> list[float]:
    """The client's ITL entries of one request."""
    if len(record.times) < 2:
        return []
    between = np.diff(record.times)
    if not splits_chunks:
        return [float(gap) for gap in between]
    counts = record.tokens[1:]
    kept = counts > 0
    return [float(gap) for gap in np.repeat(between[kept] / counts[kept], counts[kept])]


def ttft(record: ClientRecord) -> float:
    return float(record.times[0]) - record.sent


def latency(record: ClientRecord) -> float:
    return record.end + _DONE_GAP_S - record.sent


def metrics(run: BenchRun) -> dict[str, Any]:
    """The figures of the JSONL line, from `duration` to `max_concurrent_requests`."""
    done = run.successes
    indexes = [record.index for record in done]
    inputs = sum(run.client_inputs[index] for index in indexes)
    outputs = sum(record.output_tokens for record in done)
    e2e = np.array([latency(record) for record in done])
    first = np.array([ttft(record) for record in done])
    itls = [gap for record in done for gap in gaps(record, run.splits_chunks)]
    counts = np.array([record.output_tokens for record in done])
    several = counts > 1
    tpot = (e2e - first)[several] / (counts[several] - 1)
    duration = run.duration
    figures: dict[str, Any] = {
        "duration": duration,
        "completed": len(done),
        "total_input_tokens": inputs,
        "total_input_text_tokens": inputs,
        "total_input_vision_tokens": 0,
        "total_output_tokens": outputs,
        "total_output_tokens_retokenized": sum(len(record.text().split()) for record in done),
        "request_throughput": len(done) / duration,
        "input_throughput": inputs / duration,
        "output_throughput": outputs / duration,
        "total_throughput": (inputs + outputs) / duration,
    }
    spreads = {"e2e_latency": e2e, "ttft": first, "tpot": tpot, "itl": np.array(itls)}
    for name, values in spreads.items():
        figures |= _spread(name, values * 1000.0)
    return figures | {
        "concurrency": float(e2e.sum()) / duration,
        "accept_length": run.accept_length,
        "max_output_tokens_per_s": _peak_tokens(done),
        "max_concurrent_requests": _peak_requests(done),
    }


def _spread(name: str, values: Floats) -> dict[str, float]:
    if len(values) == 0:
        values = np.zeros(1)
    p90, p95, p99 = np.percentile(values, (90, 95, 99))
    return {
        f"mean_{name}_ms": float(values.mean()),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(values.std()),
        f"p90_{name}_ms": float(p90),
        f"p95_{name}_ms": float(p95),
        f"p99_{name}_ms": float(p99),
    }


def _peak_tokens(records: Sequence[ClientRecord]) -> float:
    """Most chunks' tokens in a one-second bucket since the first send."""
    start = min(record.sent for record in records)
    times = np.concatenate([record.times for record in records]) - start
    weights = np.concatenate([record.tokens for record in records])
    return float(np.bincount(times.astype(np.int64), weights=weights).max())


def _peak_requests(records: Sequence[ClientRecord]) -> int:
    """Requests that touch a one-second bucket: counts more than were ever in flight at once."""
    start = min(record.sent for record in records)
    last = int(max(record.end for record in records) - start)
    touched = np.zeros(last + 2)
    for record in records:
        touched[int(record.sent - start)] += 1
        touched[int(record.end - start) + 1] -= 1
    return int(np.cumsum(touched).max())


def cache_report(run: BenchRun) -> dict[str, Any]:
    done = run.successes
    prompt = sum(record.input_tokens for record in done)
    cached = sum(record.cached_tokens for record in done)
    return {
        "total_prompt_tokens": prompt,
        "total_cached_tokens": cached,
        "cache_hit_rate_pct": round(100.0 * cached / max(1, prompt), 2),
        "device_cached_tokens": cached,
        "host_cached_tokens": 0,
        "storage_cached_tokens": 0,
        "storage_backend": None,
    }


def result_line(run: BenchRun) -> dict[str, Any]:
    """The whole JSONL line, keys in the client's order."""
    arguments = run.arguments
    line: dict[str, Any] = {"tag": arguments.tag}
    for name in (
        "backend",
        "dataset_name",
        "request_rate",
        "max_concurrency",
        "sharegpt_output_len",
        "random_input_len",
        "random_output_len",
        "random_range_ratio",
    ):
        line[name] = getattr(arguments, name)
    line["server_info"] = run.server_info
    line |= metrics(run)
    if arguments.cache_report:
        line["cache_report"] = cache_report(run)
    if arguments.output_details:
        line |= _details(run)
    return line


def _details(run: BenchRun) -> dict[str, Any]:
    ordered = sorted(run.records, key=lambda record: record.index)
    details: dict[str, Any] = {
        "input_lens": [record.input_tokens for record in ordered],
        "output_lens": [record.output_tokens if record.is_success else 0 for record in ordered],
        "ttfts": [ttft(record) if record.is_success else 0.0 for record in ordered],
        "itls": [gaps(record, run.splits_chunks) if record.is_success else [] for record in ordered],
        "generated_texts": [record.text() if record.is_success else "" for record in ordered],
        "errors": [record.error for record in ordered],
    }
    if run.arguments.cache_report:
        details["cached_tokens"] = [record.cached_tokens for record in ordered]
        details["cached_tokens_details"] = [
            {"device": record.cached_tokens, "host": 0} if record.cached_tokens else None for record in ordered
        ]
    return details


def console(run: BenchRun, line: dict[str, Any]) -> str:
    """The summary table of the console."""
    arguments = run.arguments
    rows = [
        "{s:{c}^{n}}".format(s=" Serving Benchmark Result ", n=WIDTH, c="="),
        _row("Backend:", arguments.backend),
        _row("Traffic request rate:", arguments.request_rate),
        _row("Max request concurrency:", arguments.max_concurrency or "not set"),
        _row("Successful requests:", line["completed"]),
        _row("Benchmark duration (s):", line["duration"]),
        _row("Total input tokens:", line["total_input_tokens"]),
        _row("Total input text tokens:", line["total_input_text_tokens"]),
        _row("Total generated tokens:", line["total_output_tokens"]),
        _row("Total generated tokens (retokenized):", line["total_output_tokens_retokenized"]),
        _row("Request throughput (req/s):", line["request_throughput"]),
        _row("Input token throughput (tok/s):", line["input_throughput"]),
        _row("Output token throughput (tok/s):", line["output_throughput"]),
        _row("Peak output token throughput (tok/s):", line["max_output_tokens_per_s"]),
        _row("Peak concurrent requests:", line["max_concurrent_requests"]),
        _row("Total token throughput (tok/s):", line["total_throughput"]),
        _row("Concurrency:", line["concurrency"]),
    ]
    if run.accept_length:
        rows.append(_row("Accept length:", run.accept_length))
    for title, name, short in _SECTIONS:
        rows += _section(title, name, short, line)
    itls = [gap for record in run.successes for gap in gaps(record, run.splits_chunks)]
    rows.append(_row("Max ITL (ms):", 1000.0 * max(itls, default=0.0)))
    if arguments.cache_report:
        rows += _cache_rows(line["cache_report"])
    return "\n".join([*rows, "=" * WIDTH])


_SECTIONS = (
    ("End-to-End Latency", "e2e_latency", "E2E Latency"),
    ("Time to First Token", "ttft", "TTFT"),
    ("Time per Output Token (excl. 1st token)", "tpot", "TPOT"),
    ("Inter-Token Latency", "itl", "ITL"),
)


def _row(label: str, value: object) -> str:
    shown = f"{value:.2f}" if isinstance(value, float) and np.isfinite(value) and label[:7] != "Traffic" else str(value)
    return f"{label:<40} {shown:<10}"


def _section(title: str, name: str, short: str, line: dict[str, Any]) -> list[str]:
    labels = {"Mean": "mean", "Median": "median", "P90": "p90", "P95": "p95", "P99": "p99"}
    rows = [_row(f"{label} {short} (ms):", line[f"{key}_{name}_ms"]) for label, key in labels.items()]
    return [f"{title:-^{WIDTH}}", *rows]


def _cache_rows(report: dict[str, Any]) -> list[str]:
    cached = report["total_cached_tokens"]
    rows = [
        f"{'Cache Hit Details':-^{WIDTH}}",
        _row("Total prompt tokens:", report["total_prompt_tokens"]),
        _row("Total cached tokens:", cached),
    ]
    if cached:
        rows += [_row("  Device:", cached), _row("  Host:", 0)]
    rows.append(_row("Cache hit rate:", f"{report['cache_hit_rate_pct']:.1f}%"))
    if cached:
        rows += [_row("  Device:", "100.0%"), _row("  Host:", "0.0%")]
    return rows
