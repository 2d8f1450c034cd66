"""How long a trial takes, from what its stages took before. Pure."""

from __future__ import annotations

from collections import defaultdict

from executor.pool import Pool
from experiments.study import Study
from experiments.trial import EVALUATION, OPTIONAL, Stage

MARGIN = 1.25  # runs differ; an estimate that is too short would let a load run past the end of the lease


def expected_s(study: Study, pool: Pool, *, requests: int) -> float:
    """Seconds of a whole trial with this many requests: the slowest seen of each stage, with a margin.

    A stage that was never seen counts with its time-out: what is not known to fit is not started. Those that most
    trials do not have count from when they were seen; each asks again before it begins.
    """
    return sum(stage_estimates(study, pool, requests=requests).values())


def stage_estimates(study: Study, pool: Pool, *, requests: int) -> dict[Stage, float]:
    seen: dict[Stage, list[float]] = defaultdict(list)
    for trial in study.trials.values():
        if trial.record is None:
            continue
        scale = max(1.0, requests / trial.started.load.requests)
        for time in trial.record.stages:
            seen[time.stage].append(time.seconds * (scale if time.stage is Stage.MEASURE else 1.0))
    return {
        stage: min(pool.timeouts.of(stage), max(seen[stage]) * MARGIN) if seen[stage] else pool.timeouts.of(stage)
        for stage in Stage
        if stage is not Stage.EVALUATE and (seen[stage] or stage not in OPTIONAL)
    }


def evaluation_s(study: Study, pool: Pool) -> float:
    """Seconds of an evaluation with the start of its service: the longest that was seen, else the time-outs."""
    stages = stage_estimates(study, pool, requests=1)
    took = [entry.seconds for entry in study.all_evaluations() if entry.seconds is not None]
    limit = pool.timeouts.of(Stage.EVALUATE)
    command = min(limit, max(took) * MARGIN) if took else limit
    return command + sum(stages.get(stage, 0.0) for stage in EVALUATION if stage is not Stage.EVALUATE)
