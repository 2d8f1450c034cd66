"""The configurations among which a user may choose, and the choice itself, from records alone: nothing is run for it.

Only valid runs at one N and in one window stand beside one another. A configuration that breaks a constraint is listed
and never chosen. Figures that differ by no more than their noise count as equal.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge

from experiments.comparison import Sample, metric_value
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.serving_config import Change, ServingConfig, diff
from experiments.study import Study
from experiments.trial import Tier
from experiments.verdict import noise_of, violations

STANDARD_ERRORS = 2.0  # between two means: closer than this they count as equal


@dataclass(frozen=True, kw_only=True)
class Option:
    """One configuration at the formal load, as the mean of its valid runs. `None` is a figure not observed."""

    name: str
    config: ServingConfig
    changes: tuple[Change, ...]  # against the configuration that the study started from
    trial_ids: tuple[str, ...]
    values: Mapping[str, float | None]
    tolerance: float  # relative standard error of its means, times `STANDARD_ERRORS`
    violated: tuple[str, ...]
    is_kept: bool
    is_dominated: bool = False

    @property
    def is_candidate(self) -> bool:
        """Keeps every constraint, and every figure of the choice was observed."""
        return not self.violated and all(value is not None for value in self.values.values())


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The answer to "which one if I prefer this figure": the best option and those no worse within the noise."""

    metric: str
    option: Option
    equal: tuple[Option, ...]


def choice_metrics(study: Study) -> tuple[str, ...]:
    """The objective, then the constrained and the reported figures: those with a better side and a window."""
    goal = study.goal
    named = (goal.objective.metric, *(c.metric for c in goal.constraints), *goal.report)
    return tuple(dict.fromkeys(m for m in named if METRICS[m].field is not None and METRICS[m].better is not None))


@dataclass(frozen=True, kw_only=True)
class OptionSet:
    """All options at one N, judged in one window."""

    requests: int
    window: WindowKind
    metrics: tuple[str, ...]
    options: tuple[Option, ...]

    @property
    def front(self) -> tuple[Option, ...]:
        return non_dominated(self.options)


def option_set(study: Study, requests: int | None = None) -> OptionSet:
    """Every configuration with a valid run at this N (None: the formal one), marked where another one dominates it.

    After a shift of the pool only runs since then count. Kept or not: "C128 and C90 both stay". At the formal N
    screening runs are left out; at the screening N they are all there is, and the run that selected a configuration
    flatters it.
    """
    formal = study.goal.scenario.load.requests
    wanted = formal if requests is None else requests
    window = study.goal.objective.window if wanted == formal else study.goal.screening.window
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in study.all_samples():
        usable = sample.tier is not Tier.SCREENING or wanted != formal
        if sample.load.requests == wanted and usable and sample.position >= study.drift.since:
            groups[sample.fingerprint].append(sample)
    names, metrics = _names(study), choice_metrics(study)
    noise = noise_of(study, study.goal.objective.metric, window).relative_sd
    options = [_option(study, runs, window, names, noise) for runs in groups.values()]
    return OptionSet(requests=wanted, window=window, metrics=metrics, options=_mark_dominated(options))


def non_dominated(options: Sequence[Option]) -> tuple[Option, ...]:
    return tuple(o for o in options if o.is_candidate and not o.is_dominated)


def choose(study: Study, found: OptionSet, prefer: str) -> Choice | None:
    """The option with the best `prefer` among those that nothing dominates; None where there is none.

    Of options that are equal within the noise, the one with the best objective is named and the others are told.
    Raises ValueError if the goal neither reports nor constrains this figure.
    """
    if prefer not in found.metrics:
        raise ValueError(f"{prefer[:60]!r} is not among the figures of this study: {', '.join(found.metrics)}")
    front = found.front
    if not front:
        return None
    best = max(front, key=lambda o: _signed(o, prefer))
    near = [o for o in front if o is best or not _better(best, o, prefer)]
    objective = study.goal.objective.metric
    chosen = max(near, key=lambda o: _signed(o, objective))
    return Choice(metric=prefer, option=chosen, equal=tuple(o for o in near if o is not chosen))


def _names(study: Study) -> dict[str, str]:
    """By fingerprint. A configuration goes by the card that first tried it; the first one of all is `start`."""
    cards = {card.config.fingerprint(): card.name for card in reversed(study.cards.values())}
    return {**cards, study.opened.starting.fingerprint(): "start"}


def _option(
    study: Study, runs: list[Sample], window: WindowKind, names: Mapping[str, str], relative_sd: float
) -> Option:
    config = runs[0].config
    return Option(
        name=names.get(runs[0].fingerprint, runs[0].fingerprint),
        config=config,
        changes=diff(study.opened.starting, config),
        trial_ids=tuple(run.trial_id for run in runs),
        values={metric: _mean(runs, metric, window) for metric in choice_metrics(study)},
        tolerance=STANDARD_ERRORS * relative_sd / math.sqrt(len(runs)),
        violated=violations(study, runs, window),
        is_kept=any(kept.config == config for kept in study.kept),
    )


def _mean(runs: Sequence[Sample], metric: str, window: WindowKind) -> float | None:
    """None unless every run has the figure in a window that meets the goal's floor."""
    values = []
    for run in runs:
        found = run.measurement.window(window)
        value = metric_value(run, metric, window) if found is not None and found.meets_floor else None
        if value is None:
            return None
        values.append(value)
    return sum(values) / len(values)


def _mark_dominated(options: Sequence[Option]) -> tuple[Option, ...]:
    """Only an option to which nothing is superior by its bare figures can drive another one out: few of many."""
    points = {id(option): _point(option) for option in options if option.is_candidate}
    front: list[Option] = []
    # In this order nothing is superior to an earlier one, so the front only ever grows.
    for option in sorted((o for o in options if id(o) in points), key=lambda o: points[id(o)], reverse=True):
        point = points[id(option)]
        if not any(_is_no_worse(points[id(other)], point) and points[id(other)] != point for other in front):
            front.append(option)
    return tuple(
        _dominated(o) if id(o) in points and any(_dominates(f, o, points[id(f)], points[id(o)]) for f in front) else o
        for o in options
    )


def _point(option: Option) -> tuple[float, ...]:
    """Every figure with its sign turned so that more is better."""
    return tuple(_signed(option, metric) for metric in option.values)


def _is_no_worse(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(map(ge, one, other))


def _dominated(option: Option) -> Option:
    return Option(**{**vars(option), "is_dominated": True})


def _dominates(better: Option, option: Option, one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Better beyond the noise in one figure, and in none worse as measured.

    The second half asks no tolerance, so that no option can be driven out by one that is itself a little worse
    somewhere: at least one of any set always stays.
    """
    return _is_no_worse(one, other) and any(_better(better, option, m) for m in option.values)


def _better(one: Option, other: Option, metric: str) -> bool:
    """Whether `one` is better than `other` by more than the noise of their means."""
    a, b = _signed(one, metric), _signed(other, metric)
    return a - b > math.hypot(one.tolerance, other.tolerance) * abs(b)


def _signed(option: Option, metric: str) -> float:
    """The figure with its sign turned so that more is better."""
    value = option.values[metric]
    return (value if value is not None else float("-inf")) * (1 if METRICS[metric].maximise else -1)
