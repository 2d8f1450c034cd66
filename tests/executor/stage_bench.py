"""Contexts of trials on two embedded hosts, for tests of single stages. Not a test."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import agent
from executor.clock import SystemClock
from executor.pool import Pool
from executor.remote_host import RemoteHost
from executor.trial_context import TrialContext
from executor.trial_plan import TrialPlan
from experiments.baseline import parse_baseline
from experiments.goal import parse_goal
from experiments.serving_config import ServingConfig
from experiments.trial import Tier, TrialLoad

DEMO = Path(str(agent.__file__)).parent / "demo" / "16k-zero-cache"
GOAL = parse_goal((DEMO / "goal.yaml").read_bytes(), "goal.yaml")
BASELINE = parse_baseline((DEMO / "baseline.yaml").read_bytes(), "baseline.yaml")
numbers = itertools.count(1)


@dataclass
class Bench:
    """The hosts, and contexts of trials on them."""

    pool: Pool
    hosts: Mapping[str, RemoteHost]
    study: str = field(default_factory=lambda: f"study-{next(numbers)}")

    def trial(self, config: ServingConfig, parent: ServingConfig | None = None) -> TrialContext:
        load = GOAL.scenario.load
        plan = TrialPlan(
            study_id=self.study,
            trial_id=f"{self.study}-t{next(numbers):03d}",
            tier=Tier.SCREENING,
            config=config,
            parent=parent,
            scenario=GOAL.scenario,
            load=TrialLoad(requests=320, concurrency=load.concurrency, rate=load.rate, cache="zero"),
            floor=GOAL.window_floor,
            native_rule=GOAL.native_rule,
        )
        return TrialContext(
            plan=plan,
            pool=self.pool,
            hosts=self.hosts,
            gate=lambda _: None,
            clock=SystemClock(),
            report=lambda _: None,
            artifacts=Path("/nonexistent"),
        )

    def questions(self) -> int:
        return sum(".ask-" in job.job_id for host in self.hosts.values() for job in host.jobs() if self.is_ours(job))

    def is_ours(self, job: object) -> bool:
        return str(getattr(job, "job_id", "")).startswith(f"{self.study}.")
