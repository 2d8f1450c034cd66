"""The strategies by name: the opponents, the product's parts, and the product with each kind of language model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from agent.planner.llm_proposer import LlmProposer
from agent.planner.optimizer import OptimizerProposer
from agent.planner.port import Proposer
from agent.planner.rules import RuleProposer
from agent.planner.tpe import TpeProposer
from tests.bench.planner.models import MODELS
from tests.bench.planner.pool import BenchPool
from tests.bench.planner.product import ProductSession
from tests.bench.planner.strategies import (
    Session,
    run_one_change,
    run_one_change_by_role,
    run_random,
    run_tpe,
)

Strategy = Callable[[BenchPool, int, random.Random], Session]

HYBRID = "hybrid"
WITHOUT_MODEL = "rules + optimizer"


def product(suggesters: Callable[[], Sequence[Proposer]], model: Callable[[], LlmProposer] | None = None) -> Strategy:
    def run(pool: BenchPool, launches: int, chance: random.Random) -> Session:
        session = ProductSession(
            pool=pool,
            launches=launches,
            chance=chance,
            suggesters=suggesters(),
            planner=None if model is None else model(),
        )
        return session.run()

    return run


def _both() -> Sequence[Proposer]:
    return RuleProposer(), OptimizerProposer()


OPPONENTS: dict[str, Strategy] = {
    "random": run_random,
    "tpe": run_tpe,
    "one change": run_one_change,
    "one change by role": run_one_change_by_role,
}
PRODUCT: dict[str, Strategy] = {
    "rules": product(lambda: (RuleProposer(),)),
    "rules + TPE in the chain": product(lambda: (RuleProposer(), TpeProposer())),
    WITHOUT_MODEL: product(_both),
    HYBRID: product(_both, MODELS["sensible"]),
    "hybrid, bad model": product(_both, MODELS["bad"]),
    "hybrid, model down": product(_both, MODELS["down"]),
}
ROSTER: dict[str, Strategy] = OPPONENTS | PRODUCT
