"""Databases of every released version still open: the schema moves forward, the entries stay as they were."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from experiments.study import fold
from state.database import open_database
from tests.state.released import ASSETS, ENTRIES

RELEASED = sorted(ASSETS.glob("schema-*.sql"))


@pytest.fixture(params=RELEASED, ids=[path.stem for path in RELEASED])
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "tuneloop.db"
    connection = sqlite3.connect(path)
    connection.executescript(request.param.read_text())
    connection.close()
    return path


def test_there_is_an_asset_of_the_first_schema() -> None:
    """The oldest schema that users have is tested for ever."""
    assert RELEASED[0].name == "schema-0001.sql"


def test_a_released_database_opens_and_verifies(released: Path) -> None:
    """Its chain is whole, its entries fold to a study, and its rows are those that this version would write."""
    with open_database(released) as database:
        ledger, views = database.ledger(), database.views()
        assert ledger.verify("night-1") == ENTRIES
        study = fold(ledger.entries("night-1"))
        before = (views.page("night-1"), views.cards("night-1"), views.kept("night-1"), views.studies())
        assert len(study.trials) == before[0].total
        ledger.rebuild("night-1")
        assert before == (views.page("night-1"), views.cards("night-1"), views.kept("night-1"), views.studies())


def test_a_released_database_can_be_written(released: Path) -> None:
    """Work goes on where the old version stopped."""
    with open_database(released) as database:
        ledger = database.ledger()
        last = ledger.entries("night-1", after=ENTRIES - 1)
        assert ledger.append("night-1", [], after=ENTRIES) == ENTRIES
        assert len(last) == 1
