"""The throw-away PostgreSQL of the store contracts, for the tests here that run on both kinds of database."""

from __future__ import annotations

from tests.contract.conftest import database_url, postgres_server

__all__ = ["database_url", "postgres_server"]
