"""How well the loop itself works, and what it costs, from the fold alone. Times are seconds of wall time.

Stages never nest, so their times may be added; a request's latency is no wall time and is never added to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from experiments.card import novelty_key
from experiments.knob import Cost
from experiments.ledger import CardAdmitted, CardClosed, LedgerEntry
from experiments.measurement import WindowKind
from experiments.study import Study, TrialState
from experiments.trial import Route, Sent, Stage, StageTime, TrialRecord

# What a study would have to do for the measured load itself: cache preparation belongs to the goal, not to us.
ASKED_BY_THE_GOAL = frozenset({Stage.CACHE})


@dataclass(frozen=True, kw_only=True)
class StageCost:
    stage: Stage
    attempts: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TrialCost:
    """Where the wall time of one trial went. The parts add up to `total_s`; `overlap_s` is what was not counted twice.

    `beyond_s` is the controller's time beyond the formal window; `beyond_without_cache_s` the same without the cache
    preparation that the goal asks for. Both are None for a trial without a measured window.
    """

    trial_id: str
    stages: tuple[StageCost, ...]
    total_s: float
    overlap_s: float
    formal_s: float | None

    @property
    def beyond_s(self) -> float | None:
        return None if self.formal_s is None else self.total_s - self.formal_s

    @property
    def beyond_without_cache_s(self) -> float | None:
        beyond = self.beyond_s
        if beyond is None:
            return None
        return beyond - sum(cost.seconds for cost in self.stages if cost.stage in ASKED_BY_THE_GOAL)


@dataclass(frozen=True, kw_only=True)
class LoopFigures:
    """Shares are None where there is nothing to take a share of."""

    cards: int
    decided: int
    time_to_decision_median_s: float | None
    time_to_decision_max_s: float | None
    changed_a_choice: float | None  # share of decided cards whose configuration was kept
    repeated_negatives: int
    resends: int
    first_time_complete: float | None  # share of ended trials without any fault
    runs_per_decision: float | None
    one_run_negatives: float | None  # share of negatives that a single run of the card closed
    hot_cards: int  # cards that reused the running service


def summarise_loop(study: Study, entries: Sequence[LedgerEntry]) -> LoopFigures:
    """`entries` are those that the study was folded from: only they say when a card was admitted and closed."""
    runs = Counter(t.started.card_digest for t in study.trials.values())
    negatives = [d for d, c in study.closed.items() if c.classification.route is Route.VALID_NEGATIVE]
    waits = times_to_decision(entries)
    ended = [t.record for t in study.trials.values() if t.record is not None]
    return LoopFigures(
        cards=len(study.cards),
        decided=len(study.closed),
        time_to_decision_median_s=median(waits) if waits else None,
        time_to_decision_max_s=max(waits) if waits else None,
        changed_a_choice=_share(sum(c.kept for c in study.closed.values()), len(study.closed)),
        repeated_negatives=repeated_negatives(study),
        resends=sum(resends(t) for t in study.trials.values()),
        first_time_complete=_share(sum(_is_complete(r) for r in ended), len(ended)),
        runs_per_decision=_share(sum(runs[digest] for digest in study.closed), len(study.closed)),
        one_run_negatives=_share(sum(runs[digest] == 1 for digest in negatives), len(negatives)),
        hot_cards=sum(card.cost is Cost.HOT for card in study.cards.values()),
    )


def times_to_decision(entries: Sequence[LedgerEntry]) -> list[float]:
    """From the admission of a card to its last word."""
    admitted: dict[str, datetime] = {}
    waits = []
    for entry in entries:
        match entry:
            case CardAdmitted():
                admitted[entry.card.digest] = entry.at
            case CardClosed():
                waits.append((entry.at - admitted[entry.card_digest]).total_seconds())
            case _:
                pass
    return waits


def repeated_negatives(study: Study) -> int:
    """Cards that try a change again which was refuted before on the same configuration in the same scenario."""
    refuted: set[tuple[object, str, str]] = set()
    repeated = 0
    for digest, card in study.cards.items():
        key = (novelty_key(card.draft.change), card.parent_fingerprint, card.scenario_digest)
        repeated += key in refuted
        closed = study.closed.get(digest)
        if closed is not None and closed.classification.route is Route.VALID_NEGATIVE:
            refuted.add(key)
    return repeated


def resends(trial: TrialState) -> int:
    """Attempts of `measure` that began although an earlier attempt's load was sent, or may have been."""
    record = trial.record
    if record is None:
        return 0
    sent = [f.attempt for f in record.faults if f.stage is Stage.MEASURE and f.sent is not Sent.NOT_SENT]
    if not sent:
        return 0
    return len({s.attempt for s in record.stages if s.stage is Stage.MEASURE and s.attempt > min(sent)})


def _is_complete(record: TrialRecord) -> bool:
    """At the first try: without a fault, or infeasible by the configuration's own doing."""
    return not record.faults and (record.failure is None or record.configuration_caused)


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def cost_of(record: TrialRecord) -> TrialCost:
    """Itemised wall time of one trial. Where stages overlap, the overlap is counted once, in the stage begun first."""
    seconds: dict[Stage, float] = {}
    attempts: dict[Stage, int] = {}
    overlap, until = 0.0, None
    for time in sorted(record.stages, key=lambda s: s.began):
        counted = _beyond(time, until)
        overlap += time.seconds - counted
        seconds[time.stage] = seconds.get(time.stage, 0.0) + counted
        attempts[time.stage] = attempts.get(time.stage, 0) + 1
        end = time.began.timestamp() + time.seconds
        until = end if until is None else max(until, end)
    window = None if record.measurement is None else record.measurement.window(WindowKind.WHOLE)
    return TrialCost(
        trial_id=record.trial_id,
        stages=tuple(StageCost(stage=s, attempts=attempts[s], seconds=seconds[s]) for s in Stage if s in seconds),
        total_s=sum(seconds.values()),
        overlap_s=overlap,
        formal_s=None if window is None else window.duration_s,
    )


def _beyond(time: StageTime, until: float | None) -> float:
    """The part of a stage after what was counted already."""
    if until is None:
        return time.seconds
    return min(time.seconds, max(0.0, time.began.timestamp() + time.seconds - until))


def stage_costs(study: Study) -> tuple[StageCost, ...]:
    """Wall time by stage over all trials that ended."""
    costs: dict[Stage, list[StageCost]] = {stage: [] for stage in Stage}
    for record in _records(study):
        for cost in cost_of(record).stages:
            costs[cost.stage].append(cost)
    return tuple(
        StageCost(stage=stage, attempts=sum(c.attempts for c in of), seconds=sum(c.seconds for c in of))
        for stage, of in costs.items()
        if of
    )


def formal_window_seconds(study: Study) -> float:
    """The sum of the whole windows: the only time in which a load was being measured."""
    found = [r.measurement.window(WindowKind.WHOLE) for r in _records(study) if r.measurement is not None]
    return sum(window.duration_s for window in found if window is not None)


def _records(study: Study) -> list[TrialRecord]:
    return [trial.record for trial in study.trials.values() if trial.record is not None]
