"""The course of a study as points: every run at its time and load, and the incumbent's level as it changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agent.ledger.history import History, mean_of
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.study import TrialState
from experiments.trial import Route, Tier


class Mark(StrEnum):
    INCUMBENT = "incumbent"
    PROMISING = "promising"
    KEPT = "kept"
    NEGATIVE = "negative"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Point:
    hours: float
    value: float
    mark: Mark


@dataclass(frozen=True, kw_only=True)
class Panel:
    """All runs of one N in one window. `levels` are the incumbent's means, each from its time on."""

    requests: int
    window: WindowKind
    points: tuple[Point, ...]
    levels: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Progress:
    metric: str
    panels: tuple[Panel, ...]
    faults: tuple[float, ...]  # hours; a fault has a time and never a value
    hours: float


def progress_of(history: History) -> Progress:
    goal = history.study.goal
    loads = dict.fromkeys(
        (
            (goal.scenario.load.requests, goal.objective.window),
            (goal.screening.requests, goal.screening.window),
        )
    )
    faults = [i.trial.finished_at for i in history.incidents()]
    return Progress(
        metric=goal.objective.metric,
        panels=tuple(_panel(history, requests, window) for requests, window in loads),
        faults=tuple(_hours(history, at) for at in faults if at is not None),
        hours=_hours(history, history.study.last_at),
    )


def _panel(history: History, requests: int, window: WindowKind) -> Panel:
    metric = METRICS[history.study.goal.objective.metric]
    points = []
    for trial in history.study.trials.values():
        if trial.sample is None or trial.sample.load.requests != requests or trial.finished_at is None:
            continue
        value = metric.of(trial.sample.measurement, window)
        if value is not None:
            points.append(Point(_hours(history, trial.finished_at), value, _mark(history, trial)))
    return Panel(requests=requests, window=window, points=tuple(points), levels=_levels(history, requests, window))


def _mark(history: History, trial: TrialState) -> Mark:
    if trial.started.card_digest is None:
        return Mark.INCUMBENT
    if trial.classification is None:
        return Mark.UNDECIDED
    if trial.classification.route is not Route.PROMISING:
        return Mark.NEGATIVE
    attempt = history.attempt(trial.started.card_digest)
    kept = attempt is not None and attempt.kept is not None and trial.started.tier is Tier.CONFIRMATION
    return Mark.KEPT if kept else Mark.PROMISING


def _levels(history: History, requests: int, window: WindowKind) -> tuple[tuple[float, float], ...]:
    """The mean of every run of each incumbent at this load, screening runs left out, from when it took over."""
    study, field = history.study, METRICS[history.study.goal.objective.metric].field or ""
    adopted = [(study.opened.starting, study.opened.at), *((k.config, k.at) for k in study.kept)]
    levels = []
    for config, at in adopted:
        fingerprint = config.fingerprint()
        runs = [
            t
            for t in study.trials.values()
            if t.sample is not None
            and t.sample.fingerprint == fingerprint
            and t.sample.load.requests == requests
            and t.sample.tier is not Tier.SCREENING
        ]
        mean = mean_of(runs, field, window)
        if mean is not None:
            levels.append((_hours(history, at), mean))
    return tuple(levels)


def _hours(history: History, at: datetime) -> float:
    return (at - history.study.opened.at).total_seconds() / 3600
