"""One workspace as the dashboard sees it: read models for lists, the folded ledger for pages, the operator's file.

Opens for reading only and holds no lock of the study. The fold is kept and extended, so that a page after a new entry
costs that entry and not the night.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from agent.authority import Authority
from agent.bootstrap import read_pool
from agent.dashboard.parts import Parts
from agent.ledger.history import History, gather_folded
from agent.ledger.redaction import Redactor
from agent.pages import private_names
from agent.records import Record, open_for_reading
from agent.status_report import StatusReport, read_report
from agent.workspace import Workspace
from executor.clock import Clock
from experiments.errors import InputError, TuningError
from experiments.ledger import LedgerEntry
from experiments.study import Study, extend, fold
from experiments.trial import Artifact
from state.control import ControlFile, ControlReading
from state.views import Pulse, Views

T = TypeVar("T")

MANY = 2000  # entries


class FileMark(NamedTuple):
    """Whether a small file is still the one that was looked at."""

    changed_ns: int
    size: int
    node: int


class Mark(NamedTuple):
    """Changes whenever something happens that a page could show."""

    pulse: Pulse | None
    control: FileMark | None
    status: FileMark | None
    trouble: str = ""


class Site:
    """Safe to share between threads. Before a study was opened, whatever reads it raises NoStudy."""

    def __init__(self, root: Path, key: str, clock: Clock) -> None:
        self.workspace, self.key, self.clock = Workspace(root.resolve()), key, clock
        self.parts = Parts()
        self._record: Record | None = None
        self._study: Study | None = None
        self._entries: list[LedgerEntry] = []
        self._settled = 0  # so many of them are known to last
        self._history: History | None = None
        self._made: dict[str, tuple[History, Any]] = {}
        self._redactor: tuple[FileMark | None, Redactor] | None = None
        self._shown_by: Redactor | None = None  # who decided which names the history may show
        self._lock, self._opening = threading.RLock(), threading.Lock()

    @property
    def redact(self) -> Redactor:
        """Takes the private names of the pool out of whatever is shown. Without a readable pool, by pattern alone.

        Another one once the pool file has changed: it may come after the dashboard.
        """
        mark = _mark(self.workspace.pool_file)
        known = self._redactor
        if known is None or known[0] != mark:
            known = self._redactor = mark, _redactor_of(self.workspace)
        return known[1]

    @property
    def record(self) -> Record:
        """Opened at the first question after there is something to read."""
        with self._opening:
            if self._record is None:
                self._record = open_for_reading(self.workspace)
            return self._record

    @property
    def study_id(self) -> str:
        return self.record.study_id()

    @property
    def views(self) -> Views:
        return self.record.database.views()

    def report(self) -> StatusReport:
        return read_report(self.record, self.clock.now())

    def control(self) -> ControlReading:
        return ControlFile(self.workspace.control_file).read()

    def authority(self) -> Authority:
        """For questions only: nothing that it reads is written down."""
        return Authority(control=ControlFile(self.workspace.control_file), clock=self.clock)

    @contextmanager
    def history(self) -> Iterator[History]:
        """The whole study as of now. It grows in place, so that one reader at a time has it."""
        with self._lock:
            study_id = self.study_id
            if self._study is not None and self._study.study_id != study_id:
                self._study, self._history, self._entries, self._made, self._settled = None, None, [], {}, 0
            self._read_on(study_id)
            if self._study is None:
                raise TuningError(f"study {study_id}: its first entry is missing")
            redact = self.redact
            if self._history is None or self._shown_by is not redact:
                self._history, self._shown_by = gather_folded(self._study, self._entries, redact), redact
                self._settle()
            yield self._history

    def _settle(self) -> None:
        """Entries live as long as this process. A long study is taken out of the rounds of the garbage collector, which
        would stop every page for seconds again and again.
        """
        if len(self._entries) - self._settled >= MANY:
            self._settled = len(self._entries)
            gc.freeze()

    def made_once(self, name: str, make: Callable[[History], T]) -> T:
        """What was made of the study as it stands; made again only after the ledger grew."""
        with self.history() as history:
            of, found = self._made.get(name, (None, None))
            if of is not history:
                found = make(history)
                self._made[name] = history, found
            return cast("T", found)

    def _read_on(self, study_id: str) -> None:
        after = 0 if self._study is None else self._study.position
        new = self.record.database.ledger().entries(study_id, after=after)
        if not new:
            return
        self._history = None
        self._entries.extend(new)
        if self._study is None:
            self._study = fold(self._entries)
        else:
            extend(self._study, new)

    def mark(self) -> Mark:
        """Cheap enough to be asked for twice a second. Never raises: that nothing can be read is news as well."""
        control, status = _mark(self.workspace.control_file), _mark(self.workspace.status_file)
        try:
            return Mark(self.views.pulse(self.study_id), control, status)
        except TuningError as error:
            return Mark(None, control, status, trouble=str(error))

    def artifact(self, trial_id: str, name: str) -> Path | None:
        """A raw file that the record lists, if it lies where it should: nothing is reached by a link or by `..`."""
        if all(artifact.name != name for artifact in self.artifacts(trial_id)):
            return None
        path, root = self.workspace.artifacts / trial_id / name, self.workspace.artifacts
        real = path.resolve()
        return real if real == root.resolve() / trial_id / name and real.is_file() else None

    def artifacts(self, trial_id: str) -> tuple[Artifact, ...]:
        """Of a trial of this study; of any other one, nothing."""
        row = self.views.trial(trial_id)
        return () if row is None or row.study_id != self.study_id else self.views.artifacts(trial_id)

    def close(self) -> None:
        with self._opening:
            if self._record is not None:
                self._record.close()
                self._record = None


def _redactor_of(workspace: Workspace) -> Redactor:
    try:
        return Redactor(private_names(read_pool(workspace)))
    except InputError:
        return Redactor()


def sites_of(roots: list[Path], clock: Clock) -> dict[str, Site]:
    """The workspaces by the name that they have in addresses. InputError for a folder that is none."""
    sites: dict[str, Site] = {}
    for root in roots:
        if not root.is_dir():
            raise InputError(str(root), 0, 0, "is not a folder; name the workspaces to show")
        key = _key(root.resolve().name, sites)
        sites[key] = Site(root, key, clock)
    return sites


def _key(name: str, taken: dict[str, Site]) -> str:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name).strip("-") or "workspace"
    number = 1
    while (key := plain if number == 1 else f"{plain}-{number}") in taken:
        number += 1
    return key


def _mark(path: Path) -> FileMark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return FileMark(found.st_mtime_ns, found.st_size, found.st_ino)
