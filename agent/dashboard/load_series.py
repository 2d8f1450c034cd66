"""Queues and throughput of one run over time: for the eye, never for a verdict.

While the load runs they are the samples that the service took of its servers; after it, the servers' own log lines.
Depths are means over the DP ranks, rates are summed over them. Where a side said nothing there is nothing. Each side
has its own clock, which need not agree with the other's: times count from its own first word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from agent.dashboard.plot import Plot, Series, Shape
from agent.dashboard.watch import Count
from executor.engines.live_series import parse_series
from executor.engines.loads import LoadSample, RankLoad
from executor.engines.server_log import DecodeBatch, PrefillBatch, parse_server_log
from experiments.serving_config import Role

MOST_BYTES = 24 * 1024 * 1024
BUCKETS = 120
LOGS = ("prefill.log", "decode.log", "mixed.log")
LIVE = "live.jsonl"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one DP rank said at one time."""

    at: float
    rank: int
    figures: PrefillBatch | DecodeBatch | RankLoad


@dataclass(frozen=True, kw_only=True)
class LoadView:
    """Both sides of one load. `source` says where it comes from and how much of it there is."""

    prefill: tuple[Seen, ...]
    decode: tuple[Seen, ...]
    source: str


def read_logs(paths: Iterable[Path]) -> LoadView:
    """From the logs of the servers, as they were collected."""
    batches: list[PrefillBatch | DecodeBatch] = []
    cut = ""
    for path in paths:
        text, is_cut = _beginning(path)
        batches += [r for r in parse_server_log(text.splitlines()) if isinstance(r, PrefillBatch | DecodeBatch)]
        cut = ", only the beginning of a log" if is_cut else cut
    prefill = tuple(Seen(b.stamp.at, b.stamp.dp_rank, b) for b in batches if isinstance(b, PrefillBatch))
    decode = tuple(Seen(b.stamp.at, b.stamp.dp_rank, b) for b in batches if isinstance(b, DecodeBatch))
    source = f"{len(prefill)} prefill and {len(decode)} decode log lines{cut}"
    return LoadView(prefill=prefill, decode=decode, source=source)


def read_live(path: Path) -> LoadView:
    """From the samples that are taken while the load runs. No file: nothing was sampled yet."""
    series = parse_series(_beginning(path)[0]) if path.is_file() else {}
    taken = sum(len(samples) for samples in series.values())
    return LoadView(
        prefill=_sampled(series.get(Role.PREFILL, ())),
        decode=_sampled((*series.get(Role.DECODE, ()), *series.get(Role.MIXED, ()))),
        source=f"{taken} live samples",
    )


def _beginning(path: Path) -> tuple[str, bool]:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    return data[:MOST_BYTES].decode("utf-8", errors="replace"), len(data) > MOST_BYTES


def _sampled(samples: Sequence[LoadSample]) -> tuple[Seen, ...]:
    return tuple(Seen(sample.at, rank.dp_rank, rank) for sample in samples for rank in sample.ranks)


def load_plots(view: LoadView, *, simulated: bool) -> tuple[Plot, ...]:
    """Queues, requests in decode, and tokens per second over the seconds of the load."""
    prefill, decode = view.prefill, view.decode
    queues = (
        _line("prefill: waiting", "one", prefill, "waiting"),
        _line("prefill: in hand-over", "two", prefill, "inflight"),
        _line("decode: waiting", "three", decode, "waiting"),
        _line("decode: pre-allocation", "four", decode, "prealloc"),
        _line("decode: transfer", "five", decode, "transfer"),
    )
    running = (_line("decode: running", "one", decode, "running"),)
    rates = (
        _line("generated", "one", decode, "gen_tok_s", sum),
        _line("computed input", "two", prefill, "input_tok_s", sum),
    )
    note = f"; {view.source}{', SIMULATED' if simulated else ''}"
    x = "seconds since the first word of each side"
    return (
        Plot(title=f"Queues{note}", x_label=x, y_label="requests per DP rank", series=queues),
        Plot(title=f"Requests in decode{note}", x_label=x, y_label="requests per DP rank", series=running),
        Plot(title=f"Tokens per second{note}", x_label=x, y_label="tok/s, all ranks", series=rates),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _line(
    name: str, look: str, seen: Sequence[Seen], figure: str, over_ranks: Callable[[Sequence[float]], float] = _mean
) -> Series:
    observed = [(s.at, s.rank, v) for s in seen if (v := getattr(s.figures, figure, None)) is not None]
    return Series(name=name, look=look, shape=Shape.LINE, points=bucketed(observed, over_ranks))


def bucketed(
    observed: Sequence[tuple[float, int, float]], over_ranks: Callable[[Sequence[float]], float]
) -> tuple[tuple[float, float], ...]:
    """A mean per rank and bucket, then one value over the ranks: ranks speak at different rates."""
    if not observed:
        return ()
    began = min(at for at, _, _ in observed)
    width = max((max(at for at, _, _ in observed) - began) / BUCKETS, 1.0)
    buckets: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for at, rank, value in observed:
        buckets[int((at - began) / width)][rank].append(value)
    return tuple(
        ((number + 0.5) * width, over_ranks([_mean(values) for values in ranks.values()]))
        for number, ranks in sorted(buckets.items())
    )


def progress_plot(counts: Sequence[Count], *, simulated: bool) -> Plot:
    """Requests per second between two news of the client's progress, as this dashboard heard them."""
    began = min((count.at_s for count in counts), default=0.0)
    rates = []
    for before, after in pairwise(counts):
        seconds = after.at_s - before.at_s
        if seconds > 0 and after.done >= before.done:
            rates.append((after.at_s - began, (after.done - before.done) / seconds))
    title = "Requests ended per second of wall time, from the client's progress since this page was first open"
    return Plot(
        title=title + (", SIMULATED" if simulated else ""),
        x_label="seconds since the first news",
        y_label="requests/s",
        series=(Series(name="ended", look="one", shape=Shape.LINE, points=tuple(rates)),),
    )
