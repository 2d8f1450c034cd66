"""How a study stands, for people: from the read models, the control file and what its driver last said.

Never folds the ledger, so that it answers as quickly after ten thousand experiments as after ten. What only the driving
process knows (why it waits, the next step, tokens) it says in `status.yaml`, and that has an age.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from agent.records import Record
from experiments.agenda import Close, Continue, Evaluate, Hold, Measure, Propose, Step, Stop, next_step
from experiments.control import ControlState, Mode
from experiments.errors import TuningError
from experiments.goal import Budget
from experiments.ledger import StudyOpened
from experiments.trial import OPTIONAL, Stage
from state.control import ControlFile, ControlReading, write_status
from state.drivers import Driver
from state.views import BudgetStart, CardCounts, CardRow, StudyRow, TrialRow

if TYPE_CHECKING:  # everything that runs a trial, which takes a second to import and status does without
    from agent.bootstrap import Application
    from executor.trial_context import Progress

FRESH = timedelta(minutes=2)  # the age up to which the driver's own words are believed


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the driving process knows and the database does not. `servers_up` None: nothing is known."""

    waiting: str = ""
    servers_up: bool | None = None
    progress: Progress | None = None


@dataclass(frozen=True, kw_only=True)
class StageLine:
    """One stage of the running trial. `expected_s`: the median of the latest runs; None: never seen."""

    stage: Stage
    took_s: float | None  # None: not ended
    expected_s: float | None
    is_running: bool


@dataclass(frozen=True, kw_only=True)
class Running:
    """The trial that is under way. `eta_s` None: no stage time is known yet."""

    trial: TrialRow
    stages: tuple[StageLine, ...]
    eta_s: float | None


@dataclass(frozen=True, kw_only=True)
class StatusReport:
    """Everything that `tuneloop status` shows."""

    study: StudyRow
    control: ControlReading
    budget: Budget
    cards: CardCounts
    open_card: CardRow | None
    running: Running | None
    last: TrialRow | None
    driver: Driver | None
    reopened: BudgetStart | None
    told: Mapping[str, object]  # of status.yaml; empty where it is missing or another study's
    told_at: datetime | None
    now: datetime

    @property
    def is_fresh(self) -> bool:
        """Words of a driver that has left are old as soon as the ledger has grown."""
        if self.driver is None and self.told.get("position") != self.study.position:
            return False
        return self.told_at is not None and self.now - self.told_at < FRESH

    @property
    def trials_left(self) -> int:
        before = self.reopened.trials if self.reopened is not None else 0
        return max(0, self.budget.trials - (self.study.trials - before))

    @property
    def hours_left(self) -> float:
        """A study that has ended uses no more of them."""
        until = self.now if self.study.stop_reason is None else self.study.last_at
        since = self.reopened.at if self.reopened is not None else self.study.opened_at
        return max(0.0, self.budget.hours - (until - since).total_seconds() / 3600)

    @property
    def may_take(self) -> tuple[bool, str]:
        """Whether somebody may take the machines now, and why, or why not."""
        if self.study.held_trial_id is not None:
            return False, f"the end of trial {self.study.held_trial_id} is unknown: a load may still run on them"
        if self.running is not None:
            return False, f"trial {self.running.trial.trial_id} is under way; tuneloop pause, then wait for its end"
        servers = self.told.get("servers")
        if self.study.stop_reason is not None and servers != "up":
            return True, "the study ended" + (" and its servers were ended" if servers == "ended" else "")
        idle = self._idle()
        if idle is None:
            return False, "the next trial may start at any moment; tuneloop pause first"
        if servers == "up":
            return False, f"no trial runs ({idle}), but our servers are up; tuneloop drain ends them"
        return True, f"no trial runs and none will start: {idle}"

    @property
    def waiting(self) -> str:
        """Why nothing runs, where nothing does."""
        if self.running is not None:
            return ""
        told = self.told.get("waiting")
        return str(told) if self.is_fresh and told else self._idle() or ""

    def _idle(self) -> str | None:
        """Why no trial can start now, as far as the files say. None: one may."""
        if self.driver is None and not self.is_fresh:
            return "no service drives this study; tuneloop run or tuneloop serve"
        return idle_reason(self.control, self.now)


def idle_reason(control: ControlReading, now: datetime) -> str | None:
    state: ControlState = control.state
    if control.problem is not None:
        return control.problem
    if state.mode is not Mode.RUN:
        return f"mode is {state.mode}, said by {state.by}"
    if state.authorized_until is None:
        return "authorized_until is not set"
    if state.authorized_until <= now:
        return f"the authorization ended at {state.authorized_until.isoformat(timespec='seconds')}"
    return None


def read_report(record: Record, now: datetime, told: Mapping[str, object] | None = None) -> StatusReport:
    """One look at everything. Raises NoStudy where there is nothing to look at."""
    study_id, views = record.study_id(), record.database.views()
    study = views.study(study_id)
    opened = record.database.ledger().entry(study_id, 1)
    if study is None or not isinstance(opened, StudyOpened):
        raise TuningError(f"study {study_id}: its first entry is missing")
    if told is None:
        told = read_told(record.workspace.status_file, study_id)
    latest = views.page(study_id, limit=2).rows
    return StatusReport(
        study=study,
        control=ControlFile(record.workspace.control_file).read(),
        budget=opened.goal.budget,
        cards=views.count_cards(study_id),
        open_card=views.open_card(study_id),
        running=_running(record, study_id, now),
        last=next((row for row in latest if row.finished_at is not None), None),
        driver=record.database.drivers(lambda: now).current(study_id),
        reopened=views.reopened(study_id),
        told=told,
        told_at=_instant(told.get("at")),
        now=now,
    )


def _running(record: Record, study_id: str, now: datetime) -> Running | None:
    trial = record.database.views().unfinished(study_id)
    if trial is None:
        return None
    seen = {stage: median(times) for stage, times in record.database.views().stage_seconds(study_id).items() if times}
    took: dict[Stage, float] = {}
    begun: dict[Stage, datetime] = {}
    for row in record.database.journal(lambda: now).rows(trial.trial_id):
        begun[row.stage] = row.began
        if row.ended is not None and row.outcome == "done":
            took[row.stage] = (row.ended - row.began).total_seconds()
            begun.pop(row.stage)
    stages = tuple(
        StageLine(stage=stage, took_s=took.get(stage), expected_s=seen.get(stage), is_running=stage in begun)
        for stage in Stage
        if stage in took or stage in begun or stage not in OPTIONAL | {Stage.EVALUATE}
    )
    return Running(trial=trial, stages=stages, eta_s=_eta(stages, begun, now))


def _eta(stages: tuple[StageLine, ...], begun: Mapping[Stage, datetime], now: datetime) -> float | None:
    """What is left of the running stage and of those after it. None while one of them was never seen."""
    left = 0.0
    for line in stages:
        if line.took_s is not None:
            continue
        if line.expected_s is None:
            return None
        elapsed = (now - begun[line.stage]).total_seconds() if line.is_running else 0.0
        left += max(0.0, line.expected_s - elapsed)
    return left


def publish(app: Application, told: Told) -> None:
    """Write `status.yaml`: the short reply to the operator's file, and what only this process knows."""
    study, now = app.store.read(), app.clock.now()
    words: dict[str, object] = {
        "study": study.study_id,
        "next": describe_step(next_step(study, now)),
        "waiting": told.waiting,
        "servers": {True: "up", False: "ended", None: "unknown"}[told.servers_up],
        "tokens_used": study.tokens_used(),
        "llm_cost": study.llm_cost(),
        "position": study.position,
        "simulated": study.opened.simulated,
        "at": now.isoformat(timespec="seconds"),
    }
    report = read_report(app.record, now, words)
    may_take, why = report.may_take
    running = report.running
    first = {
        "mode": str(report.control.state.mode),
        "problem": report.control.problem or "",
        "running": "" if running is None else _one_line(running, told.progress),
        "eta_s": None if running is None or running.eta_s is None else round(running.eta_s),
        "safe_to_take": may_take,
        "machines": why,
    }
    write_status(app.workspace.status_file, {**first, **words})


def _one_line(running: Running, progress: Progress | None) -> str:
    stage = next((line.stage for line in running.stages if line.is_running), None)
    told = progress if progress is not None and progress.trial_id == running.trial.trial_id else None
    parts = [running.trial.trial_id, str(stage) if stage is not None else "between two stages"]
    return ": ".join([*parts, told.text] if told is not None and told.text else parts)


def read_told(file: Path, study_id: str) -> Mapping[str, object]:
    """What the driver wrote, line by line; anything else is as if nothing had been written."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        found = {key: json.loads(value) for key, _, value in (line.partition(": ") for line in lines)}
    except (OSError, ValueError):
        return {}
    return found if found.get("study") == study_id else {}


def _instant(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def describe_step(step: Step) -> str:
    """One line about what comes next."""
    match step:
        case Measure():
            return f"{step.tier}: {step.why}"
        case Continue():
            return f"trial {step.trial_id} is under way"
        case Propose():
            return "ask the proposers for a card"
        case Close():
            return f"close the {step.tier} of card {step.card.name}"
        case Evaluate():
            return f"evaluate the outputs of card {step.card.name}: {' '.join(step.quality.command)}"
        case Hold():
            return f"HELD: the end of trial {step.trial_id} is unknown: {step.detail}"
        case Stop():
            return f"ended ({step.reason}: {step.detail})"


def held_advice(trial_id: str, detail: str) -> str:
    """What to check and what to say, when the end of a trial is unknown."""
    return (
        f"the end of trial {trial_id} is unknown: {detail}\n"
        "        nothing new is sent. Look, then say what you found, one of:\n"
        f"          tuneloop resolve {trial_id} --finished  --reason '…'   (its data is whole on the host)\n"
        f"          tuneloop resolve {trial_id} --never-ran --reason '…'   (nothing was sent)\n"
        f"          tuneloop resolve {trial_id} --dead      --reason '…'   (it was sent and will never finish)\n"
        "        What each unknown means: docs/operations.md"
    )
