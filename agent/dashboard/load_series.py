"""Queues and throughput of one run over time, from the servers' own log lines: for the eye, never for a verdict.

Depths are means over the DP ranks that wrote; rates are summed over them. Where a side wrote nothing there is nothing.
Each side has its own clock, which need not agree with the other's: times count from its own first line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from agent.dashboard.plot import Plot, Series, Shape
from agent.dashboard.watch import Count
from executor.engines.server_log import DecodeBatch, LogRecord, PrefillBatch, parse_server_log

MOST_BYTES = 24 * 1024 * 1024
BUCKETS = 120
B = TypeVar("B", PrefillBatch, DecodeBatch)

SIDES = ("prefill.log", "decode.log", "mixed.log")


@dataclass(frozen=True, kw_only=True)
class SideLog:
    """The batch lines of one server. `is_cut`: the file is longer than what is read of it."""

    batches: tuple[PrefillBatch | DecodeBatch, ...]
    is_cut: bool = False


def read_side(path: Path) -> SideLog:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    lines = data[:MOST_BYTES].decode("utf-8", errors="replace").splitlines()
    return SideLog(batches=_batches(parse_server_log(lines)), is_cut=len(data) > MOST_BYTES)


def _batches(records: Iterable[LogRecord]) -> tuple[PrefillBatch | DecodeBatch, ...]:
    return tuple(r for r in records if isinstance(r, PrefillBatch | DecodeBatch))


def load_plots(sides: Sequence[SideLog], *, simulated: bool) -> tuple[Plot, ...]:
    """Queues, requests in decode, and tokens per second over the seconds of the load."""
    batches = [batch for side in sides for batch in side.batches]
    prefill = [b for b in batches if isinstance(b, PrefillBatch)]
    decode = [b for b in batches if isinstance(b, DecodeBatch)]
    cut = ", only the beginning of the log" if any(side.is_cut for side in sides) else ""
    note = f"; {len(prefill)} prefill and {len(decode)} decode log lines{cut}{', SIMULATED' if simulated else ''}"
    queues = (
        _depth("prefill: waiting", "one", prefill, lambda b: b.waiting),
        _depth("prefill: in hand-over", "two", prefill, lambda b: b.inflight),
        _depth("decode: waiting", "three", decode, lambda b: b.waiting),
        _depth("decode: pre-allocation", "four", decode, lambda b: b.prealloc),
        _depth("decode: transfer", "five", decode, lambda b: b.transfer),
    )
    running = (_depth("decode: running", "one", decode, lambda b: b.running),)
    rates = (
        _rate("generated", "one", decode, lambda b: b.gen_tok_s),
        _rate("computed input", "two", prefill, lambda b: b.input_tok_s),
    )
    x = "seconds since the first log line of its side"
    return (
        Plot(title=f"Queues{note}", x_label=x, y_label="requests per DP rank", series=queues),
        Plot(title=f"Requests in decode{note}", x_label=x, y_label="requests per DP rank", series=running),
        Plot(title=f"Tokens per second{note}", x_label=x, y_label="tok/s, all ranks", series=rates),
    )


def _depth(name: str, look: str, batches: Sequence[B], read: Callable[[B], float | None]) -> Series:
    points = [(b.stamp.at, b.stamp.dp_rank, v) for b in batches if (v := read(b)) is not None]
    return Series(
        name=name, look=look, shape=Shape.LINE, points=_bucketed(points, lambda means: sum(means) / len(means))
    )


def _rate(name: str, look: str, batches: Sequence[B], read: Callable[[B], float | None]) -> Series:
    points = [(b.stamp.at, b.stamp.dp_rank, v) for b in batches if (v := read(b)) is not None]
    return Series(name=name, look=look, shape=Shape.LINE, points=_bucketed(points, sum))


def _bucketed(
    points: Sequence[tuple[float, int, float]], over_ranks: Callable[[Sequence[float]], float]
) -> tuple[tuple[float, float], ...]:
    """A mean per rank and bucket, then one value over the ranks: ranks write at different rates."""
    if not points:
        return ()
    began = min(at for at, _, _ in points)
    end = max(at for at, _, _ in points) - began
    width = max(end / BUCKETS, 1.0)
    buckets: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for at, rank, value in points:
        buckets[int((at - began) / width)][rank].append(value)
    return tuple(
        ((number + 0.5) * width, over_ranks([sum(values) / len(values) for values in ranks.values()]))
        for number, ranks in sorted(buckets.items())
    )


def progress_plot(counts: Sequence[Count], *, simulated: bool) -> Plot:
    """Requests per second between two news of the client's progress, as this dashboard heard them."""
    rates = []
    for before, after in pairwise(counts):
        seconds = after.at_s - before.at_s
        if seconds > 0 and after.done >= before.done:
            rates.append((after.at_s - counts[0].at_s, (after.done - before.done) / seconds))
    title = "Requests ended per second of wall time, from the client's progress since this page was first open"
    return Plot(
        title=title + (", SIMULATED" if simulated else ""),
        x_label="seconds since the first news",
        y_label="requests/s",
        series=(Series(name="ended", look="one", shape=Shape.LINE, points=tuple(rates)),),
    )
