"""Writes the asset of `test_released_schema`: `python -m tests.state.released`, once per released schema.

A released asset is never written again: it stands for the databases that users have.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from state.database import open_database
from state.schema import HEAD
from tests.factories import a_night

ASSETS = Path(__file__).with_name("assets")
ENTRIES = 24  # the baseline, one card through screening and confirmation


def write_asset() -> Path:
    """The SQL text of a database with the beginning of the scripted night."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuneloop.db"
        with open_database(path) as database:
            database.ledger().append("night-1", a_night()[:ENTRIES], after=0)
        connection = sqlite3.connect(path)
        asset = ASSETS / f"schema-{HEAD}.sql"
        asset.write_text("\n".join(connection.iterdump()) + "\n")
        connection.close()
    return asset


if __name__ == "__main__":
    write_asset()
