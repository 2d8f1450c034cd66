"""The hash chain: whatever is done to a stored entry is found, at its own row."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from state.database import Database, open_database
from state.errors import LedgerDamaged
from state.models import ENTRIES, STUDIES
from tests.factories import a_night, an_opening

NIGHT = a_night(settle_held=True)
STUDY = "night-1"


@pytest.fixture
def night(tmp_path: Path) -> Database:
    database = open_database(tmp_path / "tuneloop.db")
    database.ledger().append(STUDY, NIGHT, after=0)
    return database


def edit(database: Database, statement: sa.Update | sa.Delete) -> None:
    with database._store.writing() as connection:
        connection.execute(statement)


def at(position: int) -> sa.ColumnElement[bool]:
    return ENTRIES.c.position == position


def test_an_untouched_ledger_verifies(night: Database) -> None:
    """The length of the chain is the number of entries."""
    assert len(NIGHT) == night.ledger().verify(STUDY)


@pytest.mark.parametrize("position", [1, 2, len(NIGHT) // 2, len(NIGHT)])
@pytest.mark.parametrize("column", ["payload", "kind", "at", "prev_hash", "hash"])
def test_one_changed_byte_is_found_at_its_row(night: Database, column: str, position: int) -> None:
    """Text, kind, time and both hashes are covered; the message names the entry."""
    with night._store.reading() as connection:
        value = connection.execute(sa.select(ENTRIES.c[column]).where(at(position))).scalar_one()
    if column == "at":
        changed = value.replace(microsecond=(value.microsecond + 1) % 1_000_000)
    else:
        changed = value[:-1] + ("x" if value[-1] != "x" else "y")
    edit(night, sa.update(ENTRIES).where(at(position)).values({column: changed}))
    with pytest.raises(LedgerDamaged, match=f"entry {position} "):
        night.ledger().verify(STUDY)


def test_every_bit_of_a_text_counts(night: Database) -> None:
    """Flipping any one character of a payload is found, blanks and digits alike."""
    with night._store.reading() as connection:
        text = connection.execute(sa.select(ENTRIES.c.payload).where(at(4))).scalar_one()
    for index in range(0, len(text), max(1, len(text) // 60)):
        flipped = text[:index] + chr(ord(text[index]) ^ 1) + text[index + 1 :]
        edit(night, sa.update(ENTRIES).where(at(4)).values(payload=flipped))
        with pytest.raises(LedgerDamaged, match="entry 4 "):
            night.ledger().verify(STUDY)
    edit(night, sa.update(ENTRIES).where(at(4)).values(payload=text))
    night.ledger().verify(STUDY)


def test_a_removed_entry_is_missed(night: Database) -> None:
    """In the middle, the next one is out of place."""
    edit(night, sa.delete(ENTRIES).where(at(5)))
    with pytest.raises(LedgerDamaged, match="entry 5 is missing"):
        night.ledger().verify(STUDY)


def test_a_cut_off_end_is_missed(night: Database) -> None:
    """The study remembers how many entries there were, and the last hash."""
    edit(night, sa.delete(ENTRIES).where(at(len(NIGHT))))
    with pytest.raises(LedgerDamaged, match=f"ends at entry {len(NIGHT) - 1}, but {len(NIGHT)} were appended"):
        night.ledger().verify(STUDY)


def test_a_whole_ledger_that_is_gone_is_missed(night: Database) -> None:
    """No entries at all is not an empty ledger if the study says otherwise."""
    edit(night, sa.delete(ENTRIES))
    with pytest.raises(LedgerDamaged, match="ends at entry 0"):
        night.ledger().verify(STUDY)


def test_swapped_entries_are_found(night: Database) -> None:
    """Order is part of the record."""
    for old, new in ((3, 900), (4, 3), (900, 4)):
        edit(night, sa.update(ENTRIES).where(at(old)).values(position=new))
    with pytest.raises(LedgerDamaged, match="entry 3 "):
        night.ledger().verify(STUDY)


def test_entries_moved_to_another_study_are_found(night: Database) -> None:
    """A chain belongs to its study."""
    other = an_opening().model_copy(update={"study_id": "night-2"})
    night.ledger().append("night-2", [other], after=0)
    edit(night, sa.delete(ENTRIES).where(ENTRIES.c.study_id == "night-2"))
    edit(night, sa.update(ENTRIES).where(at(1)).values(study_id="night-2"))
    with night._store.reading() as connection:
        hash_ = connection.execute(sa.select(ENTRIES.c.hash)).scalars().first()
    edit(night, sa.update(STUDIES).where(STUDIES.c.id == "night-2").values(head_hash=hash_))
    with pytest.raises(LedgerDamaged, match="study night-2: entry 1 "):
        night.ledger().verify("night-2")


@pytest.mark.parametrize("payload", ["", "{}", "null", '{"kind": "from_the_future"}', '{"kind": "study_opened"}', "\0"])
def test_an_entry_that_cannot_be_read_is_named(night: Database, payload: str) -> None:
    """Reading stops at it with its position and kind, and never guesses."""
    edit(night, sa.update(ENTRIES).where(at(6)).values(payload=payload))
    with pytest.raises(LedgerDamaged, match=r"study night-1: entry 6 \(.*cannot be read"):
        night.ledger().entries(STUDY)
