"""Expert loads of the simulated model, and how unevenly a placement spreads them over the ranks. Pure, seeded by names.

The loads are made up: what they exercise is the way record → fit → load. How much an uneven spread costs is the
calibrated factor of a layout that does not fit (docs/serving-model.md). Without numpy: a server starts without it.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence

LAYERS, EXPERTS = 8, 256
TOP_K = 8
SKEW = 0.8  # sigma of the logarithm of an expert's load


def expert_loads(model: str, side: str) -> list[list[float]]:
    """Share of each layer's tokens that each expert gets: [layer][expert]. Prefill and decode see other texts."""
    generator = _generator(model, side)
    raw = [[generator.lognormvariate(0.0, SKEW) for _ in range(EXPERTS)] for _ in range(LAYERS)]
    return [[load / sum(layer) for load in layer] for layer in raw]


def recorded_counts(model: str, side: str, tokens: int) -> list[list[int]]:
    """What a recorder counts of so many tokens: a sample, the same for the same tokens."""
    generator = _generator(model, side, str(tokens))

    def drawn(share: float) -> int:
        mean = share * tokens * TOP_K
        return max(0, round(generator.gauss(mean, math.sqrt(mean))))

    return [[drawn(share) for share in layer] for layer in expert_loads(model, side)]


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


def _excess(placement: Sequence[Sequence[int]], loads: Sequence[Sequence[float]], ranks: int) -> float:
    """Mean over layers of (highest rank / mean rank − 1)."""
    found = []
    for slots, layer in zip(placement, loads, strict=True):
        room = len(slots) // ranks
        copies = [slots.count(expert) for expert in range(EXPERTS)]
        per_rank = [sum(layer[e] / copies[e] for e in slots[r * room : (r + 1) * room]) for r in range(ranks)]
        found.append(max(per_rank) / (sum(per_rank) / ranks) - 1)
    return sum(found) / len(found)


def _generator(*names: str) -> random.Random:
    return random.Random(hashlib.sha256("/".join(names).encode()).hexdigest())
