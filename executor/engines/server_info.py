"""Figures out of a decoded `/server_info` answer. Every figure may be missing; none is guessed."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.serving_config import digest

_IDENTITY = ("version", "launch_command", "startup_time", "random_seed")


def identity(body: Mapping[str, object]) -> str | None:
    """Of the running process: start-up times and seed differ between two starts of the same command."""
    facts = {name: body.get(name) for name in _IDENTITY}
    return None if all(fact is None for fact in facts.values()) else digest(_plain(facts))[:16]


def effective_running_cap(body: Mapping[str, object]) -> int | None:
    """Requests that one DP rank may run, as the scheduler resolved it."""
    return _integer(_state(body).get("effective_max_running_requests_per_dp"))


def token_capacity(body: Mapping[str, object]) -> int | None:
    """Tokens in the KV pool of one DP rank."""
    memory = _state(body).get("memory_usage")
    capacity = memory.get("token_capacity") if isinstance(memory, Mapping) else None
    return _integer(body.get("max_total_num_tokens")) if capacity is None else _integer(capacity)


def accept_length(body: Mapping[str, object]) -> float | None:
    """Accept length since the last flush, of DP rank 0 only; `None` without speculation."""
    value = _state(body).get("avg_spec_accept_length")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _state(body: Mapping[str, object]) -> Mapping[str, object]:
    """The first DP rank's own state; empty where the release does not report it."""
    match body.get("internal_states"):
        case [Mapping() as first, *_]:
            return first
        case _:
            return {}


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _plain(value: object) -> object:
    match value:
        case Mapping():
            return {str(key): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case _:
            return str(value)
