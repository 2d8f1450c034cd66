"""One workspace as a service sees it: opened when nobody else drives it, gone on with, closed when anything breaks.

Nothing is repaired in place. What broke is closed, said, and opened again later, which is the same as a first start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import structlog

from agent.bootstrap import Application
from agent.nodes import Tell
from agent.notices import Notices
from agent.records import Record
from agent.service.leaving import Leaving
from agent.session import PUBLISH_S, AlreadyRunning, Phase, StudySession, Voice, only_one
from executor.clock import Clock
from executor.trial_context import Report
from experiments.control import Mode
from experiments.errors import InputError, TuningError
from state.control import ControlFile, write_status
from state.errors import DriverRefused

log = structlog.get_logger(__name__)

AGAIN_S = 10.0  # between two tries to open a workspace

Open = Callable[[Path, Report, Tell], Application]


class StudyJob:
    """`tick` is called again and again, by one thread at a time."""

    def __init__(self, record: Record, opener: Open, owner: str, voice: Voice, notices: Notices, clock: Clock) -> None:
        self._record, self._opener, self._voice = record, opener, voice
        self._owner = f"{owner}:{record.workspace.root}"
        self.notices, self._clock = notices, clock
        self.session: StudySession | None = None
        self.is_drained = False
        self.problem: str | None = None
        self.busy_since: float | None = None
        self._held = ExitStack()
        self._in_use = threading.RLock()  # a study is not closed under a thread that uses it beside the tick
        self._next_try = float("-inf")

    @property
    def root(self) -> Path:
        return self._record.workspace.root

    @property
    def news_at(self) -> float | None:
        """When the tick that is under way last gave a sign of life. None: none is under way."""
        busy, session = self.busy_since, self.session
        return busy if busy is None or session is None else max(busy, session.news_at)

    def tick(self) -> None:
        self.busy_since = self._clock.monotonic()
        is_well = False
        try:
            self._go_on()
            is_well = True
        except Leaving:
            log.info("study.left", study=str(self.root.name))
        except AlreadyRunning as error:
            self._say(str(error))
        except DriverRefused as error:
            self._say(f"another service drives it: {error}")
        except TuningError as error:
            self._say(f"not driven now: {error}")
            self._write_problem(error)
        except OSError as error:  # a disk that is full or gone; what it held up is gone on with when it is back
            self._say(f"not driven now: {error.strerror or error}")
            log.warning("study.os_error", study=self.root.name, error=error.strerror, errno=error.errno)
        finally:
            if not is_well:
                self.close()
            self.busy_since = None

    def close(self) -> None:
        """Leave the study. Its hosts go on with what they do."""
        self.session = None
        with self._in_use:
            self._held.close()

    @contextmanager
    def beside(self) -> Iterator[StudySession | None]:
        """The open study, for a thread beside `tick`: it stays open until the thread is done with it."""
        with self._in_use:
            yield self.session

    def renew(self) -> None:
        """Keep the rights of an open study."""
        with self.beside() as session:
            if session is not None:
                session.app.drive.renew()
                session.app.turn.renew()

    def _go_on(self) -> None:
        if self.is_drained and self._is_told_to_leave():
            return
        self.is_drained = False
        session = self.session or self._open()
        if session is None:
            return
        if not session.is_due():
            if self._clock.monotonic() - session.published_at >= PUBLISH_S:
                session.publish()
            return
        standing = session.go_on()
        self.is_drained = standing.leaves and standing.phase is not Phase.HELD and not session.owes_machines
        if self.is_drained:
            self._voice.tell("left, as the control file says; tuneloop resume takes it up again")
            self.close()

    def _is_told_to_leave(self) -> bool:
        return ControlFile(self._record.workspace.control_file).read().state.mode in (Mode.DRAIN, Mode.STOP)

    def _open(self) -> StudySession | None:
        if self._clock.monotonic() < self._next_try:
            return None
        self._next_try = self._clock.monotonic() + AGAIN_S
        if self._is_driven_elsewhere():
            return None
        self._held.enter_context(only_one(self.root))
        session = StudySession(self._opened, self._voice, self.notices)
        self._held.callback(session.close)
        self.session = session
        self.problem = None
        return session

    def _opened(self, report: Report, tell: Tell) -> Application:
        return self._opener(self.root, report, tell)

    def _is_driven_elsewhere(self) -> bool:
        """A cheap look before everything is read: another service's live lease. Our own of before a crash is none."""
        study_id = self._record.known_study()
        driver = self._record.database.drivers(self._clock.now).current(study_id) if study_id is not None else None
        if driver is None or driver.owner == self._owner:
            return False
        self._say(f"{driver.owner} drives it")
        return True

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._voice.tell(problem)

    def _write_problem(self, error: TuningError) -> None:
        """Where nothing could be opened, the reply to the operator is the reason."""
        if self.session is not None or not isinstance(error, InputError):
            return
        now = self._clock.now().isoformat(timespec="seconds")
        try:
            write_status(self._record.workspace.status_file, {"problem": str(error), "at": now})
        except OSError as failed:
            log.warning("status.not_written", why=failed.strerror)
