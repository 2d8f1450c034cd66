"""What a client's captured terminal says. Evidence and cross-check only: numbers come from per-request
records.

A log may hold several result blocks, log prefixes of a harness, ANSI colours, progress bars drawn with
carriage returns, and hand-trimmed tables. Every field is optional; a log without a result block has no
result, never zeros.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from executor.bench.aisbench_figures import printed_stage, table_rows
from executor.bench.bench_records import Scalar, measured, statistic_name
from executor.bench.client_reading import ClientName, Figure, Printed
from executor.bench.quantities import parse_cell

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_LINE_LIMIT = 100_000
_TWO_DECIMALS = 0.0051
_HEADER = "Serving Benchmark Result"
_FOOTER = re.compile(r"(?:^|\s)={40,}\s*$")
_LABELS = {
    "backend": "backend",
    "traffic request rate": "request_rate",
    "max request concurrency": "max_concurrency",
    "maximum request concurrency": "max_concurrency",
    "request rate configured (rps)": "request_rate",
    "successful requests": "completed",
    "failed requests": "failed",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "total generated tokens (retokenized)": "total_output_tokens_retokenized",
    "request throughput (req/s)": "request_throughput",
    "input token throughput (tok/s)": "input_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "peak output token throughput (tok/s)": "max_output_tokens_per_s",
    "peak concurrent requests": "max_concurrent_requests",
    "total token throughput (tok/s)": "total_throughput",
    "concurrency": "concurrency",
    "accept length": "accept_length",
    "total prompt tokens": "total_prompt_tokens",
    "total cached tokens": "total_cached_tokens",
}
_FIELD = re.compile(
    r"(?:^|(?<=\s))(" + "|".join(re.escape(label) for label in sorted(_LABELS, key=len, reverse=True)) + r"):\s+(\S+)",
    re.IGNORECASE,
)
_LATENCY = re.compile(r"\b(Mean|Median|Std|P\d\d|Max) (E2E Latency|E2EL|TTFT|TPOT|ITL) \(ms\):\s+(\S+)", re.IGNORECASE)
_PLANNED = re.compile(r"\bnum_prompts=(\d{1,9})\b")
_BOARD = re.compile(r"\{'POST'[^{}]{0,200}\}")
_TASK = re.compile(r"Performance Results of task:?\s*\[?([^\]\s:]+/[^\]\s:]+)\]?")


@dataclass(frozen=True, kw_only=True)
class ServingBlock:
    """One result table of bench_serving. `failed` counts against the `num_prompts` that the log mentions."""

    summary: Mapping[str, Scalar]
    planned: int | None

    @property
    def failed(self) -> int | None:
        told, completed = self.summary.get("failed"), self.summary.get("completed")
        if isinstance(told, int):
            return told
        return self.planned - completed if self.planned is not None and isinstance(completed, int) else None


@dataclass(frozen=True, kw_only=True)
class AISBenchBlock:
    """The two tables that AISBench prints for one task."""

    task: str | None
    printed: Printed


def plain_lines(text: str) -> Iterator[str]:
    """Lines as a person would read them: colours removed, and of a redrawn line what stood there last."""
    for line in text.split("\n"):
        shown = _ANSI.sub("", line[:_LINE_LIMIT]).rstrip("\r")
        yield shown.rsplit("\r", 1)[-1].rstrip()


def parse_serving_blocks(text: str) -> tuple[ServingBlock, ...]:
    """Every result table, oldest first. The last one belongs to the last run; the first may be a cold one."""
    blocks: list[ServingBlock] = []
    planned: int | None = None
    fields: dict[str, Scalar] | None = None
    for line in plain_lines(text):
        found = _PLANNED.search(line)
        planned = int(found[1]) if found else planned
        if _HEADER in line:
            fields = {}
            blocks.append(ServingBlock(summary=fields, planned=planned))
        elif fields is not None and _FOOTER.search(line):
            fields = None
        elif fields is not None:
            _read_field(line, fields)
    return tuple(ServingBlock(summary=_sane(b.summary), planned=b.planned) for b in blocks if b.summary)


def _read_field(line: str, fields: dict[str, Scalar]) -> None:
    latency = _LATENCY.search(line)
    if latency is not None:
        metric = latency[2].lower().replace(" ", "_")
        cell = parse_cell(latency[3])
        fields[statistic_name(latency[1].lower(), metric)] = None if cell is None else measured(cell[0])
        return
    found = _FIELD.search(line)
    if found is not None:
        fields.setdefault(_LABELS[found[1].lower()], _scalar(found[2]))


def _scalar(text: str) -> Scalar:
    if text.lower() == "inf":
        return float("inf")
    cell = parse_cell(text)
    if cell is None or cell[1]:
        return None if text.lower() in ("none", "nan", "not") else text
    return int(cell[0]) if "." not in text and cell[0].is_integer() else cell[0]


def _sane(summary: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Nothing completed: no statistic was measured, whatever is printed. An accept length of 0 is none."""
    nothing = summary.get("completed") == 0
    kept = {name: None if nothing and name.endswith("_ms") else value for name, value in summary.items()}
    return kept | ({"accept_length": measured(kept["accept_length"])} if "accept_length" in kept else {})


def parse_aisbench_blocks(text: str) -> tuple[AISBenchBlock, ...]:
    """Every pair of tables. Old and new dialects differ in log prefix, stage and capitals only."""
    blocks: list[AISBenchBlock] = []
    task: str | None = None
    rows: list[list[str]] = []
    for line in (*plain_lines(text), "Performance Results of task: end/end"):
        found = _TASK.search(line)
        if found is not None:
            blocks += _blocks_of(task, rows)
            task, rows = found[1], []
        elif line.lstrip().startswith(("│", "|")):
            rows.append([cell.strip() for cell in re.split("[│|]", line.strip())[1:-1]])
    return tuple(blocks)


def _blocks_of(task: str | None, rows: list[list[str]]) -> list[AISBenchBlock]:
    table = table_rows(rows)
    common: dict[str, dict[str, object]] = {}
    for row in rows:
        if len(row) == 3 and row[0] != "Common Metric":
            common.setdefault(row[1], {})[row[0]] = row[2]
    stages = dict.fromkeys((*table, *common))
    return [
        AISBenchBlock(task=task, printed=printed_stage(stage, common.get(stage, {}), table.get(stage, {})))
        for stage in stages
    ]


def console_figures(text: str, client: ClientName) -> Printed | None:
    """The figures of the last result block, with the rounding of a terminal; None where there is no block."""
    if client == "aisbench":
        blocks = parse_aisbench_blocks(text)
        return blocks[-1].printed if blocks else None
    tables = parse_serving_blocks(text)
    if not tables:
        return None
    figures = {
        name: Figure(float(value), _TWO_DECIMALS)
        for name, value in tables[-1].summary.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    return Printed(stage="whole", figures=figures)


def parse_progress(text: str) -> dict[str, int] | None:
    """The last redraw of AISBench's task board: its only count of failures while a run goes on."""
    boards = _BOARD.findall(text)
    if not boards:
        return None
    try:
        board = ast.literal_eval(boards[-1])
    except (ValueError, SyntaxError):
        return None
    return {str(name).lower(): n for name, n in board.items() if isinstance(n, int)}
