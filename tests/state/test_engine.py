"""The database as such: how it is opened, what it promises on disk, and how it says that it cannot."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from experiments.errors import InputError, TuningError
from state.database import open_database
from state.engine import Store, _prepare_sqlite, make_engine, parse_url, shown
from state.errors import SchemaUnknown, StoreUnusable
from tests.factories import a_night

NIGHT = a_night()
STUDY = "night-1"


@pytest.mark.parametrize(
    ("pragma", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 10_000)]
)
def test_every_connection_is_durable_and_strict(tmp_path: Path, pragma: str, value: object) -> None:
    """WAL, a flush at every commit, foreign keys, and patience with other writers."""
    store = Store(make_engine(parse_url(tmp_path / "x.db")))
    for _ in range(2):
        with store.reading() as connection:
            assert value == connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()
        store.engine.dispose()


class Contended(sqlite3.Connection):
    """As SQLite answers the loser of two first connections at once: at once, whatever its patience."""

    refusals = 3

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        if "journal_mode" in sql and self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("database is locked")
        return super().execute(sql, *rest)


def test_a_first_connection_beside_another_comes_in(tmp_path: Path) -> None:
    """That the file is just being changed to WAL by another process is waited for."""
    connection = sqlite3.connect(tmp_path / "x.db", factory=Contended)
    _prepare_sqlite(connection, None)  # type: ignore[arg-type]

    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_reader_sees_one_moment(tmp_path: Path) -> None:
    """A snapshot does not change while it is read, and does not keep a writer waiting."""
    store = Store(make_engine(parse_url(tmp_path / "x.db")))
    with store.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
    with store.reading() as reader:
        assert reader.exec_driver_sql("SELECT count(*) FROM t").scalar_one() == 0
        with store.writing() as writer:
            writer.exec_driver_sql("INSERT INTO t VALUES (1)")
        assert reader.exec_driver_sql("SELECT count(*) FROM t").scalar_one() == 0
    with store.reading() as reader:
        assert reader.exec_driver_sql("SELECT count(*) FROM t").scalar_one() == 1
    store.engine.dispose()


def _insert_and_fail(store: Store) -> None:
    with store.writing() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError


def test_an_exception_rolls_back(tmp_path: Path) -> None:
    """A transaction that fails half-way leaves nothing."""
    store = Store(make_engine(parse_url(tmp_path / "x.db")))
    with store.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
    with pytest.raises(ZeroDivisionError):
        _insert_and_fail(store)
    with store.reading() as reader:
        assert reader.exec_driver_sql("SELECT count(*) FROM t").scalar_one() == 0
    store.engine.dispose()


def test_a_password_is_never_shown() -> None:
    """Messages name the server and the user only."""
    url = parse_url("postgresql+psycopg://tune:s3cret@db.example/night")
    assert "s3cret" not in shown(url)
    assert "db.example" in shown(url)


def test_what_is_no_url_is_refused_without_echoing_it() -> None:
    """A malformed URL may hold a password as well."""
    with pytest.raises(InputError) as caught:
        parse_url("postgresql//tune:s3cret@://")
    assert "s3cret" not in str(caught.value)


def test_an_unknown_kind_of_database_is_refused() -> None:
    """With the name of what is missing, not a traceback."""
    with pytest.raises(InputError, match="no driver"):
        open_database("nosuchdb://host/name")


@pytest.mark.parametrize("where", ["missing/folder/x.db", "."])
def test_a_path_that_cannot_be_opened_says_so(tmp_path: Path, where: str) -> None:
    """No folder, or a folder in place of a file."""
    with pytest.raises(StoreUnusable, match="unable to open database file"):
        open_database(tmp_path / where)


def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    """A text file is left as it is."""
    path = tmp_path / "tuneloop.db"
    path.write_text("not a database\n" * 200)
    with pytest.raises(StoreUnusable, match="not a database"):
        open_database(path)
    assert path.read_text() == "not a database\n" * 200


def test_damaged_pages_are_found(tmp_path: Path) -> None:
    """The check of the file finds what the ledger would only meet later."""
    path = tmp_path / "tuneloop.db"
    with open_database(path) as database:
        database.ledger().append(STUDY, NIGHT, after=0)
        database.check_integrity()
    sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    content = bytearray(path.read_bytes())
    for offset in range(len(content) // 8192 * 4096, len(content), 4096):
        content[offset : offset + 64] = b"\xa5" * 64
    path.write_bytes(content)
    with open_database(path) as database, pytest.raises(StoreUnusable, match=r"malformed|damaged"):
        database.check_integrity()


def test_a_full_disk_stores_nothing_and_says_so(tmp_path: Path) -> None:
    """Without room the append fails as a whole; with room again it succeeds from where it was."""
    path = tmp_path / "tuneloop.db"
    with open_database(path) as database:
        ledger = database.ledger()
        ledger.append(STUDY, NIGHT[:3], after=0)

        @sa.event.listens_for(database._store.engine, "begin")
        def _no_room(connection: sa.Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages if full else 1 << 30}")

        full = True
        with pytest.raises(StoreUnusable, match="disk is full; nothing may be sent"):
            ledger.append(STUDY, NIGHT[3:], after=3)
        assert ledger.verify(STUDY) == 3
        full = False
        assert len(NIGHT) == ledger.append(STUDY, NIGHT[3:], after=3)


def test_a_locked_database_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another program holds the file beyond all patience, nothing is written and the message says why."""
    monkeypatch.setattr("state.engine._PRAGMAS", ("busy_timeout=50", "foreign_keys=ON"))
    path = tmp_path / "tuneloop.db"
    with open_database(path) as database:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnusable, match="locked"):
            database.ledger().append(STUDY, NIGHT, after=0)
        other.rollback()
        other.close()
        assert database.ledger().position(STUDY) == 0


def test_readers_do_not_create_a_database(tmp_path: Path) -> None:
    """`status` in an empty folder says that there is nothing, and makes no tables."""
    with pytest.raises(SchemaUnknown, match="no tables of tuneloop"):
        open_database(tmp_path / "tuneloop.db", may_migrate=False)


def test_opening_again_needs_no_alembic(tmp_path: Path) -> None:
    """The import of alembic would cost more than a whole status: it happens only when the schema changes."""
    path = tmp_path / "tuneloop.db"
    open_database(path).close()
    program = (
        "import sys; from state.database import open_database; open_database(sys.argv[1]).close();"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'alembic', 'mako', 'langgraph', 'paramiko'}))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_store_raises_only_what_a_caller_can_name() -> None:
    """Everything that the store refuses is a TuningError, so that no command ends in a traceback."""
    from state import errors

    refusals = [v for v in vars(errors).values() if isinstance(v, type) and v is not TuningError]
    assert all(issubclass(refusal, TuningError) for refusal in refusals)


def test_an_append_is_quick(tmp_path: Path) -> None:
    """A trial's entry with its projections and the flush to disk stays within a few milliseconds."""
    with open_database(tmp_path / "tuneloop.db") as database:
        ledger, times = database.ledger(), []
        for after, entry in enumerate(NIGHT):
            began = time.perf_counter()
            ledger.append(STUDY, [entry], after=after)
            times.append(time.perf_counter() - began)
    assert sorted(times)[len(times) // 2] < 0.05  # 1 to 2 ms on a quiet machine; the room is for loaded ones


def test_a_backup_is_a_whole_database(tmp_path: Path) -> None:
    """A copy taken while the service writes opens, verifies, and is never written over."""
    with open_database(tmp_path / "tuneloop.db") as database:
        database.ledger().append(STUDY, NIGHT[:5], after=0)
        database.backup(tmp_path / "copy.db")
        database.ledger().append(STUDY, NIGHT[5:], after=5)
        with pytest.raises(StoreUnusable, match="already exists"):
            database.backup(tmp_path / "copy.db")
    with open_database(tmp_path / "copy.db") as copy:
        assert copy.ledger().verify(STUDY) == 5


def test_a_database_is_copied_before_it_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old schema with all its entries stays beside the new one."""
    path = tmp_path / "tuneloop.db"
    with open_database(path) as database:
        database.ledger().append(STUDY, NIGHT, after=0)
    monkeypatch.setattr("state.schema.HEAD", "0002")
    open_database(path).close()
    monkeypatch.undo()
    with open_database(tmp_path / "tuneloop.db.schema-0001") as copy:
        assert len(NIGHT) == copy.ledger().verify(STUDY)
