"""The series of a load's live samples: one JSON line per answer, and its summary per rank. Pure.

`/v1/loads` speaks first; what it leaves out is taken from the gauges of `/metrics`, which also stand alone on servers
that have no such page. Lines that are cut off (the writer may be killed) are left out.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from executor.engines.loads import LoadSample, RankLoad
from executor.engines.prometheus import PREFIX, Scrape
from experiments.live import RankLive, spread_of
from experiments.serving_config import Role

# What is kept of a rank, by its name in a sample.
FIGURES = (
    "running",
    "waiting",
    "bootstrap",
    "inflight",
    "prealloc",
    "transfer",
    "retracted",
    "token_usage",
    "gen_tok_s",
    "accept_length",
)
_GAUGES = {
    "running": ("num_running_reqs",),
    "waiting": ("num_queue_reqs",),
    "bootstrap": ("num_prefill_bootstrap_queue_reqs", "num_prefill_prealloc_queue_reqs"),
    "inflight": ("num_prefill_inflight_queue_reqs",),
    "prealloc": ("num_decode_prealloc_queue_reqs",),
    "transfer": ("num_decode_transfer_queue_reqs",),
    "retracted": ("num_retracted_reqs",),
    "token_usage": ("token_usage",),
    "gen_tok_s": ("gen_throughput",),
    "accept_length": ("spec_accept_length",),
}
_QUEUES = ("running", "waiting", "bootstrap", "inflight", "prealloc", "transfer", "retracted")
_FRACTIONS = frozenset({"token_usage", "gen_tok_s", "accept_length"})
_NEVER_ZERO = frozenset({"accept_length"})  # the gauge is 0 before the first verification


def merge_answers(at: float, loads: LoadSample | None, scrape: Scrape | None) -> LoadSample | None:
    """One sample of both answers; `None` if neither holds a rank."""
    gauges = {} if scrape is None else _ranks_of(scrape)
    if loads is None:
        ranks = tuple(_rank_of(rank, figures) for rank, figures in sorted(gauges.items()))
        return LoadSample(at=at, mode=None, ranks=ranks) if ranks else None
    return replace(loads, ranks=tuple(_completed(rank, gauges.get(rank.dp_rank, {})) for rank in loads.ranks))


def _completed(rank: RankLoad, figures: Mapping[str, float]) -> RankLoad:
    missing: dict[str, Any] = {
        name: _typed(name, value) for name, value in figures.items() if getattr(rank, name) is None
    }
    return replace(rank, **missing) if missing else rank


def _ranks_of(scrape: Scrape) -> dict[int, dict[str, float]]:
    """Gauges by DP rank. Several ranks of one DP rank report the same queue: the highest is taken, not the sum."""
    names = {PREFIX + gauge: figure for figure, gauges in _GAUGES.items() for gauge in gauges}
    ranks: dict[int, dict[str, float]] = defaultdict(dict)
    for point in scrape.points:
        figure = names.get(point.name)
        if figure is None or not math.isfinite(point.value) or (figure in _NEVER_ZERO and point.value <= 0):
            continue
        label = dict(point.labels).get("dp_rank", "0")
        rank = int(label) if label.isdecimal() else 0
        ranks[rank][figure] = max(point.value, ranks[rank].get(figure, point.value))
    return dict(ranks)


def _rank_of(rank: int, figures: Mapping[str, float | None]) -> RankLoad:
    known: dict[str, Any] = {name: _typed(name, figures.get(name)) for name in FIGURES}
    return RankLoad(dp_rank=rank, running_cap=None, cache_hit_rate=None, fields={}, **known)


def _typed(name: str, value: float | None) -> float | int | None:
    return value if value is None or name in _FRACTIONS else int(value)


def render_sample(role: Role, sample: LoadSample) -> str:
    """One line of the series, without its end. Figures that were not observed are left out."""
    ranks = [
        {"rank": rank.dp_rank} | {name: value for name in FIGURES if (value := getattr(rank, name)) is not None}
        for rank in sample.ranks
    ]
    return json.dumps({"at": round(sample.at, 3), "role": str(role), "ranks": ranks}, separators=(",", ":"))


def parse_series(text: str) -> dict[Role, list[LoadSample]]:
    """The samples of each server, in the order in which they were taken."""
    series: dict[Role, list[LoadSample]] = defaultdict(list)
    for line in text.splitlines():
        try:
            row = json.loads(line)
            ranks = tuple(_rank_of(int(entry["rank"]), entry) for entry in row["ranks"])
            series[Role(row["role"])].append(LoadSample(at=float(row["at"]), mode=None, ranks=ranks))
        except (ValueError, KeyError, TypeError):
            continue
    return dict(series)


def busy_part(series: Mapping[Role, Sequence[LoadSample]]) -> dict[Role, list[LoadSample]]:
    """From the first to the last sample in which any server had a request: a client takes its time to start and to end.

    Empty if none ever had: then the load was too short to be seen.
    """
    busy = [sample.at for samples in series.values() for sample in samples if any(map(_is_busy, sample.ranks))]
    if not busy:
        return {}
    return {role: [s for s in samples if min(busy) <= s.at <= max(busy)] for role, samples in series.items()}


def _is_busy(rank: RankLoad) -> bool:
    return any(getattr(rank, name) for name in _QUEUES)


def summarise_series(series: Mapping[Role, Sequence[LoadSample]]) -> tuple[RankLive, ...]:
    """Median and maximum of every figure, per server and rank."""
    return tuple(
        _summary(role, rank, loads)
        for role, samples in sorted(series.items())
        for rank, loads in sorted(_by_rank(samples).items())
    )


def _by_rank(samples: Iterable[LoadSample]) -> dict[int, list[RankLoad]]:
    found: dict[int, list[RankLoad]] = defaultdict(list)
    for sample in samples:
        for rank in sample.ranks:
            found[rank.dp_rank].append(rank)
    return found


def _summary(role: Role, rank: int, loads: Sequence[RankLoad]) -> RankLive:
    figures = {
        name: spread_of([float(value) for load in loads if (value := getattr(load, name)) is not None])
        for name in FIGURES
    }
    return RankLive(role=role, rank=rank, samples=len(loads), **figures)
