"""Judge a phase of a card: decided with a classification, or undecided with the arm to run next.

Guards: no keep on a single sample, no gain inside the noise, and the run that selected a configuration is never used
again as evidence about it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from experiments.card import Card
from experiments.classification import (
    Classification,
    classify_effect,
    classify_failure,
    classify_incomparable,
    classify_slo,
)
from experiments.comparison import Comparison, Refusal, Sample, compare, metric_value
from experiments.ledger import CardClosed, ConfigurationKept, LedgerEntry, TrialsClassified
from experiments.measurement import WindowKind
from experiments.statistics import Noise, Verdict, judge, pool_noise
from experiments.study import Study, TrialState
from experiments.tier_load import load_of
from experiments.trial import Reason, Route, Tier, TrialLoad

FAULT_TRIES = 2  # a fault is repeated once; a second one in a row is not bad luck


class Arm(StrEnum):
    INCUMBENT = "incumbent"
    CHALLENGER = "challenger"


@dataclass(frozen=True, kw_only=True)
class Undecided:
    arm: Arm  # whose run is needed next


@dataclass(frozen=True, kw_only=True)
class Decided:
    classification: Classification
    trial_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Phase:
    """What one phase is judged on."""

    study: Study
    card: Card
    tier: Tier
    window: WindowKind
    trials: list[TrialState]
    challenger: list[Sample]
    incumbent: list[Sample]

    @property
    def trial_ids(self) -> tuple[str, ...]:
        return tuple(t.started.trial_id for t in self.trials)

    def decided(self, classification: Classification) -> Decided:
        return Decided(classification=classification, trial_ids=self.trial_ids)


def judge_screening(study: Study, card: Card) -> Decided | Undecided:
    """Short runs of the challenger against the incumbent's runs at the same load."""
    phase = _phase(study, card, Tier.SCREENING, study.goal.screening.window)
    failed = _failed(phase)
    if failed is not None:
        return failed
    again = len(phase.challenger) < study.goal.screening.repeats
    if not phase.challenger:
        return Undecided(arm=Arm.CHALLENGER)
    return _judge(phase, again) or Undecided(arm=Arm.CHALLENGER)


def judge_confirmation(study: Study, card: Card) -> Decided | Undecided:
    """Interleaved formal runs of both arms, at least `pairs_min` of each, until decided or `pairs_max`."""
    goal = study.goal
    phase = _phase(study, card, Tier.CONFIRMATION, goal.objective.window)
    failed = _failed(phase)
    if failed is not None:
        return failed
    pairs = min(len(phase.challenger), len(phase.incumbent))
    if pairs >= goal.confirmation.pairs_min:
        decided = _judge(phase, may_measure_again=pairs < goal.confirmation.pairs_max)
        if decided is not None:
            return decided
    needed = max(goal.confirmation.pairs_min, pairs + 1)
    return Undecided(arm=_next_arm(phase, needed))


def _phase(study: Study, card: Card, tier: Tier, window: WindowKind) -> _Phase:
    trials = study.card_trials(card.digest, tier)
    return _Phase(
        study=study,
        card=card,
        tier=tier,
        window=window,
        trials=trials,
        challenger=[t.sample for t in trials if t.sample is not None],
        incumbent=clean_samples(study, load_of(study, study.incumbent, tier)),
    )


def clean_samples(study: Study, load: TrialLoad) -> list[Sample]:
    """Runs of the incumbent that did not select it: its screening is left out, because it was chosen for being high."""
    return [s for s in study.samples(study.incumbent, load) if s.tier is not Tier.SCREENING]


def _failed(phase: _Phase) -> Decided | None:
    """A run that could not be measured: infeasible at once, a fault after its second try."""
    records = [t.record for t in phase.trials if t.record is not None]
    if not records or records[-1].measurement is not None:
        return None
    classification = classify_failure(records[-1])
    if classification.reason is Reason.INFEASIBLE:
        return phase.decided(classification)
    faults = 0
    for record in records:
        faults = 0 if record.measurement is not None else faults + 1
    return phase.decided(classification) if faults >= FAULT_TRIES else None


def _judge(phase: _Phase, may_measure_again: bool) -> Decided | None:
    study, goal = phase.study, phase.study.goal
    result = compare(
        phase.incumbent,
        phase.challenger,
        phase.card.draft.change,
        metric=goal.objective.metric,
        window=phase.window,
        noise=noise_of(study, goal.objective.metric, phase.window),
        confidence=goal.confidence,
    )
    comparison = result if isinstance(result, Comparison) else None
    violated = violations(study, phase.challenger, phase.window)
    if violated:
        return phase.decided(classify_slo(violated, comparison))
    if isinstance(result, Refusal):
        return phase.decided(classify_incomparable(result))
    if violations(study, phase.incumbent, phase.window):
        # Feasible beats infeasible whatever the throughput: the goal is the SLO first.
        return phase.decided(classify_effect(Verdict.GAIN, result))
    verdict = judge(result.effect(), min_effect=goal.min_effect, may_measure_again=may_measure_again)
    return None if verdict is Verdict.MEASURE_AGAIN else phase.decided(classify_effect(verdict, result))


def violations(study: Study, samples: list[Sample], window: WindowKind) -> tuple[str, ...]:
    """The constraints that the mean of these runs breaks, each with both figures. An unobserved metric breaks it."""
    found = []
    for constraint in study.goal.constraints:
        values = [_constrained(s, constraint.metric, window) for s in samples]
        observed = [v for v in values if v is not None]
        if len(observed) < len(values) or not observed:
            if constraint.metric != "failed_requests":
                found.append(f"{constraint.metric} is NOT_OBSERVED, the goal asks {constraint}")
            continue
        mean = sum(observed) / len(observed)
        if not constraint.bound.holds(mean):
            found.append(f"{constraint.metric} {mean:.2f}, the goal asks {constraint}")
    return tuple(found)


def _constrained(sample: Sample, metric: str, window: WindowKind) -> float | None:
    if metric == "failed_requests":
        return float(sample.measurement.n_failed)
    return metric_value(sample, metric, window)


def noise_of(study: Study, metric: str, window: WindowKind) -> Noise:
    """Run-to-run noise of this pool: repeats of one configuration at one load, pooled."""
    groups: dict[tuple[str, TrialLoad], list[float]] = defaultdict(list)
    for sample in study.all_samples():
        value = metric_value(sample, metric, window)
        if value is not None:
            groups[sample.fingerprint, sample.load].append(value)
    return pool_noise(groups.values(), study.goal.noise.assumed)


def _next_arm(phase: _Phase, needed: int) -> Arm:
    """Whichever arm lacks runs; if both do, the one that did not run last, so that slow drift hits both alike."""
    lacks_challenger = len(phase.challenger) < needed
    lacks_incumbent = len(phase.incumbent) < needed
    if lacks_challenger and lacks_incumbent:
        last_challenger = max((s.position for s in phase.challenger), default=0)
        last_incumbent = max((s.position for s in phase.incumbent), default=0)
        return Arm.INCUMBENT if last_challenger > last_incumbent else Arm.CHALLENGER
    return Arm.CHALLENGER if lacks_challenger else Arm.INCUMBENT


def entries_of_phase(card: Card, tier: Tier, decided: Decided, at: datetime) -> tuple[LedgerEntry, ...]:
    """What a decided phase writes: its route, and the card's last word unless confirmation follows."""
    classification = decided.classification
    phase = TrialsClassified(
        at=at,
        trial_ids=decided.trial_ids,
        tier=tier,
        card_digest=card.digest,
        classification=classification,
    )
    promising = classification.route is Route.PROMISING
    if promising and tier is Tier.SCREENING:
        return (phase,)
    closed = CardClosed(at=at, card_digest=card.digest, classification=classification, kept=promising)
    if not promising:
        return (phase, closed)
    kept = ConfigurationKept(
        at=at,
        name=f"{card.name}-{card.digest[:6]}",
        card_digest=card.digest,
        config=card.config,
        trial_ids=decided.trial_ids,
    )
    return (phase, closed, kept)
