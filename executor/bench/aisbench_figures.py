"""AISBench's own summary of a run, and the same figures recomputed from its records by its own definitions.

Its definitions are not ours: it averages a TPOT of 0 for one-token answers, rounds seconds to four decimals
first, and counts the successes of a steady window wrongly after any failure. They serve to check that we
read the same run.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from executor.bench.aisbench_records import AISBenchRun
from executor.bench.client_reading import Figure, Printed
from executor.bench.json_lines import parse_json
from executor.bench.problem import ResultUnreadable
from executor.bench.quantities import parse_cell, parse_milliseconds
from experiments.requests import MISSING, Floats, RequestTable, total
from experiments.windows import Window

LATENCIES = ("E2EL", "TTFT", "TPOT", "ITL")
_ROWS = (*LATENCIES, "InputTokens", "OutputTokens", "OutputTokenThroughput", "PrefillTokenThroughput")
# Seconds are rounded to 0.1 ms before anything else; on stored real runs that is the largest difference.
REQUIRED = (
    "Benchmark Duration",
    "Total Requests",
    "Success Requests",
    "Concurrency",
    "Total Generated Tokens",
    "Output Token Throughput",
    "E2EL/Average",
    "TTFT/Average",
    "TPOT/Average",
)
_LATENCY_TOLERANCE_MS = 0.0501
_FOUR_DECIMALS = 0.000051
_RATE_SHARE = 1e-9  # of a rate: float arithmetic in another order
_PRINTED_AS = {"Total generated tokens": "Total Generated Tokens"}  # the spelling of 2025-06


def read_printed(run: AISBenchRun) -> tuple[Printed, ...]:
    """What the result files of one run say, one entry per stage found (a re-summary overwrites the stage)."""
    common = _read_common(run.directory / f"{run.abbr}.json")
    table = _read_table(run.directory / f"{run.abbr}.csv")
    return tuple(
        printed_stage(stage, common.get(stage, {}), table.get(stage, {})) for stage in dict.fromkeys((*common, *table))
    )


def printed_stage(stage: str, common: Mapping[str, object], table: Mapping[str, Mapping[str, object]]) -> Printed:
    """Figures by name: `Output Token Throughput`, `TTFT/Average`. Cells that measured nothing are absent."""
    figures: dict[str, Figure] = {}
    for label, cell in common.items():
        figure = _common_figure(label, cell)
        if figure is not None:
            figures[_PRINTED_AS.get(label, label)] = figure
    for row, cells in table.items():
        figures |= _row_figures(row, cells)
    return Printed(stage=stage, figures=figures, required=REQUIRED, inconsistent=_contradictions(figures, table))


def _common_figure(label: str, cell: object) -> Figure | None:
    if label == "Benchmark Duration":
        length = parse_milliseconds(cell)
        return None if length is None else Figure(length[0], _FOUR_DECIMALS * length[1])
    parsed = parse_cell(cell)
    if parsed is None:
        return None
    share = _RATE_SHARE * abs(parsed[0]) if parsed[1].endswith("/s") else 0.0
    return Figure(parsed[0], _FOUR_DECIMALS + share)


def _row_figures(row: str, cells: Mapping[str, object]) -> dict[str, Figure]:
    """N = 0 wins over the zeros beside it: nothing was measured."""
    count = parse_cell(cells.get("N"))
    if count is not None and count[0] == 0:
        return {f"{row}/N": Figure(0.0, 0.0)}
    figures = {f"{row}/{name}": _cell_figure(row, name, cell) for name, cell in cells.items()}
    return {name: figure for name, figure in figures.items() if figure is not None}


def _cell_figure(row: str, statistic: str, cell: object) -> Figure | None:
    if row in LATENCIES and statistic != "N":
        time = parse_milliseconds(cell)
        return None if time is None else Figure(time[0], _LATENCY_TOLERANCE_MS * time[1])
    parsed = parse_cell(cell)
    return None if parsed is None else Figure(parsed[0], _FOUR_DECIMALS)


def _contradictions(figures: Mapping[str, Figure], table: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Rows whose statistics cannot belong together: the order min <= median <= max, and the mean between
    them.
    """
    order = ("Min", "Median", "P75", "P90", "P95", "P99", "Max")
    found = []
    for row in table:
        values = [(name, figures[f"{row}/{name}"]) for name in order if f"{row}/{name}" in figures]
        found += [
            f"{row}: {low_name} {low.value:g} above {high_name} {high.value:g}"
            for (low_name, low), (high_name, high) in pairwise(values)
            if low.value > high.value + high.tolerance
        ]
        mean, least, most = (figures.get(f"{row}/{name}") for name in ("Average", "Min", "Max"))
        if mean and least and most and not least.value - least.tolerance <= mean.value <= most.value + most.tolerance:
            found.append(f"{row}: Average {mean.value:g} outside {least.value:g}…{most.value:g}")
    return tuple(found)


def _read_common(path: Path) -> dict[str, dict[str, object]]:
    """`{"metric": {"stage": value}}`, turned around to stage → metric → cell."""
    document = _load(path)
    stages: dict[str, dict[str, object]] = {}
    for label, cells in document.items():
        for stage, cell in cells.items() if isinstance(cells, dict) else ():
            stages.setdefault(str(stage), {})[str(label)] = cell
    return stages


def _load(path: Path) -> dict[str, object]:
    try:
        document = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise ResultUnreadable(path.name, "missing: the client ended before its summary") from None
    except (OSError, ValueError) as error:
        raise ResultUnreadable(path.name, f"damaged: {error}") from None
    if not isinstance(document, dict):
        raise ResultUnreadable(path.name, "is not an object of metrics")
    return document


def _read_table(path: Path) -> dict[str, dict[str, dict[str, object]]]:
    """The per-request table, stage → row → column → cell; columns are configurable, so by header only."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return table_rows(csv.reader(file))
    except FileNotFoundError:
        raise ResultUnreadable(path.name, "missing: the client ended before its summary") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ResultUnreadable(path.name, f"damaged: {error}") from None


def table_rows(rows: Iterable[list[str]]) -> dict[str, dict[str, dict[str, object]]]:
    """Rows of a printed table whose header starts with `Performance Parameters`."""
    stages: dict[str, dict[str, dict[str, object]]] = {}
    header: list[str] = []
    for row in rows:
        cells = [cell.strip() for cell in row]
        if cells and cells[0] == "Performance Parameters":
            header = cells
        elif header and len(cells) == len(header):
            named = dict(zip(header, cells, strict=True))
            stage = named.pop("Stage", "total")
            stages.setdefault(stage, {})[named.pop("Performance Parameters")] = dict(named)
    return stages


def recompute(table: RequestTable, window: Window, concurrency: int, stage: str) -> dict[str, float]:
    """Every figure AISBench prints for a stage, by its own definitions, unrounded.

    Where the server reported no usage AISBench counts with a tokenizer of its own: such figures are left out.
    """
    rows, duration = window.members, window.duration_s
    n_all, n_ok = _request_counts(table, rows, stage)
    figures = {
        "Benchmark Duration": duration * 1000.0,
        "Total Requests": float(n_all),
        "Failed Requests": float(n_all - n_ok),
        "Success Requests": float(n_ok),
        "Max Concurrency": float(concurrency),
    }
    for name, values in _rows(table, window).items():
        figures |= {f"{name}/{label}": value for label, value in _statistics(values).items()}
    decoded = float((table.max_gap_s()[rows] > 0).sum())
    figures |= {f"{name}/N": decoded if name in ("TPOT", "ITL") else float(n_ok) for name in _ROWS}
    figures |= _token_figures(table, window)
    if duration <= 0:
        return figures
    busy = float(table.e2e_s[rows].sum()) / duration
    return figures | {
        "Concurrency": busy if stage == "total" else min(busy, float(concurrency)),
        "Request Throughput": n_ok / duration,
    }


def _token_figures(table: RequestTable, window: Window) -> dict[str, float]:
    rows, duration = window.members, window.duration_s
    inputs, outputs = total(table.input_tokens[rows]), total(table.output_tokens[rows])
    waited = float(table.ttft_s[rows].sum())
    figures: dict[str, float | None] = {"Total Input Tokens": inputs, "Total Generated Tokens": outputs}
    if inputs is not None and waited > 0:
        figures["Prefill Token Throughput"] = inputs / waited
    if duration > 0:
        both = None if inputs is None or outputs is None else inputs + outputs
        sums = {"Input": inputs, "Output": outputs, "Total": both}
        figures |= {f"{name} Token Throughput": None if n is None else n / duration for name, n in sums.items()}
    return {name: float(value) for name, value in figures.items() if value is not None}


def _request_counts(
    table: RequestTable, rows: np.ndarray[tuple[int], np.dtype[np.int64]], stage: str
) -> tuple[int, int]:
    if stage == "total":
        return len(table), table.n_succeeded
    # AISBench looks up the members' positions among successes in the list of all requests.
    among_successes = np.searchsorted(np.flatnonzero(table.success), rows)
    return len(rows), int(table.success[among_successes].sum())


def _rows(table: RequestTable, window: Window) -> dict[str, Floats]:
    rows = window.members
    tpot = np.where(table.output_tokens > 1, table.tpot_s(), 0.0)
    lasting = np.where(table.e2e_s > 0, table.e2e_s, np.nan)
    waited = np.where(table.ttft_s[rows] > 0, table.ttft_s[rows], np.nan)
    is_member = np.zeros(len(table), dtype=np.bool_)
    is_member[rows] = True
    inputs, outputs = (np.where(c == MISSING, np.nan, c)[rows] for c in (table.input_tokens, table.output_tokens))
    return {
        "E2EL": table.e2e_s[rows] * 1000.0,
        "TTFT": table.ttft_s[rows] * 1000.0,
        "TPOT": tpot[rows] * 1000.0,
        "ITL": table.gaps_s(is_member) * 1000.0,
        "InputTokens": inputs,
        "OutputTokens": outputs,
        "OutputTokenThroughput": outputs / lasting[rows],
        "PrefillTokenThroughput": inputs / waited,
    }


def _statistics(values: Floats) -> dict[str, float]:
    if len(values) == 0 or not bool(np.isfinite(values).all()):
        return {}
    points = np.percentile(values, (50, 75, 90, 95, 99))
    named = dict(zip(("Median", "P75", "P90", "P95", "P99"), map(float, points), strict=True))
    return {"Average": float(values.mean()), "Min": float(values.min()), "Max": float(values.max()), **named}
