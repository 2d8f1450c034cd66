"""bench_serving's result records in every dialect met: one per line, appended, pretty-printed, seconds for
ms.

Keys differ by version, so they are read by name with None for the absent. A statistic that is NaN, or 0.00
where nothing was measured, is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from executor.bench.json_lines import finite, parse_json
from executor.bench.problem import ResultUnreadable

Scalar = int | float | str | None

_STATISTIC = re.compile(r"(mean|median|std|p\d\d|max)_(e2e_latency|e2el|ttft|tpot|itl)(_ms)?")
_TEXTS = ("tag", "backend", "dataset_name", "protocol")
_NUMBERS = (
    "request_rate",
    "max_concurrency",
    "num_prompts",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "total_output_tokens_retokenized",
    "request_throughput",
    "input_throughput",
    "output_throughput",
    "total_throughput",
    "concurrency",
    "accept_length",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
)
_ALIASES = {"total_throughput": "total_token_throughput"}  # of a fork


@dataclass(frozen=True, kw_only=True)
class BenchRecord:
    """One run. `summary` has canonical names and milliseconds; `details` are the raw per-request arrays."""

    summary: Mapping[str, Scalar]
    details: Mapping[str, object]
    server_version: str | None

    def number(self, name: str) -> float | None:
        return finite(self.summary.get(name))


@dataclass(frozen=True, kw_only=True)
class RecordFile:
    """The records of one file, oldest first, and what was wrong with the lines that are none."""

    name: str
    records: tuple[BenchRecord, ...]
    damage: ResultUnreadable | None


def read_bench_records(path: Path) -> RecordFile:
    try:
        documents, damage = _parse_documents(path)
    except OSError as error:
        raise ResultUnreadable(path.name, f"cannot be read: {error.strerror}") from None
    # A sweep script may have gathered its records into one array.
    flat = [d for document in documents for d in (document if isinstance(document, list) else [document])]
    records = tuple(parse_record(d) for d in flat if isinstance(d, dict) and is_bench_record(d))
    if damage is None and not records:
        what = "is not a bench_serving record" if documents else "holds no record"
        damage = ResultUnreadable(path.name, what)
    return RecordFile(name=path.name, records=records, damage=damage)


def select_record(file: RecordFile, experiment_id: str | None) -> BenchRecord:
    """The record of this run: by its tag where one is known, else the last, which is the one appended by
    it.
    """
    if experiment_id is not None:
        tagged = [record for record in file.records if record.summary.get("tag") == experiment_id]
        if len(tagged) > 1:
            detail = f"{len(tagged)} records carry the tag {experiment_id}: was the load sent twice?"
            raise ResultUnreadable(file.name, detail)
        if tagged:
            return tagged[0]
    if file.damage is not None:
        raise file.damage
    if experiment_id is not None:
        raise ResultUnreadable(file.name, f"no record carries the tag {experiment_id}")
    return file.records[-1]


def is_bench_record(document: Mapping[str, object]) -> bool:
    return "completed" in document and "duration" in document


def parse_record(document: Mapping[str, object]) -> BenchRecord:
    """Canonical names and milliseconds; NaN, and 0 where nothing was measured, become None."""
    summary: dict[str, Scalar] = dict.fromkeys(_NUMBERS)
    summary |= {name: str(document[name]) for name in _TEXTS if isinstance(document.get(name), str)}
    summary |= {name: _number(document.get(name, document.get(_ALIASES.get(name, "")))) for name in _NUMBERS}
    if document.get("request_rate") in ("inf", float("inf")):
        summary["request_rate"] = float("inf")
    for key, value in document.items():
        found = _STATISTIC.fullmatch(key)
        if found is not None:
            summary[statistic_name(found[1], found[2])] = measured(value, 1.0 if found[3] else 1000.0)
    summary["accept_length"] = measured(document.get("accept_length"))
    if not summary["completed"]:
        summary |= {name: None for name in summary if _STATISTIC.fullmatch(name)}
    return BenchRecord(summary=summary, details=document, server_version=_server_version(document))


def statistic_name(statistic: str, metric: str) -> str:
    metric = "e2e_latency" if metric == "e2el" else metric
    return f"{statistic}_{metric}_ms"


def measured(value: object, factor: float = 1.0) -> float | None:
    """A latency, ratio or length that cannot be 0: a 0.00 in its place says that nothing was measured."""
    number = finite(value)
    return number * factor if number else None


def _number(value: object) -> int | float | None:
    number = finite(value)
    return value if isinstance(value, int) and number is not None else number


def _server_version(document: Mapping[str, object]) -> str | None:
    server = document.get("server_info")
    version = server.get("version") if isinstance(server, dict) else None
    return version if isinstance(version, str) else None


def _parse_documents(path: Path) -> tuple[list[object], ResultUnreadable | None]:
    """Line by line; a file whose first line is no document by itself is one pretty-printed document."""
    documents: list[object] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                if line.strip():
                    documents.append(parse_json(line))
            except ValueError as error:
                if not documents and (whole := _parse_whole(path)) is not None:
                    return [whole], None
                what = "damaged" if line.endswith(b"\n") else "cut off: the writer was stopped"
                return documents, ResultUnreadable(f"{path.name}:{number}", f"{what} ({error})")
    return documents, None


def _parse_whole(path: Path) -> object | None:
    try:
        document: object = parse_json(path.read_bytes())
    except ValueError:
        return None
    return document
