"""What the study does next: one pure function of the fold, tested as a table.

Order of a night: measure the incumbent (formal load once, screening load often enough to know the noise), propose,
screen, confirm the promising with interleaved runs of incumbent and challenger, keep or close, again. Now and then the
incumbent is measured again; while its newest run is in doubt nothing else is begun and nothing is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from experiments.card import Card
from experiments.drift import Shift
from experiments.goal import Quality
from experiments.ledger import StopReason
from experiments.serving_config import ServingConfig
from experiments.study import Study
from experiments.tier_load import load_of
from experiments.trial import Route, Tier, TrialLoad
from experiments.verdict import (
    FAULT_TRIES,
    Arm,
    Decided,
    Undecided,
    clean_samples,
    judge_confirmation,
    judge_quality,
    judge_screening,
)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Run one trial: `card` None measures the incumbent."""

    tier: Tier
    card: Card | None
    config: ServingConfig
    load: TrialLoad
    why: str


@dataclass(frozen=True, kw_only=True)
class Continue:
    """A trial was started and has no record: go on with it under its own id."""

    trial_id: str


@dataclass(frozen=True, kw_only=True)
class Propose:
    """No card is open: ask the proposers."""


@dataclass(frozen=True, kw_only=True)
class Close:
    """A phase of the open card is decided: write its entries."""

    card: Card
    tier: Tier
    decided: Decided


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """The outputs of a confirmed configuration are to be evaluated by the goal's command."""

    card: Card
    quality: Quality

    @property
    def config(self) -> ServingConfig:
        return self.card.config


@dataclass(frozen=True, kw_only=True)
class Hold:
    """The end of a trial is unknown: nothing new is sent."""

    trial_id: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Stop:
    reason: StopReason
    detail: str


Step = Measure | Continue | Propose | Close | Evaluate | Hold | Stop


def next_step(study: Study, now: datetime) -> Step:
    """The one next thing to do. Pause, leases and approvals are judged elsewhere, before it is done."""
    held = study.held_trial
    if held is not None and held.held is not None:
        return Hold(trial_id=held.started.trial_id, detail=held.held.detail)
    if study.open_trial is not None:
        return Continue(trial_id=study.open_trial.started.trial_id)
    if study.stopped is not None:
        return Stop(reason=study.stopped.reason, detail=study.stopped.detail)
    if study.drift.suspected is not None:
        return _stop_rule(study, now) or _measure_again(study, study.drift.suspected)
    card = study.open_card
    closing = _decided_phase(study, card) if card is not None else None
    if closing is not None:
        return closing
    return (
        _stop_rule(study, now)
        or _baseline_step(study)
        or _quality_step(study)
        or _sentinel_step(study, now)
        or _card_step(study, card)
    )


def _stop_rule(study: Study, now: datetime) -> Stop | None:
    """Budgets count from the opening, or from the last time that the study was reopened."""
    budget, since = study.goal.budget, study.reopened
    hours = (now - since.at).total_seconds() / 3600
    if len(study.trials) - since.trials >= budget.trials:
        return Stop(reason=StopReason.BUDGET_TRIALS, detail=f"{budget.trials} trials were run")
    if hours >= budget.hours:
        return Stop(reason=StopReason.BUDGET_HOURS, detail=f"{hours:.1f} of {budget.hours:g} hours are used")
    return _unsteady(study) or _target_reached(study) or _patience(study, budget.patience) or _without_model(study)


def may_ask_model(study: Study) -> bool:
    """Whether the budget still holds a question to the language model."""
    return _spent_on_model(study) is None


def _spent_on_model(study: Study) -> Stop | None:
    budget, tokens, cost = study.goal.budget, study.tokens_used(), study.llm_cost()
    if tokens >= budget.llm_tokens:
        return Stop(reason=StopReason.BUDGET_TOKENS, detail=f"{tokens} of {budget.llm_tokens} tokens are used")
    if budget.llm_cost is not None and cost >= budget.llm_cost:
        return Stop(reason=StopReason.BUDGET_COST, detail=f"{cost:.2f} of {budget.llm_cost:g} are spent on the model")
    return None


def _without_model(study: Study) -> Stop | None:
    """Between cards, and only where the goal says so; usually the study goes on without a model."""
    if not study.goal.budget.stop_without_model or study.open_card is not None:
        return None
    return _spent_on_model(study)


def _unsteady(study: Study) -> Stop | None:
    shifts = study.drift.shifts[study.reopened.shifts :]
    if len(shifts) <= study.goal.sentinel.drifts:
        return None
    listed = ", ".join(f"{shift.change:+.2%} at {shift.trial_ids[0]}" for shift in shifts)
    return Stop(reason=StopReason.DRIFT, detail=f"the incumbent does not hold still: {listed}")


def _target_reached(study: Study) -> Stop | None:
    """Only a confirmed configuration reaches a target, and only where the goal says that this is enough."""
    target = study.goal.objective.target
    if not study.goal.budget.stop_at_target or target is None or not study.kept or study.open_card is not None:
        return None
    comparison = study.closed[study.kept[-1].card_digest].classification.comparison
    if comparison is None or not target.holds(comparison.challenger_mean):
        return None
    of = study.goal.objective.of
    detail = f"{study.kept[-1].name} reaches {comparison.challenger_mean:.2f}, the goal asks {target.text(of.unit)}"
    return Stop(reason=StopReason.GOAL_REACHED, detail=detail)


def _patience(study: Study, limit: int | None) -> Stop | None:
    """So many cards in a row without a gain: what is left to try is not where gains have been."""
    if limit is None or study.open_card is not None:
        return None
    in_a_row = 0
    for closed in list(study.closed.values())[study.reopened.closed :]:
        if closed.classification.route is not Route.ORCHESTRATION_FAULT:
            in_a_row = 0 if closed.kept else in_a_row + 1
    if in_a_row < limit:
        return None
    return Stop(reason=StopReason.NO_CANDIDATE, detail=f"{in_a_row} cards in a row brought no gain")


def _baseline_step(study: Study) -> Measure | Stop | None:
    """The incumbent at both loads. A kept one was confirmed at the formal load and is run there beside each challenger.

    An incumbent that fails twice ends the study: nothing could be compared with it.
    """
    wanted = (
        ((Tier.SCREENING, study.goal.noise.fresh),)
        if study.kept
        else (
            (Tier.CONFIRMATION, 1),
            (Tier.SCREENING, study.goal.noise.repeats),
        )
    )
    for tier, runs in wanted:
        load = load_of(study, study.incumbent, tier)
        have = len(clean_samples(study, load))
        if have < runs:
            why = f"incumbent at N={load.requests}, run {have + 1} of {runs}"
            return _incumbent(study, Tier.BASELINE, load, why)
    return None


def _incumbent(study: Study, tier: Tier, load: TrialLoad, why: str) -> Measure | Stop:
    failed = _incumbent_faults(study, load)
    if failed >= FAULT_TRIES:
        name = study.kept[-1].name if study.kept else "the baseline"
        detail = f"{name} failed {failed} times in a row at N={load.requests}; see its trials"
        return Stop(reason=StopReason.BASELINE_FAILED, detail=detail)
    return Measure(tier=tier, card=None, config=study.incumbent, load=load, why=why)


def _incumbent_faults(study: Study, load: TrialLoad) -> int:
    """Failed runs of the present incumbent at this load since its last valid one."""
    count, since = 0, max(study.incumbent_since, study.reopened.position)
    for trial in study.trials.values():
        if trial.started.card_digest is None and trial.position >= since and trial.started.load == load:
            count = 0 if trial.sample is not None else count + 1
    return count


def _measure_again(study: Study, suspected: Shift) -> Measure | Stop:
    why = f"incumbent again at N={suspected.load.requests}: its last run was {suspected.change:+.2%} off"
    return _incumbent(study, Tier.SENTINEL, suspected.load, why)


def _sentinel_step(study: Study, now: datetime) -> Measure | Stop | None:
    """Between two cards: has the pool drifted since the incumbent last ran at the screening load?"""
    rule, load = study.goal.sentinel, load_of(study, study.incumbent, Tier.SCREENING)
    runs = [t for t in study.trials.values() if t.sample is not None and t.sample.load == load]
    last = next((t for t in reversed(runs) if t.started.card_digest is None), None)
    if study.open_card is not None or last is None or last.finished_at is None:
        return None
    closed = study.closed_since(last.position)
    hours = (now - last.finished_at).total_seconds() / 3600
    if (rule.cards is None or closed < rule.cards) and (rule.hours is None or hours < rule.hours):
        return None
    why = f"incumbent again after {closed} cards and {hours:.1f} h, to see drift"
    return _incumbent(study, Tier.SENTINEL, load, why)


def _quality_step(study: Study) -> Evaluate | None:
    """A confirmed configuration whose outputs the goal wants evaluated: before the keep if required, else after it."""
    quality = study.goal.quality
    if quality is None:
        return None
    card = study.open_card
    if card is not None:
        last = study.last_phase(card.digest)
        waits = last is not None and last.tier is Tier.CONFIRMATION
        return Evaluate(card=card, quality=quality) if waits else None
    if not study.kept or study.kept[-1].quality != "not_evaluated":
        return None
    kept = study.cards[study.kept[-1].card_digest]
    tries = len(study.evaluations.get(kept.digest, []))
    return Evaluate(card=kept, quality=quality) if tries < FAULT_TRIES else None


def _decided_phase(study: Study, card: Card) -> Close | None:
    screened = _phase_closed(study, card, Tier.SCREENING)
    tier = Tier.CONFIRMATION if screened else Tier.SCREENING
    if _phase_closed(study, card, Tier.CONFIRMATION):
        state: Decided | Undecided | None = judge_quality(study, card)
    else:
        state = judge_confirmation(study, card) if screened else judge_screening(study, card)
    return Close(card=card, tier=tier, decided=state) if isinstance(state, Decided) else None


def _card_step(study: Study, card: Card | None) -> Measure | Propose | Stop:
    if card is None:
        return Propose()
    if not _phase_closed(study, card, Tier.SCREENING):
        return _challenger(study, card, Tier.SCREENING)
    state = judge_confirmation(study, card)
    if not isinstance(state, Decided) and state.arm is Arm.INCUMBENT:
        load = load_of(study, study.incumbent, Tier.CONFIRMATION)
        return _incumbent(study, Tier.BASELINE, load, f"incumbent beside the confirmation of {card.name}")
    return _challenger(study, card, Tier.CONFIRMATION)


def _challenger(study: Study, card: Card, tier: Tier) -> Measure:
    load = load_of(study, card.config, tier)
    return Measure(tier=tier, card=card, config=card.config, load=load, why=f"{tier} of {card.name}")


def _phase_closed(study: Study, card: Card, tier: Tier) -> bool:
    return any(p.card_digest == card.digest and p.tier is tier for p in study.phases)
