"""What the study cost and how well the loop worked. Stage times may be added because stages never nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from agent.ledger.history import Attempt, History
from experiments.card import novelty_key
from experiments.measurement import WindowKind
from experiments.study import TrialState
from experiments.trial import Route, Sent, Stage, TrialRecord


@dataclass(frozen=True, kw_only=True)
class StageCost:
    stage: Stage
    attempts: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LoopFigures:
    """How well the loop itself worked. Shares are None where there is nothing to take a share of."""

    cards: int
    decided: int
    time_to_decision_median_s: float | None
    time_to_decision_max_s: float | None
    changed_a_choice: float | None
    repeated_negatives: int
    resends: int
    first_time_complete: float | None
    hot_cards: int
    one_run_negatives: float | None


def stage_costs(history: History) -> list[StageCost]:
    seconds: dict[Stage, list[float]] = {stage: [] for stage in Stage}
    for record in records(history):
        for time in record.stages:
            seconds[time.stage].append(time.seconds)
    return [
        StageCost(stage=stage, attempts=len(times), seconds=sum(times)) for stage, times in seconds.items() if times
    ]


def records(history: History) -> list[TrialRecord]:
    return [t.record for t in history.study.trials.values() if t.record is not None]


def formal_window_seconds(history: History) -> float:
    """The sum of the whole windows: the only time in which a load was being measured."""
    return sum(
        window.duration_s
        for record in records(history)
        if record.measurement is not None and (window := record.measurement.window(WindowKind.WHOLE)) is not None
    )


def loop_figures(history: History) -> LoopFigures:
    closed = [a for a in history.attempts if a.closed is not None]
    waits = [(a.closed.at - a.admitted_at).total_seconds() for a in closed if a.closed is not None]
    finished = records(history)
    negatives = [a for a in closed if _route(a) is Route.VALID_NEGATIVE]
    complete = sum(1 for r in finished if not r.faults and (r.failure is None or r.configuration_caused))
    return LoopFigures(
        cards=len(history.attempts),
        decided=len(closed),
        time_to_decision_median_s=median(waits) if waits else None,
        time_to_decision_max_s=max(waits) if waits else None,
        changed_a_choice=_share(sum(1 for a in closed if a.kept is not None), len(closed)),
        repeated_negatives=repeated_negatives(history.attempts),
        resends=sum(resends(t) for t in history.study.trials.values()),
        first_time_complete=_share(complete, len(finished)),
        hot_cards=sum(1 for a in history.attempts if a.card.cost == "hot"),
        one_run_negatives=_share(sum(1 for a in negatives if len(a.trials) == 1), len(negatives)),
    )


def _route(attempt: Attempt) -> Route | None:
    return None if attempt.closed is None else attempt.closed.classification.route


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def repeated_negatives(attempts: Sequence[Attempt]) -> int:
    """Cards that try a change again which was refuted on the same configuration in the same scenario."""
    refuted: set[tuple[object, str, str]] = set()
    repeated = 0
    for attempt in attempts:
        card = attempt.card
        key = (novelty_key(card.draft.change), card.parent_fingerprint, card.scenario_digest)
        repeated += key in refuted
        if _route(attempt) is Route.VALID_NEGATIVE:
            refuted.add(key)
    return repeated


def resends(trial: TrialState) -> int:
    """Attempts of `measure` that began although an earlier attempt's load was sent, or may have been."""
    record = trial.record
    if record is None:
        return 0
    # A trial whose load is known never to have gone out may try again; any other second attempt is a re-send.
    sent = [f.attempt for f in record.faults if f.stage is Stage.MEASURE and f.sent is not Sent.NOT_SENT]
    first = min(sent, default=None)
    if first is None:
        return 0
    return len({s.attempt for s in record.stages if s.stage is Stage.MEASURE and s.attempt > first})
