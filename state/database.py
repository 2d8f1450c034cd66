"""The one way into the database: `open_database`, then a ledger, a journal, the drivers or the views."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from sqlalchemy import text

from state.drivers import SqlDrivers
from state.engine import Store, make_engine, parse_url
from state.errors import StoreUnusable
from state.journal_store import SqlJournal
from state.ledger_store import SqlLedger
from state.retention import SqlRetention
from state.schema import migrate, require_head
from state.views import Views


class Database:
    """An open database. Cheap to keep, safe to share between threads; not to be carried over a fork."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ledger(self, epoch: int | None = None) -> SqlLedger:
        """`epoch`: what `drivers().acquire` returned; every append is refused once another process took over."""
        return SqlLedger(self._store, epoch)

    def journal(self, now: Callable[[], datetime], epoch: int | None = None) -> SqlJournal:
        return SqlJournal(self._store, now, epoch)

    def drivers(self, now: Callable[[], datetime]) -> SqlDrivers:
        return SqlDrivers(self._store, now)

    def views(self) -> Views:
        return Views(self._store)

    def retention(self, now: Callable[[], datetime]) -> SqlRetention:
        return SqlRetention(self._store, now)

    def backup(self, target: str | os.PathLike[str]) -> None:
        """See `state.engine.Store.backup`."""
        self._store.backup(os.fspath(target))

    def check_integrity(self) -> None:
        """SQLite's own check of its file; raises StoreUnusable. A server looks after its files itself."""
        with self._store.reading() as connection:
            if connection.dialect.name != "sqlite":
                return
            found = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
        if found != "ok":
            raise StoreUnusable(
                f"database {self._store.name} is damaged ({found}); restore it from a backup, then ask the hosts"
            )

    def close(self) -> None:
        self._store.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_database(url_or_path: str | os.PathLike[str], *, may_migrate: bool = True) -> Database:
    """Open, and bring the schema forward. Readers pass `may_migrate=False` and never change anything.

    Raises SchemaUnknown if another version wrote the database, StoreUnusable if it cannot be opened.
    """
    store = Store(make_engine(parse_url(url_or_path)))
    try:
        migrate(store) if may_migrate else require_head(store)
    except BaseException:
        store.engine.dispose()
        raise
    return Database(store)
