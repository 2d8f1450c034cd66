"""The jobs of one service, whoever calls them: the scheduler by the clock, a test by its own.

Every job may be called at any time, may fail, and may be cut off by the end of the process.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from agent.bootstrap import Application, Surroundings
from agent.disk import disk_refusal
from agent.drive import RENEW_S
from agent.nodes import Tell
from agent.notices import Notices
from agent.notify import Channel, Command, Notifier, Webhook
from agent.pool_turns import PoolTurns
from agent.records import Record, open_record, read_url
from agent.service.leaving import Leaving, LeavingClock
from agent.service.retention import remove_old_artifacts
from agent.service.service_file import Arrangement
from agent.service.study_job import StudyJob
from agent.service.windows import NightWindows
from agent.session import Phase, Voice
from agent.workspace import Workspace
from executor.clock import Clock
from executor.trial_context import Report

log = structlog.get_logger(__name__)

WATCH_S = 30.0
RETENTION_S = 3600.0
EXIT_STUCK = 75  # the temporary failure of sysexits: whoever watches this process starts it again

Opener = Callable[[Path, Report, Tell, Surroundings], Application]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Called every so often; never twice at once."""

    name: str
    every_s: float
    work: Callable[[], None]


class Service:
    """Opens its databases when made, and its studies one by one as they are ticked."""

    def __init__(
        self,
        arrangement: Arrangement,
        opener: Opener,
        voice_of: Callable[[Path], Voice],
        *,
        database_url: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._arrangement, self._opener = arrangement, opener
        self.leaving = threading.Event()
        self.exit_code = 0
        self._silent: dict[Path, float] = {}  # since when, of those that were said to be stuck
        self._clock: Clock = clock or LeavingClock(self.leaving)
        url = _database_url(arrangement, database_url)
        self._records = _open_records(arrangement.workspaces, url)
        databases = {id(record.database): record.database for record in self._records.values()}
        self._turns = PoolTurns(list(databases.values()))
        self._windows = NightWindows(arrangement.file.night_windows, arrangement.zone)
        self._url = url
        channels = _channels(arrangement)
        self._notifier = Notifier(channels) if channels else None
        self.studies = tuple(self._study_job(root, record, voice_of(root)) for root, record in self._records.items())

    def jobs(self) -> tuple[Job, ...]:
        """Everything that a scheduler has to call."""
        file = self._arrangement.file
        ticks = [Job(name=f"tick {job.root}", every_s=file.tick_s, work=job.tick) for job in self.studies]
        return (
            *ticks,
            Job(name="rights", every_s=RENEW_S, work=self.renew_rights),
            Job(name="watchdog", every_s=WATCH_S, work=self.watch),
            Job(name="retention", every_s=RETENTION_S, work=self.remove_old),
        )

    def renew_rights(self) -> None:
        for job in self.studies:
            job.renew()

    def watch(self) -> None:
        """A tick without a sign of life for too long: say it, keep the stacks, and let a new process recover."""
        limit = self._arrangement.file.stuck_minutes * 60
        now = self._clock.monotonic()
        for job in self.studies:
            news_at, session = job.news_at, job.session
            if news_at is None or now - news_at < limit:
                continue
            if self._silent.get(job.root) != news_at:  # said once for each silence
                self._silent[job.root] = news_at
                log.error("study.stuck", study=job.root.name, silent_s=round(now - news_at))
                faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
                if session is not None:
                    job.notices.stuck(session.app, f"no sign of life for {(now - news_at) / 60:.0f} minutes")
            if self._arrangement.file.restart_when_stuck:
                self.leave(EXIT_STUCK)

    def remove_old(self) -> None:
        days = self._arrangement.file.keep_artifacts_days
        for job in self.studies if days is not None else ():
            with job.beside() as session:
                if session is not None and days is not None:
                    remove_old_artifacts(session.app, timedelta(days=days))

    def leave(self, code: int = 0) -> None:
        """Begin nothing more. Whoever is in a tick unwinds at the next question or pause."""
        self.exit_code = self.exit_code or code
        self.leaving.set()

    @property
    def is_done(self) -> bool:
        """All studies were drained, or ended beside one that was."""
        drained = [job.is_drained for job in self.studies]
        return any(drained) and all(
            is_drained or _has_ended(job) for job, is_drained in zip(self.studies, drained, strict=True)
        )

    @property
    def is_idle(self) -> bool:
        return all(job.busy_since is None for job in self.studies)

    def close(self) -> None:
        for job in self.studies:
            job.close()
        for record in {id(r.database): r for r in self._records.values()}.values():
            record.close()
        if self._notifier is not None:
            self._notifier.close()

    def _study_job(self, root: Path, record: Record, voice: Voice) -> StudyJob:
        around = Surroundings(
            clock=self._clock,
            owner=self._arrangement.name,
            database_url=self._url,
            turns=self._turns,
            grounds=(
                lambda: self._windows.refusal(self._clock.now()),
                lambda: disk_refusal(root, self._arrangement.file.disk_free_gib),
            ),
            keeps_rights=True,
            leave=self._leave_if_asked,
        )

        def opened(root: Path, report: Report, tell: Tell) -> Application:
            return self._opener(root, report, tell, around)

        notices = Notices(self._notifier, frozenset(self._arrangement.file.notify.on))
        return StudyJob(record, opened, self._arrangement.name, voice, notices, self._clock)

    def _leave_if_asked(self) -> None:
        if self.leaving.is_set():
            raise Leaving


def _has_ended(job: StudyJob) -> bool:
    standing = job.session.standing if job.session is not None else None
    return standing is not None and standing.phase is Phase.ENDED


def _open_records(workspaces: tuple[Path, ...], url: str | None) -> Mapping[Path, Record]:
    """One database each, or one for all where a shared one is named."""
    records: dict[Path, Record] = {}
    for root in workspaces:
        first = next(iter(records.values()), None)
        if url is not None and first is not None:
            records[root] = Record(workspace=Workspace(root), database=first.database, is_shared=True)
        else:
            records[root] = open_record(Workspace(root), url)
    return records


def _database_url(arrangement: Arrangement, from_environment: str | None) -> str | None:
    file = arrangement.file.database_url_file
    return read_url(arrangement.resolve(file)) if file is not None else from_environment


def _channels(arrangement: Arrangement) -> tuple[Channel, ...]:
    notify = arrangement.file.notify
    channels: list[Channel] = []
    if notify.command is not None:
        channels.append(Command(notify.command))
    if notify.webhook_file is not None:
        channels.append(Webhook(read_url(arrangement.resolve(notify.webhook_file))))
    return tuple(channels)
