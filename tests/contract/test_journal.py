"""What every Journal promises, in memory and in each database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from experiments.errors import InvalidTransition
from experiments.ports import JournalRow
from experiments.trial import Stage
from tests.contract.conftest import AnyDatabase, Clock
from tests.factories import EVENING

TRIAL = "night-1-t0007"


def row(stage: Stage, attempt: int = 1, *, began: float = 0, ended: float | None = None, **rest: object) -> JournalRow:
    return JournalRow(
        trial_id=TRIAL,
        stage=stage,
        attempt=attempt,
        began=EVENING + timedelta(seconds=began),
        ended=None if ended is None else EVENING + timedelta(seconds=ended),
        outcome=rest.pop("outcome", None),  # type: ignore[arg-type]
        payload=rest,
    )


def test_a_begun_stage_is_an_open_row(database: AnyDatabase, clock: Clock) -> None:
    """The intent is there with its time and payload, and has no outcome."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.LAUNCH, 1, {"job": "j1"})
    assert [row(Stage.LAUNCH, job="j1")] == list(journal.rows(TRIAL))


def test_an_ended_stage_keeps_intent_and_outcome(database: AnyDatabase, clock: Clock) -> None:
    """The row keeps what the intent said; where intent and outcome name one key, the outcome holds."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.LAUNCH, 1, {"job": "j1", "state": "sent"})
    clock.advance(3.5)
    journal.end(TRIAL, Stage.LAUNCH, 1, "done", {"state": "ready", "pids": [4, 5]})
    expected = row(Stage.LAUNCH, ended=3.5, outcome="done", job="j1", state="ready", pids=[4, 5])
    assert [expected] == list(journal.rows(TRIAL))


def test_rows_are_in_the_order_in_which_they_began(database: AnyDatabase, clock: Clock) -> None:
    """Order is that of the intents, even if the clock stands still or steps back."""
    journal = database.journal(clock)
    for stage, attempt in ((Stage.CHECK, 1), (Stage.LAUNCH, 1), (Stage.LAUNCH, 2), (Stage.READY, 1)):
        journal.begin(TRIAL, stage, attempt, {})
        journal.end(TRIAL, stage, attempt, "done", {})
        clock.advance(-60)
    assert [(r.stage, r.attempt) for r in journal.rows(TRIAL)] == [
        ("check", 1),
        ("launch", 1),
        ("launch", 2),
        ("ready", 1),
    ]


def test_beginning_again_changes_nothing(database: AnyDatabase, clock: Clock) -> None:
    """A repeated intent for an open row leaves the first one, with its time and payload."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.MEASURE, 1, {"job": "j1"})
    clock.advance(60)
    journal.begin(TRIAL, Stage.MEASURE, 1, {"job": "j2"})
    assert [row(Stage.MEASURE, job="j1")] == list(journal.rows(TRIAL))


def test_an_ended_attempt_cannot_begin_again(database: AnyDatabase, clock: Clock) -> None:
    """Once its outcome is known an attempt is over; a further one needs a new number."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.COLLECT, 1, {})
    journal.end(TRIAL, Stage.COLLECT, 1, "transport", {})
    with pytest.raises(InvalidTransition, match="next attempt"):
        journal.begin(TRIAL, Stage.COLLECT, 1, {})
    journal.begin(TRIAL, Stage.COLLECT, 2, {})
    assert [r.outcome for r in journal.rows(TRIAL)] == ["transport", None]


def test_ending_twice_alike_changes_nothing(database: AnyDatabase, clock: Clock) -> None:
    """The same outcome again leaves time and payload of the first."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.READY, 1, {})
    journal.end(TRIAL, Stage.READY, 1, "done", {"port": 1})
    clock.advance(9)
    journal.end(TRIAL, Stage.READY, 1, "done", {"port": 2})
    assert [row(Stage.READY, ended=0, outcome="done", port=1)] == list(journal.rows(TRIAL))


def test_an_outcome_cannot_be_replaced(database: AnyDatabase, clock: Clock) -> None:
    """A row that ended one way never ends another way."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.MEASURE, 1, {})
    journal.end(TRIAL, Stage.MEASURE, 1, "unknown_end", {})
    with pytest.raises(InvalidTransition, match="unknown_end"):
        journal.end(TRIAL, Stage.MEASURE, 1, "done", {})
    assert [r.outcome for r in journal.rows(TRIAL)] == ["unknown_end"]


def test_what_never_began_cannot_end(database: AnyDatabase, clock: Clock) -> None:
    """An outcome without an intent is refused: no effect may exist that was not announced."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.MEASURE, 1, {})
    with pytest.raises(InvalidTransition, match="never began"):
        journal.end(TRIAL, Stage.MEASURE, 2, "done", {})


def test_trials_do_not_mix(database: AnyDatabase, clock: Clock) -> None:
    """Rows belong to one trial."""
    journal = database.journal(clock)
    journal.begin(TRIAL, Stage.CHECK, 1, {})
    journal.begin("other", Stage.CHECK, 1, {})
    assert [r.trial_id for r in journal.rows(TRIAL)] == [TRIAL]


def test_a_payload_without_a_text_is_refused(database: AnyDatabase, clock: Clock) -> None:
    """NaN has no JSON text; it is refused before anything is written."""
    journal = database.journal(clock)
    with pytest.raises(ValueError, match="JSON"):
        journal.begin(TRIAL, Stage.CHECK, 1, {"x": float("nan")})
    assert list(journal.rows(TRIAL)) == []


def test_the_formal_load_is_claimed_once(database: AnyDatabase, clock: Clock) -> None:
    """The first job gets the claim, its repeats are told so, and any other job is refused for ever."""
    journal = database.journal(clock)
    assert journal.formal_send(TRIAL) is None
    assert [journal.claim_formal_send(TRIAL, "j1", "p0") for _ in range(3)] == [True, False, False]
    with pytest.raises(InvalidTransition, match="j1"):
        journal.claim_formal_send(TRIAL, "j2", "p0")
    assert journal.formal_send(TRIAL) == "j1"
    assert journal.claim_formal_send("other", "j2", "p0")
