"""What every strategy of the planner benchmark runs against: configurations with a known truth and noisy runs.

A run comes back as the product's own `TrialRecord`: this is the executor's border, and nothing above it is modelled.
All figures are simulated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from experiments.evidence import ServingEvidence
from experiments.goal import Goal
from experiments.measurement import Measurement, WindowKind, WindowMetrics
from experiments.metric import metric
from experiments.serving_config import ServingConfig
from experiments.trial import Reason, Sent, Stage, StageFault, TrialLoad, TrialRecord


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What a configuration does without noise. `runs` is False where it runs out of memory."""

    runs: bool
    request_per_s: float = 0.0
    tpot_ms: float = 0.0
    ttft_s: float = 0.0


class BenchPool(Protocol):
    """`launches` counts from 0 and is the pool's clock: drift and faults depend on it."""

    @property
    def goal(self) -> Goal: ...

    @property
    def starting(self) -> ServingConfig: ...

    @property
    def optimum(self) -> float:
        """The best objective of any configuration that runs and keeps every limit."""
        ...

    def worth(self, config: ServingConfig) -> float:
        """The true objective, 0 where the configuration cannot run or breaks a limit."""
        ...

    def run(self, config: ServingConfig, load: TrialLoad, trial_id: str, chance: random.Random) -> TrialRecord: ...


def keeps_limits(goal: Goal, truth: Truth) -> bool:
    values = {"tpot_mean": truth.tpot_ms, "ttft_mean": truth.ttft_s}
    return all(c.bound.holds(values[c.metric]) for c in goal.constraints)


def measured(
    truth: Truth, load: TrialLoad, trial_id: str, *, output_tokens: int, cards: int, evidence: ServingEvidence
) -> TrialRecord:
    """A valid run. The only window is the whole run: a landscape has no ramp."""
    window = WindowMetrics(
        kind=WindowKind.WHOLE,
        rule="whole",
        meets_floor=True,
        n_requests=load.requests,
        duration_s=load.requests / truth.request_per_s,
        output_tok_s=truth.request_per_s * output_tokens,
        output_tok_s_per_card=truth.request_per_s * output_tokens / cards,
        request_per_s=truth.request_per_s,
        ttft_mean_s=truth.ttft_s,
        tpot_mean_ms=truth.tpot_ms,
    )
    return TrialRecord(
        trial_id=trial_id,
        measurement=Measurement(
            client="aisbench",
            client_version=None,
            windows=(window,),
            n_planned=load.requests,
            n_succeeded=load.requests,
            n_failed=0,
            input_tokens=None,
            output_tokens=load.requests * output_tokens,
            cached_tokens=None,
            accept_length=None,
            checks=(),
            raw_sha256="0" * 64,
            simulated=True,
        ),
        evidence=evidence,
        sent=Sent.FINISHED,
        server_version="simulated",
    )


def failed(trial_id: str, reason: Reason, detail: str, *, configuration_caused: bool) -> TrialRecord:
    fault = StageFault(stage=Stage.READY, attempt=1, reason=reason, sent=Sent.NOT_SENT, detail=detail)
    return TrialRecord(trial_id=trial_id, failure=fault, sent=Sent.NOT_SENT, configuration_caused=configuration_caused)


def objective_of(record: TrialRecord, goal: Goal) -> float | None:
    """What a strategy without a ledger reads of a run: its objective, 0 beyond a limit, None if it could not run."""
    if record.measurement is None:
        return None
    window = record.measurement.windows[0]
    if not all(c.bound.holds(metric(c.metric).read(window)) for c in goal.constraints):
        return 0.0
    return metric(goal.objective.metric).read(window)
