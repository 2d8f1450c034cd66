"""Watch the incumbent's own runs for a shift of the pool, as a fold over runs. Decides nothing about a card.

One run beyond the noise is a suspicion: nothing is kept until the incumbent has been measured once more. A second run
beyond it on the same side is a shift: only runs from then on are compared with one another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from experiments.comparison import Sample, metric_value
from experiments.goal import Goal
from experiments.measurement import WindowKind
from experiments.statistics import student_t
from experiments.trial import Tier, TrialLoad

# Two-sided probability of a run beyond the noise of a pool that holds still: to suspect, and to believe.
SUSPECT = 0.005
BELIEVE = 0.02
LEAST_DF = 3  # repeats of the pool itself; the goal's assumption about the noise proves no shift

INCUMBENT_TIERS = frozenset({Tier.BASELINE, Tier.SENTINEL})


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A change of the incumbent against its own earlier runs. One trial suspects it, two show it."""

    position: int  # of the first run that shows it
    load: TrialLoad
    change: float  # relative, of the mean of `trial_ids`
    trial_ids: tuple[str, ...]


@dataclass(kw_only=True)
class _Group:
    """Runs of one configuration at one load since the last shift: count, mean and squared deviations (Welford)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self.squares += step * (value - self.mean)

    @property
    def relative_squares(self) -> float:
        return self.squares / self.mean**2 if self.n > 1 else 0.0


Key = tuple[str, TrialLoad]


@dataclass(kw_only=True)
class DriftWatch:
    """What the runs so far say about the pool. Made with the study and fed with each valid run."""

    goal: Goal
    shifts: list[Shift] = field(default_factory=list)
    suspected: Shift | None = None
    _groups: dict[Key, _Group] = field(default_factory=dict)  # everything measured, for the noise
    _reference: dict[Key, _Group] = field(default_factory=dict)  # the incumbent's runs that a new one is held against
    _squares: float = 0.0
    _df: float = 0.0
    _doubtful: tuple[Key, float] | None = None

    @property
    def since(self) -> int:
        """The position from which runs belong to the present state of the pool."""
        return self.shifts[-1].position if self.shifts else 0

    def observe(self, sample: Sample) -> None:
        value = metric_value(sample, self.goal.objective.metric, self._window(sample.load))
        if value is None or value <= 0:
            return
        key = (sample.fingerprint, sample.load)
        if sample.tier not in INCUMBENT_TIERS:
            self._learn(key, value)
        elif self.suspected is None:
            self._watch(key, value, sample)
        else:
            self._settle(key, value, sample, self.suspected)

    def _window(self, load: TrialLoad) -> WindowKind:
        is_formal = load.requests == self.goal.scenario.load.requests
        return self.goal.objective.window if is_formal else self.goal.screening.window

    def _watch(self, key: Key, value: float, sample: Sample) -> None:
        change = self._beyond(key, value, SUSPECT)
        if change is None:
            self._accept(key, value)
            return
        self._doubtful = (key, value)
        self.suspected = Shift(position=sample.position, load=sample.load, change=change, trial_ids=(sample.trial_id,))

    def _settle(self, key: Key, value: float, sample: Sample, suspected: Shift) -> None:
        change = self._beyond(key, value, BELIEVE)
        doubtful, self._doubtful, self.suspected = self._doubtful, None, None
        if change is not None and (change > 0) is (suspected.change > 0):
            self._begin_anew(suspected, change, sample.trial_id)
        if doubtful is not None:
            self._accept(*doubtful)
        self._accept(key, value)

    def _begin_anew(self, suspected: Shift, change: float, trial_id: str) -> None:
        shift = Shift(
            position=suspected.position,
            load=suspected.load,
            change=(suspected.change + change) / 2,
            trial_ids=(*suspected.trial_ids, trial_id),
        )
        self.shifts.append(shift)
        self._reference.clear()
        self._groups.clear()  # what they taught about the noise stays in the sums

    def _beyond(self, key: Key, value: float, probability: float) -> float | None:
        """The relative change against the earlier runs if it is beyond the noise, else None."""
        reference = self._reference.get(key)
        if reference is None or self._df < LEAST_DF:
            return None
        sd = math.sqrt(self._squares / self._df)
        limit = student_t(self._df, 1 - probability / 2) * sd * math.sqrt(1 + 1 / reference.n)
        change = math.log(value / reference.mean)
        return math.expm1(change) if abs(change) > limit else None

    def _accept(self, key: Key, value: float) -> None:
        self._reference.setdefault(key, _Group()).add(value)
        self._learn(key, value)

    def _learn(self, key: Key, value: float) -> None:
        group = self._groups.setdefault(key, _Group())
        before = group.relative_squares
        group.add(value)
        self._squares += group.relative_squares - before
        self._df += group.n > 1
