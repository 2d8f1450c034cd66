"""The configurations among which a reader may choose: valid runs at one load, and which of them nothing dominates.

Only runs of one N are put beside one another. A configuration that breaks a constraint is shown, but never in the set.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from agent.ledger.history import START, History, fingerprint_of
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.study import TrialState
from experiments.trial import Tier
from experiments.verdict import noise_of, violations


@dataclass(kw_only=True)
class Choice:
    """One configuration at one load, as the mean of its runs."""

    name: str
    runs: list[TrialState]
    values: dict[str, float | None]
    violated: tuple[str, ...]
    is_kept: bool
    is_dominated: bool = False

    @property
    def is_candidate(self) -> bool:
        return not self.violated and all(v is not None for v in self.values.values())


@dataclass(frozen=True, kw_only=True)
class ChoiceSet:
    """All choices at one N, judged in one window."""

    requests: int
    window: WindowKind
    metrics: tuple[str, ...]
    tolerance: float  # relative; figures that are closer count as equal
    choices: tuple[Choice, ...]

    @property
    def front(self) -> tuple[Choice, ...]:
        return tuple(c for c in self.choices if c.is_candidate and not c.is_dominated)


def choice_metrics(history: History) -> tuple[str, ...]:
    """The objective, the constrained and the reported figures that have a better side and a window."""
    goal = history.study.goal
    named = (goal.objective.metric, *(c.metric for c in goal.constraints), *goal.report)
    usable = [m for m in named if METRICS[m].field is not None and METRICS[m].better is not None]
    return tuple(dict.fromkeys(usable))


def choice_set(history: History, requests: int, window: WindowKind, *, selected: bool) -> ChoiceSet:
    """`selected` False leaves out screening runs: a run that selected a configuration flatters it."""
    groups: dict[str, list[TrialState]] = defaultdict(list)
    for trial in history.study.trials.values():
        sample = trial.sample
        if sample is None or sample.load.requests != requests:
            continue
        if selected or sample.tier is not Tier.SCREENING:
            groups[fingerprint_of(trial)].append(trial)
    metrics = choice_metrics(history)
    kept = {k.config.fingerprint() for k in history.study.kept}
    choices = [
        _choice(history, runs, metrics, window, is_kept=fingerprint in kept) for fingerprint, runs in groups.items()
    ]
    noise = noise_of(history.study, history.study.goal.objective.metric, window)
    tolerance = 2 * noise.relative_sd
    mark_dominated([c for c in choices if c.is_candidate], tolerance)
    return ChoiceSet(requests=requests, window=window, metrics=metrics, tolerance=tolerance, choices=tuple(choices))


def _choice(
    history: History, runs: list[TrialState], metrics: tuple[str, ...], window: WindowKind, *, is_kept: bool
) -> Choice:
    values = {metric: _mean(runs, metric, window) for metric in metrics}
    samples = [r.sample for r in runs if r.sample is not None]
    return Choice(
        name=history.names.get(fingerprint_of(runs[0]), START),
        runs=runs,
        values=values,
        violated=violations(history.study, samples, window),
        is_kept=is_kept,
    )


def _mean(runs: list[TrialState], metric: str, window: WindowKind) -> float | None:
    """None unless every run has the value in a window that meets the goal's floor."""
    values = []
    for run in runs:
        found = run.sample.measurement.window(window) if run.sample is not None else None
        value = METRICS[metric].read(found) if found is not None and found.meets_floor else None
        if value is None:
            return None
        values.append(value)
    return sum(values) / len(values)


def mark_dominated(candidates: list[Choice], tolerance: float) -> None:
    """A choice is dominated by one that is at least as good in every figure and better, beyond noise, in one."""
    points = {id(c): _point(c) for c in candidates}
    front: list[tuple[float, ...]] = []
    # In this order nothing can be dominated by a later point, so the front only ever grows.
    for point in sorted(points.values(), reverse=True):
        if not any(_dominates(other, point, 0.0) for other in front):
            front.append(point)
    for choice in candidates:
        choice.is_dominated = any(_dominates(other, points[id(choice)], tolerance) for other in front)


def _point(choice: Choice) -> tuple[float, ...]:
    """Every figure with its sign turned so that more is better."""
    return tuple((value or 0.0) * (1 if METRICS[metric].maximise else -1) for metric, value in choice.values.items())


def _dominates(better: tuple[float, ...], point: tuple[float, ...], tolerance: float) -> bool:
    pairs = list(zip(better, point, strict=True))
    return all(a >= b for a, b in pairs) and any(a - b > tolerance * abs(b) for a, b in pairs)
