"""`tuneloop run`: go on with one study until it ends or has to wait for a person. Starting is recovering."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from agent.bootstrap import Application, Surroundings, open_application
from agent.disk import disk_refusal
from agent.entrypoints.console import Console
from agent.logs import configure_logs
from agent.nodes import Tell
from agent.notices import Notices
from agent.records import url_from
from agent.session import Phase, StudySession, only_one
from agent.settings import Settings, read_settings
from executor.clock import SystemClock
from executor.trial_context import Report

WAIT_S = 2.0  # between two looks at the control file


def run_study(root: Path) -> int:
    """0: the study ended. 3: it waits for a person. 130: interrupted."""
    root = root.resolve()
    with only_one(root):
        configure_logs(root / "logs")
        console = Console(SystemClock())
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # both mean: leave, and lose nothing
        try:
            return drive(root, read_settings(), console)
        except KeyboardInterrupt:
            console.tell(f"interrupted; what runs on the hosts goes on. Find it again with: tuneloop run {root}")
            return 130


def drive(root: Path, settings: Settings, console: Console) -> int:
    around = Surroundings(database_url=url_from(os.environ), grounds=(lambda: disk_refusal(root),))

    def opened(report: Report, tell: Tell) -> Application:
        return open_application(root, settings, report=report, tell=tell, around=around)

    session = StudySession(opened, console, Notices())
    try:
        greet(session.app, console)
        while True:
            standing = session.go_on()
            if standing.phase is not Phase.WAITING or standing.leaves:
                return 0 if standing.phase is Phase.ENDED else 3
            while not session.is_due():
                session.app.clock.sleep(WAIT_S)
                session.publish()
    finally:
        session.close()


def greet(application: Application, console: Console) -> None:
    study = application.store.read()
    where = "SIMULATED pool" if study.opened.simulated else "pool"
    planner = "rules + optimizer + LLM" if application.nodes.planner else "rules + optimizer (no LLM is configured)"
    console.tell(f"study {study.study_id} on {where} {study.opened.pool}: {study.opened.cards} cards, {planner}")
    if study.open_trial is not None:
        console.tell(f"going on with trial {study.open_trial.started.trial_id}")
