"""The table of entries: each illegal one is refused with its sentence and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments.classification import Classification
from experiments.errors import InvalidTransition
from experiments.goal import Quality
from experiments.ledger import (
    ApprovalUsed,
    CardAdmitted,
    CardClosed,
    CardRejected,
    ConfigurationKept,
    Finding,
    LedgerEntry,
    OperatorSpoke,
    ProposerFailed,
    QualityEvaluated,
    StopReason,
    StudyReopened,
    StudyStopped,
    TrialFinished,
    TrialHeld,
    TrialResolved,
    TrialsClassified,
    TrialStarted,
)
from experiments.study import fold
from experiments.trial import Reason, Route, Stage, Tier
from tests.experiments.scripted import START, Script, the_goal
from tests.factories import EVENING, a_card, a_config, a_draft, a_fault, a_load, a_record, an_opening

CARD = a_card()
GAIN = Classification(route=Route.PROMISING, reason=Reason.GAIN, explanation="faster")
SLOWER = Classification(route=Route.VALID_NEGATIVE, reason=Reason.SLOWER, explanation="slower")
REQUIRED = Quality(command=("sgl-eval",), required=True)
SHORT = CARD.digest[:12]


def started(trial_id: str = "new", card_digest: str | None = None) -> TrialStarted:
    return TrialStarted(
        at=EVENING,
        trial_id=trial_id,
        tier=Tier.BASELINE if card_digest is None else Tier.SCREENING,
        card_digest=card_digest,
        config=a_config(),
        load=a_load(320),
        why="a test",
    )


def finished(trial_id: str = "new") -> TrialFinished:
    return TrialFinished(at=EVENING, record=a_record(trial_id))


def held(trial_id: str = "new") -> TrialHeld:
    return TrialHeld(at=EVENING, trial_id=trial_id, stage=Stage.MEASURE, detail="look for the details file")


def resolved(trial_id: str = "new") -> TrialResolved:
    return TrialResolved(at=EVENING, trial_id=trial_id, finding=Finding.DEAD, by="ops", reason="rebooted")


def classified(*trial_ids: str, digest: str | None = CARD.digest) -> TrialsClassified:
    return TrialsClassified(
        at=EVENING, trial_ids=trial_ids, tier=Tier.SCREENING, card_digest=digest, classification=GAIN
    )


def closed(*, kept: bool = False, digest: str = CARD.digest) -> CardClosed:
    return CardClosed(at=EVENING, card_digest=digest, classification=GAIN if kept else SLOWER, kept=kept)


def kept_entry(digest: str = CARD.digest, **changes: object) -> ConfigurationKept:
    entry = ConfigurationKept(at=EVENING, name="fast", card_digest=digest, config=CARD.config, trial_ids=())
    return entry.model_copy(update=changes)


def evaluated(digest: str = CARD.digest) -> QualityEvaluated:
    return QualityEvaluated(at=EVENING, card_digest=digest, outcome="passed", detail="as before")


STOPPED = StudyStopped(at=EVENING, reason=StopReason.NO_CANDIDATE, detail="enough")
REOPENED = StudyReopened(at=EVENING, by="ops", reason="more")
ADMITTED = CardAdmitted(at=EVENING, card=CARD)


def with_card() -> Script:
    return Script().baseline().add(ADMITTED)


def running() -> Script:
    return Script().add(started("t1"))


def confirmed(quality: Quality | None = None) -> Script:
    """A card whose confirmation is written and whose last word is due."""
    script = Script(goal=the_goal(quality=quality)).baseline().add(ADMITTED).screened()
    script.run(START * 1.3, START, START * 1.3, START).close()
    return script


def unclosed() -> Script:
    """As `confirmed`, without the last word and the keep that a goal without an evaluation writes at once."""
    script = Script()
    for entry in confirmed().entries[1:-2]:
        script.add(entry)
    return script


ILLEGAL: dict[str, tuple[Callable[[], Script], LedgerEntry, str]] = {
    "a second opening": (Script, an_opening(), "study_opened is not allowed: the study is open"),
    "a second open card": (
        with_card,
        CardAdmitted(at=EVENING, card=a_card(number=2)),
        f"card_admitted is not allowed: card {CARD.name} is open",
    ),
    "a card admitted twice": (
        lambda: with_card().run(START * 0.5).close(),
        ADMITTED,
        f"card_admitted is not allowed: card {CARD.name} was admitted before",
    ),
    "a card while a trial runs": (running, ADMITTED, "card_admitted is not allowed: trial t1 runs"),
    "a card while a trial is held": (
        lambda: running().add(held("t1")),
        ADMITTED,
        "card_admitted is not allowed: the end of trial t1 is unknown",
    ),
    "a card in a stopped study": (
        lambda: Script().add(STOPPED),
        ADMITTED,
        "card_admitted is not allowed: the study stopped (no_candidate)",
    ),
    "a second trial": (running, started("t2"), "trial_started is not allowed: trial t1 runs"),
    "the same trial again": (running, started("t1"), "trial_started is not allowed: trial t1 exists"),
    "a trial of no open card": (
        lambda: Script().baseline(),
        started(card_digest=CARD.digest),
        f"trial_started is not allowed: card {SHORT} is not open",
    ),
    "a trial of a closed card": (
        lambda: with_card().run(START * 0.5).close(),
        started(card_digest=CARD.digest),
        f"trial_started is not allowed: card {SHORT} is not open",
    ),
    "a trial while another is held": (
        lambda: running().add(held("t1")),
        started("t2"),
        "trial_started is not allowed: the end of trial t1 is unknown",
    ),
    "a trial in a stopped study": (
        lambda: Script().add(STOPPED),
        started(),
        "trial_started is not allowed: the study stopped (no_candidate)",
    ),
    "the end of a trial that never began": (
        Script,
        finished("ghost"),
        "trial_finished is not allowed: trial ghost was never started",
    ),
    "a second end": (
        lambda: running().add(finished("t1")),
        finished("t1"),
        "trial_finished is not allowed: trial t1 has a record",
    ),
    "the end of a held trial": (
        lambda: running().add(held("t1")),
        finished("t1"),
        "trial_finished is not allowed: the end of trial t1 is unknown; a person has to settle it first",
    ),
    "judging a trial that runs": (
        lambda: _add_started(with_card()),
        classified("t9"),
        "trials_classified is not allowed: trial t9 has not finished",
    ),
    "judging a trial of the incumbent as a card's": (
        with_card,
        classified("t001"),
        "trials_classified is not allowed: trial t001 is not of this card",
    ),
    "judging a closed card": (
        lambda: with_card().run(START * 0.5).close(),
        classified("t005"),
        f"trials_classified is not allowed: card {SHORT} is not open",
    ),
    "judging a card that was never admitted": (
        lambda: Script().baseline(),
        classified(),
        f"trials_classified is not allowed: card {SHORT} is not open",
    ),
    "closing a card that was never admitted": (
        Script,
        closed(),
        f"card_closed is not allowed: card {SHORT} is not open",
    ),
    "closing a card twice": (
        lambda: with_card().run(START * 0.5).close(),
        closed(),
        f"card_closed is not allowed: card {SHORT} is not open",
    ),
    "keeping after nothing": (
        with_card,
        closed(kept=True),
        "card_closed is not allowed: a card is kept after a confirmation only",
    ),
    "keeping after screening": (
        lambda: with_card().screened(),
        closed(kept=True),
        "card_closed is not allowed: a card is kept after a confirmation only",
    ),
    "keeping against the confirmation": (
        lambda: _negative_confirmation(),
        closed(kept=True),
        "card_closed is not allowed: its confirmation was valid_negative",
    ),
    "keeping without the required quality": (
        lambda: confirmed(REQUIRED),
        closed(kept=True),
        "card_closed is not allowed: the goal requires its quality, which is not_evaluated",
    ),
    "keeping what failed its quality": (
        lambda: confirmed(REQUIRED).evaluate("failed"),
        closed(kept=True),
        "card_closed is not allowed: the goal requires its quality, which is failed",
    ),
    "a configuration of a card that was not kept": (
        lambda: with_card().run(START * 0.5).close(),
        kept_entry(),
        f"configuration_kept is not allowed: card {SHORT} was not closed as kept",
    ),
    "a configuration kept twice": (
        confirmed,
        kept_entry(),
        f"configuration_kept is not allowed: card {SHORT} was kept before",
    ),
    "another configuration than the card's": (
        lambda: unclosed().add(closed(kept=True)),
        kept_entry(config=a_config()),
        f"configuration_kept is not allowed: its configuration is not that of card {SHORT}",
    ),
    "an evaluation before the confirmation": (
        lambda: with_card().screened(),
        evaluated(),
        "quality_evaluated is not allowed: a card is kept after a confirmation only",
    ),
    "an evaluation after an answer": (
        lambda: confirmed(REQUIRED).evaluate("passed"),
        evaluated(),
        f"quality_evaluated is not allowed: the quality of card {SHORT} passed before",
    ),
    "holding a trial that does not run": (Script, held("t1"), "trial_held is not allowed: trial t1 does not run"),
    "holding a trial that ended": (
        lambda: running().add(finished("t1")),
        held("t1"),
        "trial_held is not allowed: trial t1 does not run",
    ),
    "holding a held trial": (
        lambda: running().add(held("t1")),
        held("t1"),
        "trial_held is not allowed: trial t1 is held",
    ),
    "judging a phase twice": (
        lambda: with_card().screened(),
        classified("t005"),
        "trials_classified is not allowed: its screening was judged before",
    ),
    "settling what is not held": (running, resolved("t1"), "trial_resolved is not allowed: trial t1 is not held"),
    "settling twice": (
        lambda: running().add(held("t1"), resolved("t1")),
        resolved("t1"),
        "trial_resolved is not allowed: trial t1 is not held",
    ),
    "stopping twice": (lambda: Script().add(STOPPED), STOPPED, "study_stopped is not allowed: it stopped before"),
    "stopping while a trial runs": (running, STOPPED, "study_stopped is not allowed: a trial runs"),
    "reopening what has not stopped": (Script, REOPENED, "study_reopened is not allowed: it has not stopped"),
}


def _add_started(script: Script) -> Script:
    return script.add(started("t9", CARD.digest))


def _negative_confirmation() -> Script:
    script = with_card().screened()
    script.run(START * 0.5, START, START * 0.5, START)
    step = script.next()
    phase = TrialsClassified(
        at=EVENING,
        trial_ids=step.decided.trial_ids,  # type: ignore[union-attr]
        tier=Tier.CONFIRMATION,
        card_digest=CARD.digest,
        classification=SLOWER,
    )
    return script.add(phase)


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_entry_is_refused_and_changes_nothing(name: str) -> None:
    """Its message names the study, the entry and the rule; the study is as it was, to the last field."""
    make, entry, sentence = ILLEGAL[name]
    script = make()
    before = fold(script.entries)
    with pytest.raises(InvalidTransition) as raised:
        script.add(entry)
    assert str(raised.value) == f"study night-1: {sentence}"
    assert script.study == before


def test_ledger_begins_with_an_opening() -> None:
    """Anything else as the first entry is refused."""
    with pytest.raises(InvalidTransition, match="a ledger begins with study_opened, this one with trial_started"):
        fold([started()])


def test_empty_ledger_is_no_study() -> None:
    """There is nothing to fold."""
    with pytest.raises(ValueError, match="an empty ledger is not a study"):
        fold([])


ALWAYS = (
    CardRejected(at=EVENING, draft=a_draft("prefill.flag.x", 1, 2), codes=("unknown_knob",), messages=("no",)),
    ProposerFailed(at=EVENING, source="llm", detail="no answer"),  # type: ignore[arg-type]
    OperatorSpoke(at=EVENING, mode="pause", by="ops", reason="people at the machines", file_digest="0" * 64),
)


@pytest.mark.parametrize("entry", ALWAYS, ids=lambda e: e.kind)
@pytest.mark.parametrize("make", [Script, running, lambda: Script().add(STOPPED), with_card])
def test_asides_are_recorded_at_any_time(entry: LedgerEntry, make: Callable[[], Script]) -> None:
    """What the operator says and what a proposer failed to say has no precondition."""
    script = make()
    before = script.study.position
    assert script.add(entry).study.position == before + 1


def test_held_trial_is_settled_and_then_ends() -> None:
    """running → held → settled → finished is the one way through an unknown end."""
    script = running().add(held("t1"), resolved("t1"))
    fault = a_fault(Stage.MEASURE, Reason.UNKNOWN_END)
    script.add(TrialFinished(at=EVENING, record=a_record("t1", failure=fault)))
    assert script.study.open_trial is None
    assert script.study.held_trial is None


def test_trial_may_be_held_again_after_it_was_settled() -> None:
    """A finding that did not help is followed by another hold."""
    script = running().add(held("t1"), resolved("t1"), held("t1"))
    assert script.study.held_trial is not None


def test_approval_is_recorded_for_its_card() -> None:
    """Who allowed what is part of the study."""
    entry = ApprovalUsed(at=EVENING, card_digest=CARD.digest, by="ops")
    assert with_card().add(entry).study.approvals_used == {CARD.digest: entry}
