"""The schema: what the revisions make is what the models say, forward only, and newer databases are left alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from state.database import Database, open_database
from state.engine import Store, make_engine, parse_url
from state.errors import SchemaUnknown
from state.models import METADATA
from state.schema import HEAD, alembic_config
from tests.factories import a_night

NIGHT = a_night()


def described(connection: sa.Connection) -> dict[str, Any]:
    """Everything that a schema consists of, in comparable form."""
    inspector = sa.inspect(connection)
    tables = [name for name in inspector.get_table_names() if name != "alembic_version"]
    return {
        table: {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)],
            "primary": inspector.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted(sorted(u["column_names"]) for u in inspector.get_unique_constraints(table)),
            "checks": sorted((str(c["name"]), c["sqltext"]) for c in inspector.get_check_constraints(table)),
            "foreign": sorted(str(f["constrained_columns"]) for f in inspector.get_foreign_keys(table)),
            "indexes": sorted(str(i["column_names"]) for i in inspector.get_indexes(table)),
        }
        for table in sorted(tables)
    }


def test_the_revisions_make_what_the_models_say(sql_database: Database) -> None:
    """alembic finds no difference, and tables, keys, checks and indexes are those of the models."""
    store = sql_database._store
    with store.writing() as connection:
        command.check(alembic_config(connection))
        migrated = described(connection)
        METADATA.drop_all(connection)
        METADATA.create_all(connection)
        assert described(connection) == migrated


def test_head_is_the_last_revision(sql_database: Database) -> None:
    """The constant that is compared on every open is the one that alembic knows; there is one line of revisions."""
    with sql_database._store.reading() as connection:
        script = ScriptDirectory.from_config(alembic_config(connection))
        assert script.get_heads() == [HEAD]
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == HEAD


def test_opening_again_changes_nothing(database_url: str) -> None:
    """A second open finds its tables and its entries."""
    with open_database(database_url) as database:
        database.ledger().append("night-1", NIGHT, after=0)
    with open_database(database_url) as database:
        assert list(database.ledger().entries("night-1")) == NIGHT


@pytest.mark.parametrize("may_migrate", [True, False])
def test_a_newer_database_is_refused(database_url: str, may_migrate: bool) -> None:
    """A revision that this version does not have is named, and nothing is changed."""
    with open_database(database_url) as database, database._store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0999'")
    with pytest.raises(SchemaUnknown, match="0999"):
        open_database(database_url, may_migrate=may_migrate)
    store = Store(make_engine(parse_url(database_url)))
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == "0999"
    store.engine.dispose()


def test_services_that_start_at_once_make_one_schema(database_url: str) -> None:
    """Several processes may open a new database at the same moment; each gets it whole."""
    gate, errors = threading.Barrier(4), []

    def start() -> None:
        gate.wait()
        try:
            open_database(database_url).close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_migration_that_fails_leaves_the_old_schema(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a migration is one transaction: a database is never between two schemas."""

    def upgrade_and_fail(config: Any, revision: str) -> None:
        upgrade(config, revision)
        raise ZeroDivisionError

    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", upgrade_and_fail)
    with pytest.raises(ZeroDivisionError):
        open_database(database_url)
    store = Store(make_engine(parse_url(database_url)))
    with store.reading() as connection:
        assert sa.inspect(connection).get_table_names() == []
    store.engine.dispose()
