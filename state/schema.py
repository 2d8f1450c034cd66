"""The version of the schema: read it cheaply on open, migrate forward, refuse what a newer version wrote.

alembic is imported only when something has to change: its import costs more than a whole `tuneloop status`.
"""

from __future__ import annotations

import io
import os
from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import IntegrityError

from state.engine import Store
from state.errors import SchemaUnknown

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"

# Any constant; two services that start at once on one PostgreSQL must not both create the tables.
_MIGRATION_LOCK = 7_120_953_411


def migrate(store: Store) -> None:
    """Bring the database to HEAD. Raises SchemaUnknown for a revision that this version does not have."""
    found = _read(store)
    if found == HEAD:
        return
    if found is not None:
        _back_up(store, found)
    with store.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        _upgrade(store, connection)


def _back_up(store: Store, found: str) -> None:
    """The way back: revisions only go forward."""
    target = f"{store.engine.url.database}.schema-{found}"
    if not os.path.exists(target):
        store.backup(target)


def require_head(store: Store) -> None:
    """For readers, which never migrate."""
    found = _read(store)
    if found != HEAD:
        what = f"has schema {found}" if found else "has no tables of tuneloop"
        raise SchemaUnknown(
            f"database {store.name} {what}, this version reads {HEAD};"
            " start the service of this version once, or use the version that wrote it"
        )


def _read(store: Store) -> str | None:
    with store.reading() as connection:
        return revision(connection)


def revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def alembic_config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(files("state") / "migrations"))
    config.attributes["connection"] = connection
    return config


def _upgrade(store: Store, connection: Connection) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    config = alembic_config(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    found = revision(connection)
    if found is not None and found not in known:
        raise SchemaUnknown(
            f"database {store.name} has schema {found}, which a newer version of tuneloop wrote;"
            " use that version, or the copy that was made beside the database before the upgrade"
        )
    try:
        command.upgrade(config, "head")
    except IntegrityError as error:
        raise SchemaUnknown(f"database {store.name}: stored rows do not fit the new schema: {error.orig}") from error
