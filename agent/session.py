"""One study, driven by this process: go on until it waits or ends, and tell people. The one loop of `run` and `serve`.

`run` is a session and a wait; `serve` is many sessions and a scheduler. All of it happens in one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import structlog
from filelock import FileLock, Timeout

from agent.bootstrap import Application
from agent.nodes import Tell
from agent.notices import Notices
from agent.status_report import Told, held_advice, publish
from agent.workspace import Workspace
from executor.service import tear_down
from executor.trial_context import LEASE_TTL_S, Progress, Report
from experiments.agenda import Evaluate, Measure, may_ask_model, next_step
from experiments.control import Mode
from experiments.errors import HostError, StoreError, TuningError
from experiments.study import Study

log = structlog.get_logger(__name__)

RECHECK_S = 30.0  # between two tries at what was refused, where nothing that we watch has changed
PUBLISH_S = 5.0  # between two status files while a trial runs


class Phase(StrEnum):
    """How a study stands when nothing more can be done now."""

    WAITING = "waiting"
    HELD = "held"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class Standing:
    phase: Phase
    why: str
    leaves: bool = False  # the operator said drain or stop


class AlreadyRunning(TuningError):
    """Another process of this machine drives this workspace. The kernel frees the lock when that process ends."""


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """One process of this machine per workspace. May be left in another thread than it was entered in."""
    lock = FileLock(Workspace(root).lock, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise AlreadyRunning(f"{root}: another tuneloop runs this workspace") from error
    try:
        yield
    finally:
        lock.release()


class Voice(Protocol):
    """Where a running study is heard."""

    def tell(self, text: str) -> None: ...

    def report(self, progress: Progress) -> None: ...


class StudySession:
    """Opened when made. Closing it leaves what runs on the hosts to them."""

    def __init__(self, opened: Callable[[Report, Tell], Application], voice: Voice, notices: Notices) -> None:
        self._voice, self._notices = voice, notices
        self._told = Told()
        self._standing: Standing | None = None
        self._seen: tuple[str | None, str | None, int] | None = None
        self._went_on_at = self.published_at = 0.0
        self._is_without_model = False
        self.owes_machines = False  # the machines are to be given back, and could not be yet
        self.app = opened(self._report, voice.tell)
        self.news_at = self.app.clock.monotonic()
        self._notices.begin(self.app)

    @property
    def study(self) -> Study:
        return self.app.store.read()

    @property
    def standing(self) -> Standing | None:
        return self._standing

    def go_on(self) -> Standing:
        """Do everything that can be done now. Returns when the study waits or has ended."""
        from agent.graph import run_graph  # langgraph takes most of a second to import

        before = self._control()
        state = run_graph(self.app.nodes, self.app.workspace.checkpoints)
        standing = self._stand(state["ended"], state["waiting"])
        self._seen = (*before, self.study.position)
        if self._standing != standing:
            self._announce(standing)
        self._standing = standing
        self._settle(standing)
        self._went_on_at = self.app.clock.monotonic()
        self.publish()
        return standing

    def is_due(self) -> bool:
        """Whether going on again could do something: the operator spoke, the ledger grew, or it is time to try."""
        position = self.app.database.ledger().position(self.app.store.study_id)
        if self._standing is None or (*self._control(), position) != self._seen:
            return True
        waited = self.app.clock.monotonic() - self._went_on_at
        may_change = self._standing.phase is not Phase.ENDED or self.owes_machines  # a held load's host may answer
        return may_change and waited >= RECHECK_S

    def publish(self) -> None:
        """Write status.yaml, and hand over what people asked to be told of. A full disk is no reason to fail."""
        self.news_at = self.published_at = self.app.clock.monotonic()
        self._say_who_proposes()
        try:
            publish(self.app, self._told)
            self._notices.collect(self.app)
        except OSError as error:
            log.warning("status.not_written", why=error.strerror)

    def _say_who_proposes(self) -> None:
        """Once: that the budget holds no further question to the language model."""
        if self.app.nodes.planner is None or self._is_without_model or may_ask_model(self.study):
            return
        self._is_without_model = True
        self._voice.tell("the budget for the language model is used up; rules and optimizer go on proposing")

    def close(self) -> None:
        self.app.close()

    def _stand(self, ended: str, waiting: str) -> Standing:
        study, mode = self.study, self.app.authority.read().state.mode
        leaves = mode in (Mode.DRAIN, Mode.STOP)
        if ended:
            return Standing(phase=Phase.ENDED, why=ended, leaves=leaves)
        held = study.held_trial
        if held is not None and held.held is not None:
            return Standing(phase=Phase.HELD, why=held_advice(held.started.trial_id, held.held.detail))
        return Standing(phase=Phase.WAITING, why=waiting, leaves=leaves)

    def _announce(self, standing: Standing) -> None:
        match standing.phase:
            case Phase.ENDED:
                self._voice.tell(f"the study ended: {standing.why}")
            case Phase.HELD:
                self._voice.tell(standing.why)
            case Phase.WAITING:
                self._voice.tell(f"waiting: {standing.why}")
                self._ask_approval()

    def _ask_approval(self) -> None:
        study = self.study
        step = next_step(study, self.app.clock.now())
        card = self.app.authority.wanted_approval(study, step) if isinstance(step, Measure | Evaluate) else None
        if card is not None:
            self._notices.needs_approval(self.app, card)

    def _settle(self, standing: Standing) -> None:
        """Give the machines back where the study ended or leaves, or where another one waits for them."""
        self._told = Told(waiting=standing.why, servers_up=self._told.servers_up)
        if standing.phase is Phase.HELD or not self.study.trials:
            return
        study, turn = self.study, self.app.turn
        passes_on = study.open_trial is None and turn.is_ours and turn.turns.is_wanted(turn.pool, study.study_id)
        if standing.phase is Phase.ENDED or standing.leaves or passes_on:
            self._free_machines()

    def _free_machines(self) -> None:
        """End our servers, so that the machines are free. A study that goes on later starts them again."""
        if self._told.servers_up is False:
            return
        try:
            survivors = tear_down(self.app.hosts, self.study.study_id, LEASE_TTL_S)
        except HostError as error:
            survivors = [f"what runs there ({error})"]
        self.owes_machines = bool(survivors)
        self._told = Told(waiting=self._told.waiting, servers_up=bool(survivors))
        if survivors:
            self._voice.tell(f"NOT free: {', '.join(survivors)} would not end")
            return
        self._voice.tell("the machines are free: no server of ours runs")
        self.app.turn.give_back()

    def _control(self) -> tuple[str | None, str | None]:
        """What the control file says, as a mark to compare. Reading it also writes the operator's words down."""
        reading = self.app.authority.read()
        return reading.sha256, reading.problem

    def _report(self, progress: Progress) -> None:
        self._voice.report(progress)
        self.news_at = self.app.clock.monotonic()
        self._told = Told(waiting="", servers_up=True, progress=progress)
        if self.news_at - self.published_at >= PUBLISH_S:
            self._publish_beside_a_stage()

    def _publish_beside_a_stage(self) -> None:
        """A database that is away for a moment must not end what a stage is doing."""
        try:
            self.publish()
        except StoreError as error:
            log.warning("status.not_written", why=str(error))
