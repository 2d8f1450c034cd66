"""Which wall binds the incumbent, from figures alone. Several may hold; each names the figures that say so.

A queue that is there in most samples is a wall at the place that it waits for. Where neither side queues, or where the
client holds back what decode has free slots for, the client does not supply enough. A wall whose figures were not
observed is not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from experiments.card import Wall

Figures = Mapping[str, float | None]

PERSISTENT = 0.5  # share of samples with a queue from which it counts as standing
SLIGHT = 0.1  # below this share a queue counts as empty
FULL = 0.92  # share of KV space, or of the running cap, that counts as full
HELD_BACK = (
    0.85  # mean requests in flight over the client's cap from which the cap holds them back; ramp and drain excepted
)
NEARLY_ALL = 0.9  # of the requests in flight
UNEVEN = 0.15  # busiest rank over the mean, minus one
NEAR_LIMIT = 0.95  # share of an SLO limit that counts as reached


@dataclass(frozen=True, kw_only=True)
class BindingWall:
    """`strength` is 0 to 1: how far the figures are past the threshold, for ordering only."""

    wall: Wall
    strength: float
    figures: tuple[str, ...]
    sentence: str


def find_walls(figures: Figures) -> tuple[BindingWall, ...]:
    """Every wall that the figures show, strongest first; `unknown` alone if they show none."""
    found = [wall for rule in _RULES if (wall := rule(figures)) is not None]
    if not found:
        sentence = "no queue, limit or imbalance stands out in the figures that were observed"
        return (BindingWall(wall=Wall.UNKNOWN, strength=0.0, figures=(), sentence=sentence),)
    return tuple(sorted(found, key=lambda w: -w.strength))


def _prefill_supply(f: Figures) -> BindingWall | None:
    waiting, prealloc = f.get("prefill.waiting.share_positive"), f.get("decode.prealloc.share_positive")
    if waiting is None or waiting < PERSISTENT or (prealloc is not None and prealloc > SLIGHT):
        return None
    if _nearly_all_decode(f):
        return None
    seen = ("prefill.waiting.share_positive", "decode.prealloc.share_positive", "prefill.waiting.mean")
    decode = "decode was not observed" if prealloc is None else f"for decode in {prealloc:.0%}"
    return BindingWall(
        wall=Wall.PREFILL_SUPPLY,
        strength=min(waiting, 1.0),
        figures=_observed(f, seen),
        sentence=f"requests wait for prefill in {waiting:.0%} of the samples, {decode}",
    )


def _decode_batch(f: Figures) -> BindingWall | None:
    share, prealloc = f.get("decode.running_share_of_cap"), f.get("decode.prealloc.share_positive")
    if share is None or share < FULL or (prealloc is not None and prealloc < SLIGHT):
        return None
    return BindingWall(
        wall=Wall.DECODE_BATCH,
        strength=min(share, 1.0),
        figures=_observed(f, ("decode.running_share_of_cap", "decode.prealloc.share_positive")),
        sentence=f"decode runs {share:.0%} of the requests it may",
    )


def _memory(f: Figures) -> BindingWall | None:
    usage, retractions = f.get("decode.token_usage_max"), f.get("decode.retractions")
    if (usage is None or usage < FULL) and not retractions:
        return None
    seen = [] if usage is None else [f"KV space reaches {usage:.0%}"]
    seen += [] if retractions is None else [f"{retractions:.0f} retractions"]
    return BindingWall(
        wall=Wall.MEMORY,
        strength=1.0 if retractions else min(usage or 0.0, 1.0),
        figures=_observed(f, ("decode.token_usage_max", "decode.retractions")),
        sentence=", ".join(seen),
    )


def _client_supply(f: Figures) -> BindingWall | None:
    return _nothing_queues(f) or _client_holds_back(f)


def _nothing_queues(f: Figures) -> BindingWall | None:
    waiting, prealloc = f.get("prefill.waiting.share_positive"), f.get("decode.prealloc.share_positive")
    if waiting is None or waiting > SLIGHT or (prealloc or 0.0) > SLIGHT:
        return None
    sides = "nothing waits for prefill" if prealloc is None else "nothing queues on either side"
    return BindingWall(
        wall=Wall.CLIENT_SUPPLY,
        strength=1.0 - waiting,
        figures=_observed(f, ("prefill.waiting.share_positive", "client.concurrency_mean", "client.request_per_s")),
        sentence=f"{sides}: the load does not fill the service",
    )


def _client_holds_back(f: Figures) -> BindingWall | None:
    """By Little's law a client at its cap sets the pace, unless a queue stands or decode is full."""
    in_flight, cap = f.get("client.concurrency_mean"), f.get("client.concurrency_limit")
    share, waiting = f.get("decode.running_share_of_cap"), f.get("prefill.waiting.share_positive")
    if in_flight is None or not cap or share is None or waiting is None:
        return None
    queue = max(waiting, f.get("decode.prealloc.share_positive") or 0.0)
    if in_flight < HELD_BACK * cap or share >= FULL or (queue >= PERSISTENT and not _nearly_all_decode(f)):
        return None
    seen = ("client.concurrency_mean", "client.concurrency_limit", "decode.running_share_of_cap")
    return BindingWall(
        wall=Wall.CLIENT_SUPPLY,
        strength=1.0 - share,
        figures=_observed(f, seen),
        sentence=f"the client has {in_flight:.1f} of at most {cap:g} requests in flight, and decode runs "
        f"{share:.0%} of the requests it may",
    )


def _nearly_all_decode(f: Figures) -> bool:
    """Of the requests in flight hardly one waits, whatever a queue showed at the moments when a batch was formed."""
    in_flight, running, ranks = f.get("client.concurrency_mean"), f.get("decode.running.mean"), f.get("decode.ranks")
    if in_flight is None or running is None or ranks is None:
        return False
    return running * ranks >= NEARLY_ALL * in_flight


def _slo(f: Figures) -> BindingWall | None:
    shares = {name: value for name, value in f.items() if name.startswith("slo.") and value is not None}
    if not shares:
        return None
    name, share = max(shares.items(), key=lambda item: item[1])
    if share < NEAR_LIMIT:
        return None
    return BindingWall(
        wall=Wall.SLO,
        strength=min(share, 1.5) / 1.5,
        figures=(name,),
        sentence=f"{name.removeprefix('slo.').removesuffix('.share_of_limit')} is at {share:.0%} of its limit",
    )


def _imbalance(f: Figures) -> BindingWall | None:
    sides = {side: f.get(f"{side}.rank_imbalance") for side in ("prefill", "decode")}
    uneven = {side: value for side, value in sides.items() if value is not None and value > UNEVEN}
    if not uneven:
        return None
    side, value = max(uneven.items(), key=lambda item: item[1])
    return BindingWall(
        wall=Wall.IMBALANCE,
        strength=min(value, 1.0) / 2,
        figures=(f"{side}.rank_imbalance",),
        sentence=f"the busiest {side} rank has {value:.0%} more than the mean",
    )


def _cache(f: Figures) -> BindingWall | None:
    hit, promised = f.get("prefill.cache_hit_share"), f.get("scenario.cache_promised")
    if hit is None or not promised or hit >= promised:
        return None
    return BindingWall(
        wall=Wall.CACHE,
        strength=(promised - hit) / promised,
        figures=("prefill.cache_hit_share", "scenario.cache_promised"),
        sentence=f"the prefix cache serves {hit:.2%}, the scenario promises {promised:.0%}",
    )


def _observed(f: Figures, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if f.get(name) is not None)


_RULES: tuple[Callable[[Figures], BindingWall | None], ...] = (
    _prefill_supply,
    _decode_batch,
    _memory,
    _client_supply,
    _slo,
    _imbalance,
    _cache,
)
