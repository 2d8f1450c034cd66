"""Judge a phase of a card: decided with a classification, or undecided with the arm to run next.

Guards: no keep on a single sample, no gain inside the noise, the run that selected a configuration is never used again
as evidence about it, and runs from before a shift of the pool are never compared with runs after it.
"""

from __future__ import annotations

from bisect import bisect_right
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
    classify_not_evaluated,
    classify_quality,
    classify_slo,
)
from experiments.comparison import Comparison, Refusal, Sample, compare, metric_value
from experiments.ledger import CardClosed, ConfigurationKept, LedgerEntry, QualityOutcome, TrialsClassified
from experiments.measurement import WindowKind
from experiments.statistics import (
    GIVE_UP_CONFIRMATION,
    Noise,
    Plan,
    Verdict,
    effective_pairs,
    judge,
    plan_pairs,
    pool_noise,
)
from experiments.study import Study, TrialState
from experiments.tier_load import load_of
from experiments.trial import Route, Tier, TrialLoad

FAULT_TRIES = 2  # a fault is repeated once; a second one in a row is not bad luck


class Arm(StrEnum):
    INCUMBENT = "incumbent"
    CHALLENGER = "challenger"


@dataclass(frozen=True, kw_only=True)
class Undecided:
    arm: Arm  # whose run is needed next


@dataclass(frozen=True, kw_only=True)
class Decided:
    """`awaits_quality`: confirmed, but the goal wants its outputs evaluated before it is kept. `is_recorded`: its phase
    is in the ledger already, so that only the last word is missing."""

    classification: Classification
    trial_ids: tuple[str, ...]
    quality: QualityOutcome = "not_evaluated"
    awaits_quality: bool = False
    is_recorded: bool = False


@dataclass(frozen=True, kw_only=True)
class _Phase:
    """What one phase is judged on: runs of the present state of the pool."""

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

    @property
    def noise(self) -> Noise:
        return noise_of(self.study, self.study.goal.objective.metric, self.window)

    def plan(self, noise: Noise) -> Plan:
        goal, rule = self.study.goal, self.study.goal.confirmation
        return plan_pairs(
            noise,
            confidence=goal.confidence,
            detect=rule.detect,
            min_effect=goal.min_effect,
            pairs_min=rule.pairs_min,
            pairs_max=rule.pairs_max,
        )

    def beside(self) -> list[Sample]:
        """Runs of the incumbent that were interleaved with this phase."""
        began = self.challenger[0].position if self.challenger else self.study.position
        return [s for s in self.incumbent if s.position > began]

    def decided(self, classification: Classification) -> Decided:
        return Decided(classification=classification, trial_ids=self.trial_ids)


def judge_screening(study: Study, card: Card) -> Decided | Undecided:
    """Short runs of the challenger against the incumbent's at the same load: they sort out, they never keep.

    A card is given up only where a worthwhile gain is excluded. What `screening.repeats` runs leave open goes to
    confirmation.
    """
    phase = _phase(study, card, Tier.SCREENING, study.goal.screening.window)
    settled = _failed(phase)
    if settled is None and phase.challenger:
        is_last = len(phase.challenger) >= study.goal.screening.repeats
        settled = _judge(phase, at_end=Verdict.NOT_EXCLUDED if is_last else None)
    return settled or Undecided(arm=Arm.CHALLENGER)


def judge_confirmation(study: Study, card: Card) -> Decided | Undecided:
    """Interleaved formal runs of both arms: at least `pairs_min`, then as many as the noise asks for.

    The planned number follows the noise as it is known now; at its end an undecided effect is no gain.
    """
    phase = _phase(study, card, Tier.CONFIRMATION, study.goal.objective.window)
    settled = _failed(phase)
    least = study.goal.confirmation.pairs_min
    if settled is None and min(len(phase.challenger), len(phase.beside())) >= least:
        plan = phase.plan(phase.noise)
        done = effective_pairs(len(phase.incumbent), len(phase.challenger)) >= plan.pairs
        settled = _judge(phase, at_end=Verdict.NO_GAIN if done else None, planned_pairs=plan.pairs)
    return settled or Undecided(arm=_next_arm(phase, least))


def judge_quality(study: Study, card: Card) -> Decided | None:
    """The last word on a confirmed card that waited for an evaluation; None while that is still to be had."""
    phase, evaluations = study.last_phase(card.digest), study.evaluations.get(card.digest, [])
    if phase is None or not evaluations:
        return None
    outcome, detail = evaluations[-1].outcome, evaluations[-1].detail
    if outcome == "not_evaluated" and len(evaluations) < FAULT_TRIES:
        return None
    confirmed = phase.classification
    classification = (
        classify_not_evaluated(confirmed, detail)
        if outcome == "not_evaluated"
        else classify_quality(confirmed, passed=outcome == "passed", detail=detail)
    )
    return Decided(classification=classification, trial_ids=phase.trial_ids, quality=outcome, is_recorded=True)


def _phase(study: Study, card: Card, tier: Tier, window: WindowKind) -> _Phase:
    trials = study.card_trials(card.digest, tier)
    since = study.drift.since
    return _Phase(
        study=study,
        card=card,
        tier=tier,
        window=window,
        trials=trials,
        challenger=[t.sample for t in trials if t.sample is not None and t.position >= since],
        incumbent=clean_samples(study, load_of(study, study.incumbent, tier)),
    )


def clean_samples(study: Study, load: TrialLoad) -> list[Sample]:
    """Runs that the incumbent made as the incumbent, since the pool last shifted.

    Those that made it the incumbent are left out: they were chosen for being high.
    """
    since = max(study.incumbent_since, study.drift.since)
    return [s for s in study.samples(study.incumbent, load) if s.position >= since]


def _failed(phase: _Phase) -> Decided | None:
    """A run that could not be measured: a negative at once (the configuration did it), a fault after its second try."""
    records = [t.record for t in phase.trials if t.record is not None]
    if not records or records[-1].measurement is not None:
        return None
    classification = classify_failure(records[-1])
    if classification.route is Route.VALID_NEGATIVE:
        return phase.decided(classification)
    faults = 0
    for record in records:
        faults = 0 if record.measurement is not None else faults + 1
    return phase.decided(classification) if faults >= FAULT_TRIES else None


def _judge(phase: _Phase, *, at_end: Verdict | None, planned_pairs: int | None = None) -> Decided | None:
    """`at_end`: what an undecided effect means where this was the last run, None where it was not."""
    study, goal = phase.study, phase.study.goal
    noise = phase.noise
    result = compare(
        phase.incumbent,
        phase.challenger,
        phase.card.draft.change,
        metric=goal.objective.metric,
        window=phase.window,
        noise=noise,
        confidence=goal.confidence,
        planned_pairs=planned_pairs,
        give_up=goal.screening.give_up if phase.tier is Tier.SCREENING else GIVE_UP_CONFIRMATION,
    )
    comparison = result if isinstance(result, Comparison) else None
    violated = violations(study, phase.challenger, phase.window)
    if violated:
        return phase.decided(classify_slo(violated, comparison))
    if isinstance(result, Refusal):
        return phase.decided(classify_incomparable(result))
    if violations(study, phase.incumbent, phase.window):
        # Feasible beats infeasible whatever the throughput: the goal is the SLO first.
        return _promising(phase, classify_effect(Verdict.GAIN, result))
    worthwhile = phase.plan(noise).worthwhile
    result = result.model_copy(update={"worthwhile": worthwhile})
    verdict = judge(result.effect(), min_effect=goal.min_effect, worthwhile=worthwhile)
    if verdict is Verdict.MEASURE_AGAIN:
        verdict = at_end or verdict
    return None if verdict is Verdict.MEASURE_AGAIN else _promising(phase, classify_effect(verdict, result))


def _promising(phase: _Phase, classification: Classification) -> Decided:
    quality = phase.study.goal.quality
    awaits = (
        phase.tier is Tier.CONFIRMATION
        and classification.route is Route.PROMISING
        and quality is not None
        and quality.required
    )
    return Decided(classification=classification, trial_ids=phase.trial_ids, awaits_quality=awaits)


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
    """Run-to-run noise of this pool: repeats of one configuration at one load, pooled. A shift is not noise.

    Windows below the goal's floor are left out: they scatter more than those that comparisons use.
    """
    groups: dict[tuple[str, TrialLoad, int], list[float]] = defaultdict(list)
    shifts = [shift.position for shift in study.drift.shifts]
    for sample in study.all_samples():
        found = sample.measurement.window(window)
        value = metric_value(sample, metric, window)
        if value is not None and value > 0 and found is not None and found.meets_floor:
            groups[sample.fingerprint, sample.load, bisect_right(shifts, sample.position)].append(value)
    return pool_noise(groups.values(), study.goal.noise.assumed)


def _next_arm(phase: _Phase, least: int) -> Arm:
    """Challenger and incumbent take turns, so that slow drift hits both alike.

    Older runs of the incumbent count as well, so beyond the least number of pairs it needs to run only beside every
    second run of the challenger.
    """
    challengers, beside = len(phase.challenger), len(phase.beside())
    wanted = max(min(challengers, least), challengers // 2)
    return Arm.INCUMBENT if beside < wanted or len(phase.incumbent) < challengers else Arm.CHALLENGER


def entries_of_phase(card: Card, tier: Tier, decided: Decided, at: datetime) -> tuple[LedgerEntry, ...]:
    """What a decided phase writes: its route, and the card's last word unless something has to follow first."""
    classification = decided.classification
    phase = TrialsClassified(
        at=at,
        trial_ids=decided.trial_ids,
        tier=tier,
        card_digest=card.digest,
        classification=classification,
    )
    promising = classification.route is Route.PROMISING
    if promising and (tier is Tier.SCREENING or decided.awaits_quality):
        return (phase,)
    closed = CardClosed(at=at, card_digest=card.digest, classification=classification, kept=promising)
    last = (closed,) if decided.is_recorded else (phase, closed)
    if not promising:
        return last
    kept = ConfigurationKept(
        at=at,
        name=f"{card.name}-{card.digest[:6]}",
        card_digest=card.digest,
        config=card.config,
        trial_ids=decided.trial_ids,
        quality=decided.quality,
    )
    return (*last, kept)
