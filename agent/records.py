"""Where the record of a workspace is: its own SQLite file, or the shared database that the environment names.

A workspace remembers in `study.id` which study is its own and where that is, so that a forgotten setting never opens
a second study under the same name.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agent.workspace import Workspace
from experiments.errors import InputError, TuningError
from state.database import Database, open_database

VARIABLE, FILE_VARIABLE = "TUNELOOP_DATABASE_URL", "TUNELOOP_DATABASE_URL_FILE"
MAX_URL_BYTES = 4096
OWN, SHARED = "own", "shared"


class NoStudy(TuningError):
    """Nothing was opened here yet."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """An open database and the workspace that looks into it."""

    workspace: Workspace
    database: Database
    is_shared: bool

    @property
    def place(self) -> str:
        return SHARED if self.is_shared else OWN

    def known_study(self) -> str | None:
        """The study of this workspace, if this database has it. InputError if it is in the other kind of database."""
        written = self.written_study()
        if written is not None:
            return written if self.database.views().study(written) is not None else None
        known = () if self.is_shared else self.database.views().studies()
        return known[0].id if known else None

    def written_study(self) -> str | None:
        """What `study.id` says, whether or not the study was opened."""
        file = self.workspace.study_file
        try:
            words = file.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return None
        if len(words) != 2 or words[1] not in (OWN, SHARED):
            raise InputError(str(file), 0, 0, "does not name a study and its database; restore it")
        if words[1] != self.place:
            where = "a shared database" if words[1] == SHARED else "the workspace's own database"
            hint = f"set {VARIABLE} or {FILE_VARIABLE}" if words[1] == SHARED else f"unset {VARIABLE}"
            raise InputError(str(file), 0, 0, f"study {words[0]} is in {where}; {hint}")
        return words[0]

    def study_id(self) -> str:
        """Raises NoStudy if none was opened."""
        found = self.known_study()
        if found is None:
            raise NoStudy(nothing_here(self.workspace))
        return found

    def remember(self, study_id: str) -> str:
        """Write down which study this is, unless another process was faster. Returns what is written."""
        target = self.workspace.study_file
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        try:
            temporary.write_text(f"{study_id} {self.place}\n")
            os.link(temporary, target)  # whole, or not at all; and never over another's
        except FileExistsError:
            return self.written_study() or study_id
        finally:
            temporary.unlink(missing_ok=True)
        return study_id

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_record(workspace: Workspace, url: str | None, *, may_migrate: bool = True) -> Record:
    """Readers pass `may_migrate=False` and create nothing. Raises NoStudy where there is nothing to read."""
    if url is None and not may_migrate and not workspace.database.exists():
        raise NoStudy(nothing_here(workspace))
    database = open_database(workspace.database if url is None else url, may_migrate=may_migrate)
    return Record(workspace=workspace, database=database, is_shared=url is not None)


def open_for_reading(workspace: Workspace) -> Record:
    """As `tuneloop status` and its like open it: where the environment says, changing nothing."""
    return open_record(workspace, url_from(os.environ), may_migrate=False)


def url_from(environment: Mapping[str, str]) -> str | None:
    """The shared database, if one is named. The URL may hold a password: it goes into no message."""
    url, file = environment.get(VARIABLE) or None, environment.get(FILE_VARIABLE) or None
    if url is not None and file is not None:
        raise InputError("environment", 0, 0, f"set {VARIABLE} or {FILE_VARIABLE}, not both")
    return url if file is None else read_url(Path(file))


def read_url(file: Path) -> str:
    """The one line of a file that holds a database URL."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_URL_BYTES + 1)
    except OSError as error:
        raise InputError(str(file), 0, 0, f"the database URL cannot be read: {error.strerror}") from None
    text = raw.decode("utf-8", errors="replace").strip()
    if len(raw) > MAX_URL_BYTES or not text.isprintable() or "://" not in text:
        raise InputError(str(file), 0, 0, "this file must hold one database URL on one line and nothing else")
    return text


def nothing_here(workspace: Workspace) -> str:
    where = f"{workspace.root}: no study was opened here yet"
    if workspace.study_file.exists():
        return f"{where} in this database; if it is in a shared one, name that in {VARIABLE} or {FILE_VARIABLE}"
    return f"{where}; start one with tuneloop run"
