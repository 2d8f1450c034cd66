"""Optional mechanisms as factors on the cost equations. One parameter each; docs/serving-model.md has their rows.

What a server does not say is taken as in the field record's final configuration, for which the costs were fitted:
layouts fitted on the scenario, index reuse and Compact on. A server that switches one off, or names another layout, is
that much slower or faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from executor.simulated.model.parameters import Mechanisms


@dataclass(frozen=True, kw_only=True)
class ServerMechanisms:
    """What one server runs with."""

    layout: str = "trivial"  # path of an expert layout; trivial: not given
    misfit: float | None = None  # of a layout file that was read: 0 even, 1 as without a layout; None: by its name
    index_cache: bool = True
    compact: bool = True
    verify_budget: bool = False  # a fixed 95 % share of the drafts is verified
    delay_passes: int | None = None


def layout_kind(layout: str) -> str:
    """`fitted`, or `original` for a layout file whose name says that it was made for something else."""
    stem = PurePosixPath(layout).stem.lower()
    return "original" if any(word in stem for word in ("original", "other", "uniform")) else "fitted"


def prefill_factors(mechanisms: Mechanisms, server: ServerMechanisms) -> tuple[float, float]:
    """(imbalance of expert work, factor on the whole forward)."""
    return _imbalance(mechanisms.prefill_imbalance, server), _slowdown(mechanisms, server)


def decode_factors(mechanisms: Mechanisms, server: ServerMechanisms) -> tuple[float, float, float]:
    """(layout factor, factor on the whole step, factor on the acceptance probability)."""
    acceptance = mechanisms.budget_acceptance if server.verify_budget else 1.0
    return _imbalance(mechanisms.decode_imbalance, server), _slowdown(mechanisms, server), acceptance


def _imbalance(factors: Mapping[str, float], server: ServerMechanisms) -> float:
    """A layout whose map is known costs in proportion to what it leaves uneven."""
    if server.misfit is None:
        return factors[layout_kind(server.layout)]
    return factors["fitted"] + server.misfit * (factors["original"] - factors["fitted"])


def _slowdown(mechanisms: Mechanisms, server: ServerMechanisms) -> float:
    factor = 1.0
    if not server.index_cache:
        factor /= 1.0 - mechanisms.index_cache_saving
    if not server.compact:
        factor /= 1.0 + mechanisms.compact_overhead
    return factor
