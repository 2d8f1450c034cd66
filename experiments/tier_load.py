"""The load of a configuration at a tier: C and r are settings of the configuration, N belongs to the tier."""

from __future__ import annotations

from experiments.serving_config import Kind, Path, Role, ServingConfig
from experiments.study import Study
from experiments.trial import Tier, TrialLoad

CONCURRENCY = Path(Role.CLIENT, Kind.CLIENT, "concurrency")
RATE = Path(Role.CLIENT, Kind.CLIENT, "rate")


def load_of(study: Study, config: ServingConfig, tier: Tier) -> TrialLoad:
    """What the client is told. The formal N is the scenario's; every other tier uses the screening N."""
    goal = study.goal
    formal = tier is Tier.CONFIRMATION
    concurrency, rate = config.get(CONCURRENCY), config.get(RATE)
    cache = goal.scenario.cache
    return TrialLoad(
        requests=goal.scenario.load.requests if formal else goal.screening.requests,
        concurrency=int(concurrency) if concurrency is not None else goal.scenario.load.concurrency,
        rate=float(rate) if rate is not None else goal.scenario.load.rate,
        cache="zero" if cache.state == "zero" else f"warm>={cache.per_request_min:g}",
    )
