"""What the study does next: one pure function of the fold, tested as a table.

Order of a night: measure the incumbent (formal load once, screening load often enough to know the noise), propose,
screen, confirm the promising with interleaved runs of incumbent and challenger, keep or close, again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from experiments.card import Card
from experiments.ledger import StopReason
from experiments.serving_config import ServingConfig
from experiments.study import Study
from experiments.tier_load import load_of
from experiments.trial import Route, Tier, TrialLoad
from experiments.verdict import (
    FAULT_TRIES,
    Arm,
    Decided,
    clean_samples,
    judge_confirmation,
    judge_screening,
)

# After a kept change the run that selected it is not used again; two fresh ones are the least that shows a spread.
FRESH_REPEATS = 2


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
class Hold:
    """The end of a trial is unknown: nothing new is sent."""

    trial_id: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Stop:
    reason: StopReason
    detail: str


Step = Measure | Continue | Propose | Close | Hold | Stop


def next_step(study: Study, now: datetime) -> Step:
    """The one next thing to do. Pause, leases and approvals are judged elsewhere, before it is done."""
    held = study.held_trial
    if held is not None and held.held is not None:
        return Hold(trial_id=held.started.trial_id, detail=held.held.detail)
    if study.open_trial is not None:
        return Continue(trial_id=study.open_trial.started.trial_id)
    if study.stopped is not None:
        return Stop(reason=study.stopped.reason, detail=study.stopped.detail)
    card = study.open_card
    closing = _decided_phase(study, card) if card is not None else None
    if closing is not None:
        return closing
    return _stop_rule(study, now) or _baseline_step(study) or _card_step(study, card)


def _stop_rule(study: Study, now: datetime) -> Stop | None:
    budget = study.goal.budget
    hours = (now - study.opened.at).total_seconds() / 3600
    if len(study.trials) >= budget.trials:
        return Stop(reason=StopReason.BUDGET_TRIALS, detail=f"{budget.trials} trials were run")
    if hours >= budget.hours:
        return Stop(reason=StopReason.BUDGET_HOURS, detail=f"{hours:.1f} of {budget.hours:g} hours are used")
    return _patience(study, budget.patience) if budget.patience is not None else None


def _patience(study: Study, limit: int) -> Stop | None:
    """So many cards in a row without a gain: what is left to try is not where gains have been."""
    if study.open_card is not None:
        return None
    in_a_row = 0
    for closed in study.closed.values():
        if closed.classification.route is not Route.ORCHESTRATION_FAULT:
            in_a_row = 0 if closed.kept else in_a_row + 1
    if in_a_row < limit:
        return None
    return Stop(reason=StopReason.NO_CANDIDATE, detail=f"{in_a_row} cards in a row brought no gain")


def _baseline_step(study: Study) -> Measure | Stop | None:
    """The incumbent at both loads. A baseline that fails twice ends the study: nothing could be compared."""
    wanted = FRESH_REPEATS if study.kept else study.goal.noise.repeats
    for tier, runs in ((Tier.CONFIRMATION, 1), (Tier.SCREENING, wanted)):
        load = load_of(study, study.incumbent, tier)
        have = len(clean_samples(study, load))
        if have >= runs:
            continue
        failed = _incumbent_faults(study, load)
        if failed >= FAULT_TRIES and not study.kept:
            detail = f"the baseline failed {failed} times at N={load.requests}; see its trials"
            return Stop(reason=StopReason.BASELINE_FAILED, detail=detail)
        if failed >= FAULT_TRIES:
            continue
        why = f"incumbent at N={load.requests}, run {have + 1} of {runs}"
        return Measure(tier=Tier.BASELINE, card=None, config=study.incumbent, load=load, why=why)
    return None


def _incumbent_faults(study: Study, load: TrialLoad) -> int:
    """Failed runs of the present incumbent at this load since its last valid one."""
    count = 0
    for trial in study.card_trials(None, Tier.BASELINE):
        if trial.position < study.incumbent_since or trial.started.load != load:
            continue
        count = 0 if trial.sample is not None else count + 1
    return count


def _decided_phase(study: Study, card: Card) -> Close | None:
    screened = _phase_closed(study, card, Tier.SCREENING)
    tier = Tier.CONFIRMATION if screened else Tier.SCREENING
    judge = judge_confirmation if screened else judge_screening
    state = judge(study, card)
    return Close(card=card, tier=tier, decided=state) if isinstance(state, Decided) else None


def _card_step(study: Study, card: Card | None) -> Measure | Propose:
    if card is None:
        return Propose()
    if not _phase_closed(study, card, Tier.SCREENING):
        return _challenger(study, card, Tier.SCREENING)
    state = judge_confirmation(study, card)
    if not isinstance(state, Decided) and state.arm is Arm.INCUMBENT:
        load = load_of(study, study.incumbent, Tier.CONFIRMATION)
        why = f"incumbent beside the confirmation of {card.name}"
        return Measure(tier=Tier.BASELINE, card=None, config=study.incumbent, load=load, why=why)
    return _challenger(study, card, Tier.CONFIRMATION)


def _challenger(study: Study, card: Card, tier: Tier) -> Measure:
    load = load_of(study, card.config, tier)
    return Measure(tier=tier, card=card, config=card.config, load=load, why=f"{tier} of {card.name}")


def _phase_closed(study: Study, card: Card, tier: Tier) -> bool:
    return any(p.card_digest == card.digest and p.tier is tier for p in study.phases)
