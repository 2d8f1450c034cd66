"""What every configuration that was run came to, in the form that a surrogate learns from. Pure.

Only runs at a configuration's own screening load since the pool last shifted are told: others compare with nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from agent.planner.packet import ObservationPart, Side
from experiments.bottleneck import find_walls
from experiments.card import Wall
from experiments.comparison import metric_value
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.objective import Constraint
from experiments.serving_config import Role
from experiments.study import Study, TrialState
from experiments.tier_load import load_of
from experiments.trial import Reason, Tier

_SIDE_OF_WALL: Mapping[Wall, Side] = {
    Wall.PREFILL_SUPPLY: Side.PREFILL,
    Wall.CACHE: Side.PREFILL,
    Wall.DECODE_BATCH: Side.DECODE,
    Wall.MEMORY: Side.DECODE,
    Wall.CLIENT_SUPPLY: Side.CLIENT,
}

_SIDE_OF_ROLE: Mapping[Role, Side] = {Role.PREFILL: Side.PREFILL, Role.DECODE: Side.DECODE}


def observations_of(study: Study) -> tuple[ObservationPart, ...]:
    """One row per configuration, in the order in which they were first run."""
    since, groups = study.drift.since, defaultdict[str, list[TrialState]](list)
    for trial in study.trials.values():
        if _failed_by_itself(trial) or (trial.sample is not None and trial.position >= since):
            groups[trial.started.config.fingerprint()].append(trial)
    rows = (_row(study, trials) for trials in groups.values())
    return tuple(row for row in rows if row is not None)


def _failed_by_itself(trial: TrialState) -> bool:
    """A change that the installed engine cannot reach was never run: it says nothing about what can run."""
    record = trial.record
    if record is None or record.failure is None or record.failure.reason is Reason.NO_SIGNIFICANT_GAIN:
        return False
    return record.configuration_caused


def _row(study: Study, trials: list[TrialState]) -> ObservationPart | None:
    goal, config = study.goal, trials[0].started.config
    values = tuple(knob.current(config) for knob in goal.space.knobs)
    load = load_of(study, config, Tier.SCREENING)
    runs = [t for t in trials if t.sample is not None and t.sample.load == load]
    if not runs:
        if not any(map(_failed_by_itself, trials)):
            return None
        limits = (None,) * len(goal.constraints)
        side = _changed_side(study, trials[-1])
        return ObservationPart(values=values, runs=0, objective=None, limits=limits, side=side, infeasible=True)
    window = goal.screening.window
    return ObservationPart(
        values=values,
        runs=len(runs),
        objective=_mean(runs, goal.objective.metric, window),
        limits=tuple(_share(runs, constraint, window) for constraint in goal.constraints),
        side=_bound_side(runs),
        headroom=_headroom(runs),
        infeasible=False,
    )


def _mean(runs: list[TrialState], metric: str, window: WindowKind) -> float | None:
    found = [v for t in runs if t.sample is not None and (v := metric_value(t.sample, metric, window)) is not None]
    return sum(found) / len(found) if found else None


def _share(runs: list[TrialState], constraint: Constraint, window: WindowKind) -> float | None:
    """Above 1 is a violation, for a lower limit as well."""
    if METRICS[constraint.metric].field is None or not constraint.bound.limit:
        return None
    value = _mean(runs, constraint.metric, window)
    if value is None:
        return None
    share = value / constraint.bound.limit
    return share if constraint.bound.is_upper else 1 / share if share > 0 else None


def _bound_side(runs: list[TrialState]) -> Side:
    """By the newest run that left evidence; unknown where none or more than one side is shown."""
    for trial in reversed(runs):
        if trial.record is not None and trial.record.evidence is not None:
            walls = find_walls(trial.record.evidence.figures())
            sides = {_SIDE_OF_WALL[w.wall] for w in walls if w.wall in _SIDE_OF_WALL}
            return sides.pop() if len(sides) == 1 else Side.UNKNOWN
    return Side.UNKNOWN


def _headroom(runs: list[TrialState]) -> float | None:
    """What decode could do beyond what it did: running the share s of what it may, at most 1/s of it."""
    shares = [
        share
        for trial in runs
        if trial.record is not None and trial.record.evidence is not None
        if (share := trial.record.evidence.decode.running_share_of_cap.value) is not None and share > 0
    ]
    return len(shares) / sum(shares) if shares else None


def _changed_side(study: Study, trial: TrialState) -> Side:
    """A configuration that could not run differs from one that could by its card's change."""
    card = study.cards.get(trial.started.card_digest or "")
    roles = {part.role for part in card.draft.change.parts} if card is not None else set()
    return _SIDE_OF_ROLE.get(roles.pop(), Side.UNKNOWN) if len(roles) == 1 else Side.UNKNOWN
