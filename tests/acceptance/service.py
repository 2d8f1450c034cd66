"""The body of a forked service: the product's own `run`, its output in a file, and a stopwatch for resuming."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from agent.authority import Authority
from agent.bootstrap import open_application
from agent.entrypoints import run
from agent.entrypoints.console import Console
from agent.workspace import Workspace
from executor.runner import ORDER
from executor.trial_context import Progress
from experiments.trial import OPTIONAL, Stage
from state.database import open_database

RESUMED = "resumed.jsonl"
ANSWERS = "refusals.jsonl"  # when the service was told that nothing may be sent, on the boot clock
SEQUENCE = (*(stage for stage in ORDER if stage not in OPTIONAL), Stage.RELEASE)

__all__ = ["open_application", "serve"]


def serve(root: str, variables: dict[str, str], asked: float) -> None:
    """Be `tuneloop run ROOT`. `asked`: when it was asked for, on the monotonic clock of this machine."""
    os.environ.update(variables)
    log = (Path(root) / "service.log").open("a", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    sys.stdout = sys.stderr = log
    run.Console = _stopwatch(Workspace(Path(root)), asked)  # type: ignore[misc]
    run.WAIT_S = 0.1
    _write_down_refusals(Path(root) / ANSWERS)
    try:
        code = run.run_study(Path(root))
    except BaseException as error:
        log.write(f"{type(error).__name__}: {error}\n")
        raise
    sys.exit(code)


def _write_down_refusals(path: Path) -> None:
    """Every no of the authority leaves its time, so that what started after it can be found."""
    asked = Authority._refusal

    def _refusal(self: Authority, *question: Any, **options: Any) -> str | None:
        why = asked(self, *question, **options)
        if why is not None:
            with path.open("a") as file:
                file.write(json.dumps(time.clock_gettime(time.CLOCK_BOOTTIME)) + "\n")
        return why

    Authority._refusal = _refusal  # type: ignore[method-assign]


def _stopwatch(workspace: Workspace, asked: float) -> type[Console]:
    """A console that writes down when an interrupted trial is where it was: in its last stage, or beyond."""
    waited_for = _interrupted(workspace)

    class Stopwatch(Console):
        def report(self, progress: Progress) -> None:
            nonlocal waited_for
            if waited_for is not None and _is_there(progress, *waited_for):
                _write(workspace, time.monotonic() - asked)
                waited_for = None
            super().report(progress)

    return Stopwatch


def _is_there(progress: Progress, trial_id: str, stage: Stage) -> bool:
    return progress.trial_id == trial_id and SEQUENCE.index(progress.stage) >= SEQUENCE.index(stage)


def _interrupted(workspace: Workspace) -> tuple[str, Stage] | None:
    if not workspace.database.exists():
        return None
    with open_database(workspace.database) as database:
        found = database.views().studies()
        row = database.views().unfinished(found[0].id) if found else None
        rows = database.journal(lambda: None).rows(row.trial_id) if row is not None else ()  # type: ignore[arg-type,return-value]
    return (rows[-1].trial_id, rows[-1].stage) if rows else None


def _write(workspace: Workspace, seconds: float) -> None:
    with (workspace.root / RESUMED).open("a") as file:
        file.write(json.dumps(seconds) + "\n")
