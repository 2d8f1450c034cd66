"""`service.yaml`: which workspaces one service drives, when, and whom it tells. Nothing secret is in it but by file."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field

from agent.disk import FREE_GIB
from agent.notices import Notice
from agent.workspace import read_input
from executor.pool import Argv
from experiments.document import parse_document
from experiments.errors import InputError
from experiments.schema import Line, Real, Strict, Switch, validate

_DAYS = frozenset(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
_FIELDS = 5


def _crontab(text: str) -> str:
    """Five fields. Days of the week by name: whether 0 or 1 begins the week differs from program to program."""
    fields = text.split()
    if len(fields) != _FIELDS:
        raise ValueError("a start has five fields: minute hour day month weekday, as in 0 20 * * mon-fri")
    days = fields[-1].lower().replace("-", ",").split(",")
    if fields[-1] != "*" and not set(days) <= _DAYS:
        raise ValueError(f"write weekdays by name (mon-fri, sat,sun), not {fields[-1]!r}")
    return " ".join(fields).lower()


def _zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError(f"{name!r} is not a time zone such as UTC or Asia/Shanghai")
    return name


class Window(Strict):
    """New trials may start from each `start` on, for so many hours."""

    start: Annotated[str, AfterValidator(_crontab)]
    hours: Real = Field(gt=0, le=24 * 7)


class Tell(Strict):
    """Where notices go. A webhook's URL is a secret, so it is in a file of its own."""

    command: Argv | None = None
    webhook_file: Line | None = None
    on: tuple[Notice, ...] = tuple(Notice)


class ServiceFile(Strict):
    """Paths are relative to the file. `keep_artifacts_days` None: raw files are never removed."""

    name: Line | None = Field(default=None, max_length=100)
    workspaces: tuple[Line, ...] = Field(min_length=1, max_length=1000)
    database_url_file: Line | None = None
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    tick_s: Real = Field(default=2, ge=0.1, le=60)
    night_windows: tuple[Window, ...] = Field(default=(), max_length=50)
    keep_artifacts_days: Real | None = Field(default=None, gt=0)
    disk_free_gib: Real = Field(default=FREE_GIB, ge=0)
    stuck_minutes: Real = Field(default=20, ge=1)
    restart_when_stuck: Switch = True
    notify: Tell = Tell()


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """What `serve` was asked for, with every path resolved."""

    file: ServiceFile
    workspaces: tuple[Path, ...]
    folder: Path

    @property
    def name(self) -> str:
        return self.file.name or socket.gethostname()

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.file.timezone)

    def resolve(self, path: str) -> Path:
        return (self.folder / path).resolve()


def read_arrangement(paths: list[Path]) -> Arrangement:
    """One service.yaml, or workspace folders with the settings' defaults. Raises InputError for anything else."""
    if len(paths) == 1 and paths[0].is_file():
        file = paths[0].resolve()
        described = validate(parse_document(read_input(file), str(file)), ServiceFile)
        folder = file.parent
    else:
        described = ServiceFile(workspaces=tuple(str(path.resolve()) for path in paths))
        folder = paths[0].resolve()  # where the service's own log goes
    found = tuple((folder / path).resolve() for path in described.workspaces)
    for index, workspace in enumerate(found):
        if not (workspace / "goal.yaml").is_file():
            raise InputError(str(workspace), 0, 0, "is not a workspace: it has no goal.yaml; make one: tuneloop init")
        if workspace in found[:index]:
            raise InputError(str(workspace), 0, 0, "is listed twice")
    return Arrangement(file=described, workspaces=found, folder=folder)
