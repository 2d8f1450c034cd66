"""Which optimizer stands behind the port, by the goal's `planner.optimizer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.planner.optimizer import OptimizerProposer
from agent.planner.port import Proposer
from agent.planner.tpe import TpeProposer

OPTIMIZERS: Mapping[str, Callable[[], Proposer]] = {"surrogate": OptimizerProposer, "tpe": TpeProposer}


def optimizer_of(name: str) -> Proposer:
    return OPTIMIZERS[name]()
