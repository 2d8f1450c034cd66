"""`tuneloop serve`: drive many studies until told to leave. SIGTERM begins nothing more; hosts go on with what runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

from agent.bootstrap import Application, Surroundings, open_application
from agent.entrypoints.console import Console
from agent.logs import configure_logs
from agent.nodes import Tell
from agent.records import url_from
from agent.service.scheduler import schedule
from agent.service.service import Service
from agent.service.service_file import Arrangement, read_arrangement
from agent.settings import Settings, read_settings
from executor.clock import SystemClock
from executor.trial_context import Progress, Report

LOOK_S = 0.2
PATIENCE_S = 20.0  # for ticks to unwind; after that the process ends under them, as after a crash


class NamedVoice:
    """One study's lines among those of others."""

    def __init__(self, console: Console, root: Path) -> None:
        self._console, self._name = console, root.name

    def tell(self, text: str) -> None:
        self._console.tell(f"{self._name}: {text}")

    def report(self, progress: Progress) -> None:
        self._console.report(progress)


def serve(paths: list[Path]) -> int:
    """0: told to leave, or all drained. 75: a study was stuck; start again."""
    clock = SystemClock()
    arrangement, settings = read_arrangement(paths), read_settings()
    configure_logs(arrangement.folder / "logs")
    console = Console(clock)
    service = open_service(arrangement, settings, console)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.leave())
    scheduler = schedule(service.jobs(), arrangement.zone, clock.now())
    scheduler.start()
    console.tell(f"service {arrangement.name} drives {len(arrangement.workspaces)} workspaces")
    while not service.leaving.wait(LOOK_S):
        if service.is_done:
            service.leave()
    console.tell("leaving; what runs on the hosts goes on")
    scheduler.shutdown(wait=False)
    deadline = clock.monotonic() + PATIENCE_S
    while not service.is_idle and clock.monotonic() < deadline:
        clock.sleep(LOOK_S)
    if not service.is_idle:
        _end_now(service.exit_code)
    service.close()
    return service.exit_code


def open_service(arrangement: Arrangement, settings: Settings, console: Console) -> Service:
    def opener(root: Path, report: Report, tell: Tell, around: Surroundings) -> Application:
        return open_application(root, settings, report=report, tell=tell, around=around)

    return Service(arrangement, opener, lambda root: NamedVoice(console, root), database_url=url_from(os.environ))


def _end_now(code: int) -> NoReturn:
    """A thread that hangs would keep the process; leaving like this is what every start is prepared for."""
    os._exit(code)
