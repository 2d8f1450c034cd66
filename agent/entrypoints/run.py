"""`tuneloop run`: go on with the study until it ends or has to wait. Starting is recovering."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from agent.bootstrap import Application, open_application
from agent.entrypoints.console import Console
from agent.entrypoints.status import write_status_file
from agent.logs import configure_logs
from agent.settings import Settings, read_settings
from executor.clock import SystemClock
from executor.service import tear_down
from executor.trial_context import LEASE_TTL_S
from experiments.control import Mode
from experiments.errors import TuningError
from experiments.study import Study

WAIT_S = 2.0  # between two looks at the control file


class AlreadyRunning(TuningError):
    """Another process drives this workspace. The lock is freed by the kernel when that process ends."""


def run_study(root: Path) -> int:
    """0: the study ended. 3: it waits for a person. 130: interrupted."""
    root = root.resolve()
    lock = FileLock(root / ".tuneloop.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise AlreadyRunning(f"{root}: another tuneloop runs this workspace") from error
    configure_logs(root / "logs")
    console = Console(SystemClock())
    try:
        return drive(root, read_settings(), console)
    except KeyboardInterrupt:
        console.tell(f"interrupted; what runs on the hosts goes on. Find it again with: tuneloop run {root}")
        return 130
    finally:
        lock.release()


def drive(root: Path, settings: Settings, console: Console) -> int:
    """Run the graph again and again: it returns when nothing can be done now."""
    from agent.graph import run_graph  # langgraph takes most of a second to import

    application = open_application(root, settings, report=console.report, tell=console.tell)
    try:
        _greet(application, console)
        while True:
            state = run_graph(application.nodes, application.workspace.checkpoints)
            study = application.store.read()
            write_status_file(application, state["waiting"])
            if state["ended"]:
                _release_machines(application, console)
                console.tell(f"the study ended: {state['ended']}")
                return 0
            if study.held_trial is not None:
                console.tell(held_advice(study))
                return 3
            console.tell(f"waiting: {state['waiting']}")
            if not _wait(application):
                _release_machines(application, console)
                return 3
    finally:
        application.close()


def _greet(application: Application, console: Console) -> None:
    study = application.store.read()
    where = "SIMULATED pool" if study.opened.simulated else "pool"
    planner = "rules + optimizer + LLM" if application.nodes.planner else "rules + optimizer (no LLM is configured)"
    console.tell(f"study {study.study_id} on {where} {study.opened.pool}: {study.opened.cards} cards, {planner}")
    if study.open_trial is not None:
        console.tell(f"going on with trial {study.open_trial.started.trial_id}")


def _wait(application: Application) -> bool:
    """Until the control file says something else. False: it says to leave."""
    before = application.authority.read()
    while True:
        if before.state.mode in (Mode.DRAIN, Mode.STOP):
            return False
        application.clock.sleep(WAIT_S)
        now = application.authority.read()
        if now.sha256 != before.sha256 or now.problem != before.problem:
            return True


def _release_machines(application: Application, console: Console) -> None:
    """End our servers, so that the machines are free. A study that goes on later starts them again."""
    survivors = tear_down(application.hosts, application.store.study_id, LEASE_TTL_S)
    if survivors:
        console.tell(f"NOT free: {', '.join(survivors)} would not end")
    else:
        console.tell("the machines are free: no server of ours runs")


def held_advice(study: Study) -> str:
    """What to check and what to say, when the end of a trial is unknown."""
    trial = study.held_trial
    if trial is None or trial.held is None:
        return ""
    name = trial.started.trial_id
    return (
        f"the end of trial {name} is unknown: {trial.held.detail}\n"
        "        nothing new is sent. Look, then say what you found, one of:\n"
        f"          tuneloop resolve {name} --finished  --reason '…'   (its data is whole on the host)\n"
        f"          tuneloop resolve {name} --never-ran --reason '…'   (nothing was sent)\n"
        f"          tuneloop resolve {name} --dead      --reason '…'   (it was sent and will never finish)"
    )
