"""Databases of every released version still open: the schema moves forward, the entries stay as they were."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from experiments.study import fold
from state import schema
from state.database import open_database
from state.engine import Store, make_engine, parse_url
from state.models import METADATA
from tests.state.released import ASSETS, ENTRIES

RELEASED = sorted(ASSETS.glob("schema-*.sql"))
NEXT = '''
"""A schema of a later version, for a test."""

import sqlalchemy as sa
from alembic import op

revision = "later"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("studies", sa.Column("shift", sa.String(), nullable=True))
'''


@pytest.fixture(params=RELEASED, ids=[path.stem for path in RELEASED])
def released(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> str:
    """The URL of a database as that version left it, on each kind of server."""
    asset: Path = request.param
    old = tmp_path / "released.db"
    connection = sqlite3.connect(old)
    connection.executescript(asset.read_text())
    connection.close()
    if "://" not in database_url:
        return str(old)
    copy_to_server(old, database_url, asset.stem.removeprefix("schema-"))
    return database_url


def copy_to_server(old: Path, url: str, revision: str) -> None:
    """The tables as that version's own revisions make them there, with the same rows."""
    source, target = Store(make_engine(parse_url(old))), Store(make_engine(parse_url(url)))
    with target.writing() as there:
        command.upgrade(schema.alembic_config(there), revision)
        tables = sa.MetaData()
        tables.reflect(there)
    with source.reading() as here, target.writing() as there:
        for table in METADATA.sorted_tables:
            columns = [sa.column(c.name, table.c[c.name].type) for c in tables.tables[table.name].columns]
            rows = [row._asdict() for row in here.execute(sa.select(*columns).select_from(sa.table(table.name)))]
            if rows:
                there.execute(sa.insert(tables.tables[table.name]), rows)
    for store in (source, target):
        store.engine.dispose()


def test_there_is_an_asset_of_the_first_schema() -> None:
    """The oldest schema that users have is tested for ever."""
    assert RELEASED[0].name == "schema-0001.sql"


def test_a_released_database_opens_and_verifies(released: str) -> None:
    """Its chain is whole, its entries fold to a study, and its rows are those that this version would write."""
    with open_database(released) as database:
        ledger, views = database.ledger(), database.views()
        assert ledger.verify("night-1") == ENTRIES
        study = fold(ledger.entries("night-1"))
        before = (views.page("night-1"), views.cards("night-1"), views.kept("night-1"), views.studies())
        assert len(study.trials) == before[0].total
        ledger.rebuild("night-1")
        assert before == (views.page("night-1"), views.cards("night-1"), views.kept("night-1"), views.studies())


def test_a_released_database_can_be_written(released: str) -> None:
    """Work goes on where the old version stopped."""
    with open_database(released) as database:
        ledger = database.ledger()
        last = ledger.entries("night-1", after=ENTRIES - 1)
        assert ledger.append("night-1", [], after=ENTRIES) == ENTRIES
        assert len(last) == 1


def test_the_schema_moves_forward_and_the_entries_stay(
    released: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version with one more revision opens it: the revision was run, each entry is as it was, a copy is beside it."""
    revisions = tmp_path / "revisions"
    revisions.mkdir()
    (revisions / "later.py").write_text(NEXT.format(head=schema.HEAD))
    with open_database(released) as database:
        before = database.ledger().entries("night-1")
    usual = schema.alembic_config

    def with_one_more(connection: sa.Connection) -> Config:
        config = usual(connection)
        own = Path(str(config.get_main_option("script_location"))) / "versions"
        config.set_main_option("path_separator", "os")
        config.set_main_option("version_locations", f"{own}:{revisions}")
        return config

    old_head = schema.HEAD
    monkeypatch.setattr(schema, "alembic_config", with_one_more)
    monkeypatch.setattr(schema, "HEAD", "later")
    with open_database(released) as database:
        assert before == database.ledger().entries("night-1")
        assert database.ledger().verify("night-1") == ENTRIES
        with database._store.reading() as connection:
            columns = {column["name"] for column in sa.inspect(connection).get_columns("studies")}
            assert (schema.revision(connection), "shift" in columns) == ("later", True)
    if "://" not in released:
        assert Path(f"{released}.schema-{old_head}").exists()
