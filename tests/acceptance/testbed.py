"""A simulated pool as a process of its own, workspaces on it, and services that can be killed at any instant.

A service is forked from a process that has imported everything, so that a kill costs tenths of a second. The hosts
are another process: they outlive every service, as real ones would.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from agent.bootstrap import connect_hosts, read_pool
from agent.entrypoints.audit import gather, list_jobs
from agent.entrypoints.demo import start_pool
from agent.entrypoints.make_workspace import write_control
from agent.workspace import Workspace
from executor.clock import SystemClock
from executor.pool import Pool
from executor.remote_host import RemoteHost
from executor.simulated.pool import FAULTS, RUNS, write_pool_files
from experiments.history import Forbidden, History, Violation, check_history
from experiments.study import Study, fold
from state.database import open_database
from tests.acceptance.goal_text import baseline_text, goal_text

PRELOAD = ["tests.acceptance.service", "agent.graph", "agent.ledger.build", "optuna", "scipy.special"]


def warm_parent() -> ForkServerContext:
    """The parent of every service: one process that has imported the product."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


@dataclass
class PoolBed:
    """The hosts of one pool folder."""

    folder: Path
    process: subprocess.Popen[str] | None

    @property
    def description(self) -> Path:
        return self.folder / "pool.yaml"

    def order(self, *faults: Mapping[str, Any]) -> None:
        """What is to go wrong next, in place of what was ordered before."""
        (self.folder / FAULTS).write_text(json.dumps(list(faults)))

    def left_faults(self) -> list[str]:
        path = self.folder / FAULTS
        ordered = json.loads(path.read_text()) if path.exists() else []
        return [fault["fault"] for fault in ordered if int(fault.get("times", 1)) > 0]

    def starts(self) -> tuple[str, ...]:
        """The bench clients' own counter: one id per start."""
        path = self.folder / RUNS
        return tuple(json.loads(line)["run"] for line in path.read_text().splitlines()) if path.exists() else ()

    def read(self) -> Pool:
        return read_pool(Workspace(self.folder))

    @contextlib.contextmanager
    def hosts(self) -> Iterator[dict[str, RemoteHost]]:
        """Connections of the test itself."""
        hosts = connect_hosts(self.read(), SystemClock())
        try:
            yield hosts
        finally:
            for host in hosts.values():
                host.close()

    def workdir(self, host: str) -> Path:
        return self.folder / host / "work"

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=20)
            if self.process.stdout is not None:
                self.process.stdout.close()
        kill_jobs(self.folder)


def open_pool(folder: Path, changes: Mapping[str, float] | None = None) -> PoolBed:
    describe_pool(folder, changes)
    return PoolBed(folder=folder, process=start_pool(folder))


def describe_pool(folder: Path, changes: Mapping[str, float] | None = None) -> None:
    """The files of a pool with short time-outs, so that a stage that never ends costs seconds."""
    description = write_pool_files(folder)
    timeouts = {"ready": 8.0, "canary": 6.0, "warm_up": 20.0, "cache": 20.0, "measure": 20.0, "collect": 20.0}
    text = description.read_text().split("timeouts:")[0]
    lines = [f"  {name}: {seconds:.1f}\n" for name, seconds in {**timeouts, **(changes or {})}.items()]
    description.write_text(text + "timeouts:\n" + "".join(lines))


def kill_jobs(folder: Path) -> None:
    """End what a test left running: only processes that hold a file of a job below this folder open."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            files = [os.readlink(fd) for fd in (entry / "fd").iterdir()] if entry.name.isdigit() else []
            if any(name.startswith(f"{folder}/") and "/.tuneloop/jobs/" in name for name in files):
                os.kill(int(entry.name), signal.SIGKILL)


def make_study(root: Path, pool: PoolBed, goal: str | None = None) -> Workspace:
    root.mkdir(parents=True)
    (root / "goal.yaml").write_text(goal or goal_text())
    (root / "baseline.yaml").write_text(baseline_text())
    (root / "pool.yaml").write_bytes(pool.description.read_bytes())
    write_control(root, by="test", reason="a test")
    return Workspace(root)


@dataclass
class Service:
    """One `tuneloop run` of a workspace, as a process."""

    workspace: Workspace
    process: BaseProcess
    began: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def wait(self, within_s: float = 60.0) -> int:
        """Its exit code; negative is the signal that ended it."""
        self.process.join(within_s)
        code = self.process.exitcode
        if code is None:
            self.kill()
            raise AssertionError(f"the service did not end in {within_s} s; {self.log()[-2000:]}")
        self.process.close()
        return code

    def kill(self) -> int:
        self.process.kill()
        self.process.join(20)
        code = self.process.exitcode
        self.process.close()
        assert code is not None
        return code

    def log(self) -> str:
        return (self.workspace.root / "service.log").read_text()


def start_service(workspace: Workspace, **variables: str) -> Service:
    from tests.acceptance.service import serve

    process = warm_parent().Process(
        target=serve, args=(str(workspace.root), dict(variables), time.monotonic()), daemon=True
    )
    process.start()
    # Lanes are threads of one process: the next start in another lane would collect this child, and its exit code.
    multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
    return Service(workspace=workspace, process=process)


def run_to_end(workspace: Workspace, within_s: float = 60.0, **variables: str) -> int:
    return start_service(workspace, **variables).wait(within_s)


def read(workspace: Workspace) -> Study:
    with open_database(workspace.database, may_migrate=False) as database:
        return fold(database.ledger().entries(database.views().studies()[0].id))


def history_of(
    workspace: Workspace,
    pool: PoolBed,
    *,
    strangers: Mapping[str, bool] | None = None,
    forbidden: Sequence[Forbidden] = (),
) -> History:
    with open_database(workspace.database, may_migrate=False) as database, pool.hosts() as hosts:
        study_id = database.views().studies()[0].id
        jobs = {name: list_jobs(host) for name, host in hosts.items()}
        history = gather(workspace, database, study_id, jobs, pool.starts())
        return History(**{**vars(history), "strangers": strangers, "forbidden": forbidden})


def violations(workspace: Workspace, pool: PoolBed, **known: Any) -> tuple[Violation, ...]:
    """The history checker over everything that is left behind; it ends every fault test."""
    return check_history(history_of(workspace, pool, **known))
