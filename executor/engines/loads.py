"""Live load of one server, from `GET /v1/loads` (0.5.10 on) or the older `GET /get_load`.

One sample holds one entry per DP rank. What the answer does not hold is `None`; unknown keys are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_HAND_OVER = (
    "prefill_bootstrap_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
    "decode_retracted_queue_reqs",
)
_SECTIONS = ("disaggregation", "queues", "memory", "speculative", "lora")


@dataclass(frozen=True, kw_only=True)
class RankLoad:
    """The queues of one DP rank, in requests."""

    dp_rank: int
    running: int | None
    waiting: int | None
    bootstrap: int | None
    inflight: int | None
    prealloc: int | None
    transfer: int | None
    retracted: int | None
    running_cap: int | None
    token_usage: float | None
    cache_hit_rate: float | None
    gen_tok_s: float | None
    accept_length: float | None
    fields: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class LoadSample:
    """All ranks of one server at one instant; `at` is the sampler's clock, in seconds."""

    at: float
    mode: str | None  # "prefill", "decode", or None where the answer does not say
    ranks: tuple[RankLoad, ...]
    version: str | None = None


def parse_loads(body: object, at: float) -> LoadSample | None:
    """A decoded JSON answer of either endpoint; `None` if it holds no load entry."""
    match body:
        case {"loads": list() as entries}:
            version = body.get("version") if isinstance(body, Mapping) else None
        case list() as entries:
            version = None
        case _:
            return None
    known = [entry for entry in entries if isinstance(entry, Mapping)]
    if not known:
        return None
    return LoadSample(
        at=at,
        mode=_mode(known),
        ranks=tuple(_rank(entry, position) for position, entry in enumerate(known)),
        version=version if isinstance(version, str) else None,
    )


def _mode(entries: Sequence[Mapping[str, object]]) -> str | None:
    section = entries[0].get("disaggregation")
    mode = section.get("mode") if isinstance(section, Mapping) else None
    return mode if mode in {"prefill", "decode"} else None


def _rank(entry: Mapping[str, object], position: int) -> RankLoad:
    flat = _flatten(entry)
    return RankLoad(
        dp_rank=position if (rank := _integer(flat, "dp_rank")) is None else rank,
        running=_running(flat),
        waiting=_waiting(flat),
        bootstrap=_integer(flat, "prefill_bootstrap_queue_reqs", "prefill_prealloc_queue_reqs"),
        inflight=_integer(flat, "prefill_inflight_queue_reqs"),
        prealloc=_integer(flat, "decode_prealloc_queue_reqs"),
        transfer=_integer(flat, "decode_transfer_queue_reqs"),
        retracted=_integer(flat, "decode_retracted_queue_reqs", "retracted"),
        running_cap=_integer(flat, "max_running_requests"),
        token_usage=_number(flat, "token_usage"),
        cache_hit_rate=_number(flat, "cache_hit_rate"),
        gen_tok_s=_number(flat, "gen_throughput"),
        accept_length=_number(flat, "accept_length"),
        fields=flat,
    )


def _waiting(flat: Mapping[str, object]) -> int | None:
    """The waiting queue alone: `num_waiting_reqs` also counts the hand-over queues of a separated server."""
    alone, together = _integer(flat, "waiting"), _integer(flat, "num_waiting_reqs")
    if alone is not None or together is None:
        return alone
    return max(0, together - sum(_integer(flat, name) or 0 for name in _HAND_OVER))


def _running(flat: Mapping[str, object]) -> int | None:
    """The older endpoint counts running and waiting together."""
    running = _integer(flat, "num_running_reqs")
    together, waiting = _integer(flat, "num_reqs"), _integer(flat, "num_waiting_reqs")
    if running is None and together is not None and waiting is not None:
        return max(0, together - waiting)
    return running


def _flatten(entry: Mapping[str, object]) -> dict[str, object]:
    """Nested sections beside the core fields; a core field wins over a section's field of the same name."""
    flat: dict[str, object] = {}
    for name in _SECTIONS:
        section = entry.get(name)
        if isinstance(section, Mapping):
            flat.update(section)
    return {**flat, **{key: value for key, value in entry.items() if key not in _SECTIONS}}


def _integer(flat: Mapping[str, object], *names: str) -> int | None:
    number = _number(flat, *names)
    return None if number is None else int(number)


def _number(flat: Mapping[str, object], *names: str) -> float | None:
    value = next((flat[name] for name in names if flat.get(name) is not None), None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value - value == 0 else None
