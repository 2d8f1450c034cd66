"""The stores that every contract runs on: memory, SQLite, and PostgreSQL where a server can be started."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from state.database import Database, open_database
from state.memory import MemoryDatabase
from tests.contract import postgres
from tests.factories import EVENING

AnyDatabase = Database | MemoryDatabase

_NAMES = itertools.count(1)


@dataclass
class Clock:
    """A clock that tests move."""

    at: datetime = EVENING

    def __call__(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(f"no PostgreSQL: {reason}")
    with postgres.throwaway_server() as url:
        yield url


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database on each kind of server."""
    if request.param == "sqlite":
        return str(tmp_path / "tuneloop.db")
    server: str = request.getfixturevalue("postgres_server")
    return postgres.fresh_database(server, f"t{next(_NAMES)}")


@pytest.fixture
def sql_database(database_url: str) -> Iterator[Database]:
    with open_database(database_url) as database:
        yield database


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyDatabase]:
    if request.param == "memory":
        yield MemoryDatabase()
        return
    url = str(tmp_path / "tuneloop.db")
    if request.param == "postgresql":
        url = postgres.fresh_database(request.getfixturevalue("postgres_server"), f"t{next(_NAMES)}")
    with open_database(url) as opened:
        yield opened
