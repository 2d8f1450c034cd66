"""Which entry may follow which. An illegal entry raises and changes nothing.

| entry | needs |
|---|---|
| study_opened | an empty ledger |
| card_admitted | no open card, no running trial, nothing held, not stopped |
| trial_started | no running trial, nothing held, not stopped; its card is open |
| trial_finished | that trial runs |
| trials_classified | those trials of that card have finished; the card is open; this tier of it was not judged before |
| card_closed | that card is open; kept only if its last phase is a promising confirmation, and its quality passed \
where the goal requires that |
| configuration_kept | its card was closed as kept and not kept before, and made this configuration |
| quality_evaluated | its card's last phase is a promising confirmation, and no earlier answer |
| trial_held | that trial runs and is not held |
| trial_resolved | that trial is held |
| study_stopped | not stopped, no running trial |
| study_reopened | stopped |
| card_rejected, proposal_made, proposer_failed, approval_used, operator_spoke | an open study |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.errors import InvalidTransition
from experiments.ledger import (
    CardAdmitted,
    CardClosed,
    ConfigurationKept,
    LedgerEntry,
    QualityEvaluated,
    StudyOpened,
    StudyReopened,
    StudyStopped,
    TrialFinished,
    TrialHeld,
    TrialResolved,
    TrialsClassified,
    TrialStarted,
)
from experiments.trial import Route, Tier

if TYPE_CHECKING:  # study imports this module
    from experiments.study import Study


def check_entry(study: Study, entry: LedgerEntry) -> None:
    """Raise InvalidTransition, naming the entry and the rule it breaks, unless the table allows it here."""
    rule = _RULES.get(type(entry))
    why = rule(study, entry) if rule is not None else None
    if why:
        raise InvalidTransition(f"study {study.study_id}: {entry.kind} is not allowed: {why}")


def _opened(study: Study, _: StudyOpened) -> str | None:
    return "the study is open" if study.position else None


def _admitted(study: Study, entry: CardAdmitted) -> str | None:
    if entry.card.digest in study.cards:
        return f"card {entry.card.name} was admitted before"
    if study.open_card is not None:
        return f"card {study.open_card.name} is open"
    return _may_begin(study)


def _started(study: Study, entry: TrialStarted) -> str | None:
    if entry.trial_id in study.trials:
        return f"trial {entry.trial_id} exists"
    card = study.open_card
    if entry.card_digest is not None and (card is None or card.digest != entry.card_digest):
        return f"card {entry.card_digest[:12]} is not open"
    return _may_begin(study)


def _may_begin(study: Study) -> str | None:
    if study.stopped is not None:
        return f"the study stopped ({study.stopped.reason})"
    if study.held_trial is not None:
        return f"the end of trial {study.held_trial.started.trial_id} is unknown"
    if study.open_trial is not None:
        return f"trial {study.open_trial.started.trial_id} runs"
    return None


def _held(study: Study, entry: TrialHeld) -> str | None:
    trial = study.trials.get(entry.trial_id)
    if trial is None or trial.record is not None:
        return f"trial {entry.trial_id} does not run"
    return f"trial {entry.trial_id} is held" if trial.is_held else None


def _finished(study: Study, entry: TrialFinished) -> str | None:
    trial = study.trials.get(entry.record.trial_id)
    if trial is None:
        return f"trial {entry.record.trial_id} was never started"
    if trial.is_held:
        return f"the end of trial {entry.record.trial_id} is unknown; a person has to settle it first"
    return f"trial {entry.record.trial_id} has a record" if trial.record is not None else None


def _classified(study: Study, entry: TrialsClassified) -> str | None:
    for trial_id in entry.trial_ids:
        trial = study.trials.get(trial_id)
        if trial is None or trial.record is None:
            return f"trial {trial_id} has not finished"
        if trial.started.card_digest != entry.card_digest:
            return f"trial {trial_id} is not of this card"
    card = study.open_card
    if entry.card_digest is not None and (card is None or card.digest != entry.card_digest):
        return f"card {entry.card_digest[:12]} is not open"
    if (entry.card_digest, entry.tier) in study.judged:
        return f"its {entry.tier} was judged before"
    return None


def _closed(study: Study, entry: CardClosed) -> str | None:
    if entry.card_digest not in study.cards or entry.card_digest in study.closed:
        return f"card {entry.card_digest[:12]} is not open"
    return _may_keep(study, entry.card_digest) if entry.kept else None


def _may_keep(study: Study, card_digest: str) -> str | None:
    why = _not_confirmed(study, card_digest)
    if why is not None:
        return why
    quality = study.goal.quality
    outcome = study.quality_of(card_digest)
    if quality is not None and quality.required and outcome != "passed":
        return f"the goal requires its quality, which is {outcome}"
    return None


def _not_confirmed(study: Study, card_digest: str) -> str | None:
    last = study.last_phase(card_digest)
    if last is None or last.tier is not Tier.CONFIRMATION:
        return "a card is kept after a confirmation only"
    if last.classification.route is not Route.PROMISING:
        return f"its confirmation was {last.classification.route}"
    return None


def _kept(study: Study, entry: ConfigurationKept) -> str | None:
    closed = study.closed.get(entry.card_digest)
    if closed is None or not closed.kept:
        return f"card {entry.card_digest[:12]} was not closed as kept"
    if any(k.card_digest == entry.card_digest for k in study.kept):
        return f"card {entry.card_digest[:12]} was kept before"
    if entry.config != study.cards[entry.card_digest].config:
        return f"its configuration is not that of card {entry.card_digest[:12]}"
    return None


def _evaluated(study: Study, entry: QualityEvaluated) -> str | None:
    outcome = study.quality_of(entry.card_digest)
    if outcome != "not_evaluated":
        return f"the quality of card {entry.card_digest[:12]} {outcome} before"
    return _not_confirmed(study, entry.card_digest)


def _resolved(study: Study, entry: TrialResolved) -> str | None:
    trial = study.trials.get(entry.trial_id)
    return None if trial is not None and trial.is_held else f"trial {entry.trial_id} is not held"


def _stopped(study: Study, _: StudyStopped) -> str | None:
    if study.stopped is not None:
        return "it stopped before"
    return "a trial runs" if study.open_trial is not None else None


def _reopened(study: Study, _: StudyReopened) -> str | None:
    return None if study.stopped is not None else "it has not stopped"


_RULES: dict[type, Callable[..., str | None]] = {
    StudyOpened: _opened,
    CardAdmitted: _admitted,
    TrialStarted: _started,
    TrialFinished: _finished,
    TrialsClassified: _classified,
    CardClosed: _closed,
    ConfigurationKept: _kept,
    QualityEvaluated: _evaluated,
    TrialHeld: _held,
    TrialResolved: _resolved,
    StudyStopped: _stopped,
    StudyReopened: _reopened,
}
