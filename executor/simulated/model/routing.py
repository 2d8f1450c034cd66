"""Which data-parallel rank a request goes to, on either side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.simulated.model.decode import DecodeSide
from executor.simulated.model.prefill import PrefillSide
from executor.simulated.model.setup import Routing
from executor.simulated.model.workload import Request


class RankChoice:
    """Chooses ranks by the routing of each side; one counter per side for taking turns."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._turns = rng, {"prefill": 0, "decode": 0}

    def choose_prefill(self, side: PrefillSide, request: Request) -> int:
        if request.rank is not None:
            return request.rank % side.setup.dp
        if side.setup.routing is Routing.LONGEST_PREFIX:
            hits = [rank.cache.match(request.prompt) for rank in side.ranks]
            best = max(hits)
            return self._in_turn("prefill", [rank for rank, hit in enumerate(hits) if hit == best])
        return self._choose(side, "prefill")

    def choose_decode(self, side: DecodeSide) -> int:
        return self._choose(side, "decode")

    def _choose(self, side: PrefillSide | DecodeSide, name: str) -> int:
        ranks = range(side.setup.dp)
        match side.setup.routing:
            case Routing.RANDOM:
                return int(self._rng.integers(len(ranks)))
            case Routing.LEAST_LOADED:
                return min(ranks, key=side.load_of)
            case _:
                return self._in_turn(name, ranks)

    def _in_turn(self, name: str, ranks: Sequence[int]) -> int:
        self._turns[name] += 1
        return ranks[(self._turns[name] - 1) % len(ranks)]
