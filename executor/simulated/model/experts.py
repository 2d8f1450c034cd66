"""Expert loads of the simulated model, and how unevenly a placement spreads them over the ranks. Pure, seeded by names.

The loads are made up: what they exercise is the way record → fit → load. How much an uneven spread costs is the
calibrated factor of a layout that does not fit (docs/serving-model.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

LAYERS, EXPERTS = 8, 256
TOP_K = 8
SKEW = 0.8  # sigma of the logarithm of an expert's load
Floats = NDArray[np.float64]


def expert_loads(model: str, side: str) -> Floats:
    """Share of each layer's tokens that each expert gets: [layer, expert]. Prefill and decode see other texts."""
    raw = _generator(model, side).lognormal(sigma=SKEW, size=(LAYERS, EXPERTS))
    return cast(Floats, raw / raw.sum(axis=1, keepdims=True))


def recorded_counts(model: str, side: str, tokens: int) -> list[list[int]]:
    """What a recorder counts of so many tokens: a sample, the same for the same tokens."""
    generator = _generator(model, side, str(tokens))
    return [[int(n) for n in generator.multinomial(tokens * TOP_K, layer)] for layer in expert_loads(model, side)]


def trivial_placement(slots: int = EXPERTS) -> list[list[int]]:
    return [[slot % EXPERTS for slot in range(slots)]] * LAYERS


def misfit(placement: Sequence[Sequence[int]], model: str, side: str, ranks: int) -> float:
    """0: every rank has the same work; 1: as uneven as the engine's own placement."""
    loads = expert_loads(model, side)
    return _excess(placement, loads, ranks) / _excess(trivial_placement(), loads, ranks)


def refusal(placement: object, slots: int, ranks: int) -> str | None:
    """Why the engine cannot load this placement, in its own words; None if it can."""
    if not isinstance(placement, list) or len(placement) != LAYERS or slots % ranks:
        return f"physical_to_logical_map has not {LAYERS} layers for {ranks} ranks"
    if any(not isinstance(layer, list) or len(layer) != slots for layer in placement):
        return "physical_to_logical_map.shape[-1] == num_physical_experts"
    if any(set(layer) != set(range(EXPERTS)) for layer in placement):
        return "an expert has no physical slot"
    return None


def _excess(placement: Sequence[Sequence[int]], loads: Floats, ranks: int) -> float:
    """Mean over layers of (highest rank / mean rank − 1)."""
    found = []
    for slots, layer in zip(placement, loads, strict=True):
        copies = np.bincount(slots, minlength=EXPERTS)
        per_rank = (layer / copies)[list(slots)].reshape(ranks, -1).sum(axis=1)
        found.append(float(per_rank.max() / per_rank.mean() - 1))
    return sum(found) / len(found)


def _generator(*names: str) -> np.random.Generator:
    seed = hashlib.sha256("/".join(names).encode()).digest()[:8]
    return np.random.default_rng(int.from_bytes(seed, "big"))
