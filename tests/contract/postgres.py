"""A throw-away PostgreSQL for one test session: its own folder, a Unix socket, no port, no durability."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa


def missing() -> str | None:
    """Why there can be no server here."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    if _program("initdb") is None:
        return "no PostgreSQL server programs (initdb) on this machine"
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        return "initdb refuses root, and there is no runuser"
    return None


def _program(name: str) -> str | None:
    return shutil.which(name) or next((str(p) for p in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)


@contextmanager
def throwaway_server() -> Iterator[str]:
    """The URL of a fresh server, without a database name to share: see `fresh_database`."""
    folder = tempfile.mkdtemp(prefix="tuneloop-pg-")
    as_nobody = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
    os.chmod(folder, 0o777)
    data = f"{folder}/data"
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_connections=60"
    _run(
        [
            *as_nobody,
            str(_program("initdb")),
            "-D",
            data,
            "-U",
            "tune",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]
    )
    control = [*as_nobody, str(_program("pg_ctl")), "-D", data]
    _run([*control, "-w", "-l", f"{folder}/log", "-o", options, "start"])
    try:
        yield f"postgresql+psycopg://tune@/postgres?host={folder}"
    finally:
        _run([*control, "-m", "immediate", "stop"])
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(server: str, name: str) -> str:
    """The URL of a new, empty database on the server."""
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", timeout=60)
