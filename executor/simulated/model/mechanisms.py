"""Optional mechanisms as factors on the cost equations. One parameter each; docs/serving-model.md has their rows."""

from __future__ import annotations

from dataclasses import dataclass

from executor.simulated.model.parameters import Mechanisms


@dataclass(frozen=True, kw_only=True)
class ServerMechanisms:
    """What one server runs with."""

    layout: str = "trivial"  # path of an expert layout, or trivial
    index_cache: bool = False
    compact: bool = False
    verify_budget: float | None = None  # fixed share of the drafts that is verified


def layout_kind(layout: str) -> str:
    """`trivial`, or `fitted` for a layout file that was fitted on this scenario's own routing."""
    return "trivial" if layout == "trivial" else "fitted"


def prefill_factors(mechanisms: Mechanisms, server: ServerMechanisms) -> tuple[float, float]:
    """(imbalance of expert work, factor on the whole forward)."""
    return mechanisms.prefill_imbalance[layout_kind(server.layout)], _slowdown(mechanisms, server)


def decode_factors(mechanisms: Mechanisms, server: ServerMechanisms) -> tuple[float, float, float]:
    """(layout factor, factor on the whole step, factor on the acceptance probability)."""
    acceptance = 1.0 if server.verify_budget is None else server.verify_budget
    return mechanisms.decode_imbalance[layout_kind(server.layout)], _slowdown(mechanisms, server), acceptance


def _slowdown(mechanisms: Mechanisms, server: ServerMechanisms) -> float:
    factor = 1.0
    if server.index_cache:
        factor *= 1.0 - mechanisms.index_cache_saving
    if server.compact:
        factor *= 1.0 + mechanisms.compact_overhead
    return factor
