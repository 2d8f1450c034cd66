"""AISBench's own summary of a run: the per-request table and the common metrics, defined and rounded as there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from executor.simulated.aisbench_files import StoredRequest
from executor.simulated.model.trace import Floats

STATISTICS = ("Average", "Min", "Max", "Median", "P75", "P90", "P99")


class NoSteadyWindow(Exception):
    """CALC-DATA-002: the run has no stable stage."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One stage: table rows by parameter, common metrics by name. Cells are as printed."""

    stage: str
    rows: dict[str, list[str | int]]
    common: dict[str, str | float | int]


def summarise(stored: Sequence[StoredRequest], total: int, concurrency: int, stage: str) -> Summary:
    """The `total` or the `stable` stage. NoSteadyWindow where there is no stable one."""
    if stage == "total":
        start = min(float(item.points[0]) for item in stored)
        end = max(float(item.points[-1]) for item in stored)
        return _summary(stored, end - start, (total, total - len(stored)), concurrency, stage)
    members, duration = steady_window(stored, concurrency)
    return _summary(members, duration, (len(members), 0), concurrency, stage)


def steady_window(stored: Sequence[StoredRequest], concurrency: int) -> tuple[list[StoredRequest], float]:
    """The rule of 2026-08: from the second start that fills the last slot to the last event that does."""
    events = [(float(item.points[0]), 2 * place, 1) for place, item in enumerate(stored)]
    events += [(float(item.points[-1]), 2 * place + 1, -1) for place, item in enumerate(stored)]
    level, starts, landings = 0, [], []
    for at, _, change in sorted(events):
        level += change
        if level == concurrency:
            landings.append(at)
            if change > 0:
                starts.append(at)
    if len(starts) < 2:
        raise NoSteadyWindow
    first, last = starts[1], landings[-1]
    return [item for item in stored if first <= float(item.points[0]) <= last], last - first


def _summary(
    stored: Sequence[StoredRequest], duration: float, counts: tuple[int, int], concurrency: int, stage: str
) -> Summary:
    e2e = np.array([item.points[-1] - item.points[0] for item in stored])
    ttft = np.array([item.points[1] - item.points[0] for item in stored])
    gaps = [np.diff(item.points[1:]) for item in stored]
    inputs = np.array([item.input_tokens for item in stored], dtype=float)
    outputs = np.array([item.output_tokens for item in stored], dtype=float)
    tpot = np.where(outputs > 1, (e2e - ttft) / np.maximum(outputs - 1, 1), 0.0)
    decoded = sum(bool((gap > 0).any()) for gap in gaps)
    number = len(stored)
    rows = {
        "E2EL": _milliseconds(e2e, number),
        "TTFT": _milliseconds(ttft, number),
        "TPOT": _milliseconds(tpot, decoded),
        "ITL": _milliseconds(np.concatenate(gaps), decoded),
        "InputTokens": _plain(inputs, "", number),
        "OutputTokens": _plain(outputs, "", number),
        "OutputTokenThroughput": _plain(outputs / e2e, " token/s", number),
        "PrefillTokenThroughput": _plain(inputs / ttft, " token/s", number),
    }
    busy = float(e2e.sum()) / duration
    return Summary(
        stage=stage,
        rows=rows,
        common=_common(
            duration, counts, busy if stage == "total" else min(busy, concurrency), concurrency, inputs, outputs
        ),
    )


def _common(
    duration: float, counts: tuple[int, int], busy: float, concurrency: int, inputs: Floats, outputs: Floats
) -> dict[str, str | float | int]:
    total, failed = counts
    return {
        "Benchmark Duration": f"{_round(duration * 1000)} ms",
        "Total Requests": total,
        "Failed Requests": failed,
        "Success Requests": total - failed,
        "Concurrency": _round(busy),
        "Max Concurrency": concurrency,
        "Request Throughput": f"{_round(len(outputs) / duration)} req/s",
        "Total Input Tokens": int(inputs.sum()),
        "Total Generated Tokens": int(outputs.sum()),
        "Input Token Throughput": f"{_round(inputs.sum() / duration)} token/s",
        "Output Token Throughput": f"{_round(outputs.sum() / duration)} token/s",
        "Total Token Throughput": f"{_round((inputs.sum() + outputs.sum()) / duration)} token/s",
    }


def _round(value: float) -> float:
    return round(float(value), 4)


def _statistics(values: Floats) -> list[float]:
    points = np.percentile(values, (50, 75, 90, 99))
    return [float(values.mean()), float(values.min()), float(values.max()), *map(float, points)]


def _milliseconds(seconds: Floats, number: int) -> list[str | int]:
    """Each statistic is rounded to four decimals of a second and then printed in milliseconds."""
    cells = [f"{round(round(value, 4) * 1000, 1)} ms" for value in _statistics(seconds)]
    return [*cells, number]


def _plain(values: Floats, unit: str, number: int) -> list[str | int]:
    return [*(f"{_round(value)}{unit}" for value in _statistics(values)), number]


def csv_text(summary: Summary) -> str:
    header = ",".join(("Performance Parameters", "Stage", *STATISTICS, "N"))
    lines = [",".join((name, summary.stage, *map(str, cells))) for name, cells in summary.rows.items()]
    return "\n".join((header, *lines)) + "\n"


def console_tables(summary: Summary) -> str:
    """The two tables of the console."""
    header = ["Performance Parameters", "Stage", *STATISTICS, "N"]
    rows = [[name, summary.stage, *map(str, cells)] for name, cells in summary.rows.items()]
    common = [[name, summary.stage, str(value)] for name, value in summary.common.items()]
    return f"{_grid(header, rows, centred=9)}\n{_grid(['Common Metric', 'Stage', 'Value'], common)}"


def _grid(header: list[str], rows: list[list[str]], centred: int | None = None) -> str:
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]

    def rule(left: str, middle: str, right: str, line: str) -> str:
        return left + middle.join(line * (width + 2) for width in widths) + right

    def text(row: list[str]) -> str:
        cells = [
            cell.center(width) if place == centred else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "│" + "│".join(f" {cell} " for cell in cells) + "│"

    body = f"\n{rule('├', '┼', '┤', '─')}\n".join(text(row) for row in rows)
    return "\n".join((rule("╒", "╤", "╕", "═"), text(header), rule("╞", "╪", "╡", "═"), body, rule("╘", "╧", "╛", "═")))
