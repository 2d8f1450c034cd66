"""What every Ledger promises, in memory and in each database."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.errors import InvalidTransition, LedgerConflict
from experiments.ledger import LedgerEntry, OperatorSpoke
from experiments.ports import Ledger
from tests.contract.conftest import AnyDatabase
from tests.factories import EVENING, a_night, an_opening

NIGHT = a_night(settle_held=True)
STUDY = "night-1"


def said(reason: str = "handing over", by: str = "ops") -> OperatorSpoke:
    return OperatorSpoke(at=EVENING, mode="pause", by=by, reason=reason, file_digest="0" * 64)


def append_one_by_one(ledger: Ledger, entries: list[LedgerEntry]) -> None:
    for after, entry in enumerate(entries):
        ledger.append(STUDY, [entry], after=after)


def test_an_unknown_study_is_an_empty_ledger(database: AnyDatabase) -> None:
    """A study that nobody opened has no entries and stands at position 0."""
    ledger = database.ledger()
    assert (list(ledger.entries(STUDY)), ledger.position(STUDY)) == ([], 0)


def test_entries_come_back_as_they_were_appended(database: AnyDatabase) -> None:
    """A whole night comes back equal, entry by entry and in order, whether appended at once or singly."""
    ledger = database.ledger()
    assert len(NIGHT) == ledger.append(STUDY, NIGHT, after=0)
    assert list(ledger.entries(STUDY)) == NIGHT


def test_appending_singly_or_at_once_is_the_same(database: AnyDatabase) -> None:
    """The batches that entries arrive in leave no trace."""
    ledger = database.ledger()
    append_one_by_one(ledger, NIGHT)
    assert list(ledger.entries(STUDY)) == NIGHT
    assert len(NIGHT) == ledger.verify(STUDY)


def test_reading_after_a_position_gives_the_rest(database: AnyDatabase) -> None:
    """`after` skips exactly that many entries."""
    ledger = database.ledger()
    ledger.append(STUDY, NIGHT, after=0)
    assert NIGHT[7:] == list(ledger.entries(STUDY, after=7))
    assert list(ledger.entries(STUDY, after=len(NIGHT))) == []


@pytest.mark.parametrize("after", [0, 4, 6, 99])
def test_an_append_from_another_position_writes_nothing(database: AnyDatabase, after: int) -> None:
    """Whoever read an older or impossible position gets a conflict with both positions, and the ledger is as before."""
    ledger = database.ledger()
    ledger.append(STUDY, NIGHT[:5], after=0)
    with pytest.raises(LedgerConflict) as caught:
        ledger.append(STUDY, [said()], after=after)
    assert (after, 5) == (caught.value.expected, caught.value.actual)
    assert NIGHT[:5] == list(ledger.entries(STUDY))


def test_an_append_is_all_or_nothing(database: AnyDatabase) -> None:
    """If one entry of a batch cannot be stored, none of the batch is."""
    ledger = database.ledger()
    ledger.append(STUDY, NIGHT[:3], after=0)
    with pytest.raises(InvalidTransition):
        ledger.append(STUDY, [said(), an_opening()], after=3)
    assert NIGHT[:3] == list(ledger.entries(STUDY))


def test_a_ledger_begins_with_its_opening(database: AnyDatabase) -> None:
    """The first entry opens the study under its own name; anything else is refused."""
    ledger = database.ledger()
    with pytest.raises(InvalidTransition):
        ledger.append(STUDY, [said()], after=0)
    with pytest.raises(InvalidTransition):
        ledger.append("night-2", [an_opening()], after=0)
    assert ledger.position(STUDY) == 0


def test_an_empty_append_checks_the_position_and_writes_nothing(database: AnyDatabase) -> None:
    """Appending nothing is allowed from the right position only."""
    ledger = database.ledger()
    ledger.append(STUDY, NIGHT[:2], after=0)
    assert ledger.append(STUDY, [], after=2) == 2
    with pytest.raises(LedgerConflict):
        ledger.append(STUDY, [], after=1)


def test_studies_do_not_mix(database: AnyDatabase) -> None:
    """Each study has its own positions and its own chain."""
    ledger = database.ledger()
    ledger.append(STUDY, NIGHT[:4], after=0)
    other = an_opening().model_copy(update={"study_id": "night-2"})
    ledger.append("night-2", [other, said()], after=0)
    assert (ledger.verify(STUDY), ledger.verify("night-2")) == (4, 2)
    assert [other, said()] == list(ledger.entries("night-2"))


def test_one_trial_id_belongs_to_one_study(database: AnyDatabase) -> None:
    """A trial id that another study has used is refused: journal and hosts know trials by this id alone."""
    ledger = database.ledger()
    started = next(e for e in NIGHT if e.kind == "trial_started")
    ledger.append(STUDY, NIGHT, after=0)
    ledger.append("night-2", [an_opening().model_copy(update={"study_id": "night-2"})], after=0)
    with pytest.raises(InvalidTransition):
        ledger.append("night-2", [started], after=1)
    assert ledger.position("night-2") == 1


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reason=st.text(max_size=80), by=st.text(max_size=20))
def test_any_text_comes_back_unchanged(database: AnyDatabase, reason: str, by: str) -> None:
    """Whatever an operator writes, control characters and NUL included, is stored and verified as it is."""
    ledger = database.ledger()
    after = ledger.position(STUDY) or ledger.append(STUDY, [an_opening()], after=0)
    entry = said(reason, by)
    ledger.append(STUDY, [entry], after=after)
    assert [entry] == list(ledger.entries(STUDY, after=after))
    ledger.verify(STUDY)
