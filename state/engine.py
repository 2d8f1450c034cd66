"""Connections and transactions, on SQLite and PostgreSQL alike.

SQLite: every writing transaction begins with BEGIN IMMEDIATE, because a deferred one that reads first and writes
later loses updates between processes; a commit is on disk before it returns. Nothing happens at import.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from experiments.errors import InputError
from state.errors import StoreUnusable

BUSY_MS = 10_000
_PRAGMAS = (f"busy_timeout={BUSY_MS}", "synchronous=FULL", "foreign_keys=ON")
_WAL_PAUSE_S = 0.05
_READ = {"tuneloop_read": True}


def parse_url(url_or_path: str | os.PathLike[str]) -> URL:
    """A database URL, or the path of a SQLite file."""
    text = os.fspath(url_or_path)
    if "://" not in text:
        return URL.create("sqlite", database=os.path.abspath(text))
    try:
        return make_url(text)
    except ArgumentError:
        raise InputError("database", 0, 0, "not a URL such as postgresql://user@host/name") from None


def make_engine(url: URL) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=url.get_backend_name() != "sqlite")
    except (ImportError, NoSuchModuleError) as error:
        raise InputError(shown(url), 0, 0, f"no driver for this kind of database: {error}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def shown(url: URL) -> str:
    """The URL as it may be printed: without the password."""
    return (url.database or "memory") if url.get_backend_name() == "sqlite" else url.render_as_string()


def _prepare_sqlite(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver's own transaction mode begins none on SELECT
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()
    _write_ahead(connection)


def _write_ahead(connection: Any) -> None:
    """The change to WAL does not heed busy_timeout: of two first connections at once, one may be told "locked"."""
    pause = threading.Event()
    for _ in range(int(BUSY_MS / 1000 / _WAL_PAUSE_S)):
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            pause.wait(_WAL_PAUSE_S)
        else:
            return
    connection.execute("PRAGMA journal_mode=WAL").close()


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get("tuneloop_read", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


class Store:
    """One database. `reading` and `writing` are the only ways in; each is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def name(self) -> str:
        return shown(self.engine.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A snapshot. Blocks no writer."""
        with self._translated(), self.engine.connect() as connection:
            yield connection.execution_options(**_READ)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Commits at the end, rolls back on any exception. IntegrityError is left to the caller."""
        with self._translated(), self.engine.begin() as connection:
            yield connection

    def backup(self, target: str) -> None:
        """A whole copy of a SQLite database, taken while others use it. A server is backed up by its own means."""
        if self.engine.dialect.name != "sqlite":
            return
        with self._translated(), self.engine.connect() as connection:
            # Not in a transaction, so past SQLAlchemy, which would begin one.
            cursor = connection.connection.cursor()
            try:
                cursor.execute("VACUUM INTO ?", (target,))
            except sqlite3.Error as error:
                raise StoreUnusable(f"database {self.name}: no backup in {target}: {error}") from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split())[:300]
            raise StoreUnusable(
                f"database {self.name}: {reason}; nothing may be sent until it answers again"
            ) from error
