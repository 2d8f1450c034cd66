"""A service in this process on one study, driven trial by trial: what a fault does to one trial, at one stage.

Everything is the product's: application, ledger, journal, runner. Only which trial comes next is the test's choice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.bootstrap import Application, open_application
from agent.settings import Settings
from agent.workspace import Workspace
from executor.agent_client import AgentClient
from executor.simulated.pool import FAULTS, RUNS, serve
from executor.ssh.embedded import EmbeddedSshServer
from executor.trial_context import Progress
from experiments.classification import classify_failure
from experiments.history import Violation, check_history
from experiments.ledger import TrialStarted
from experiments.serving_config import Path as SettingPath
from experiments.serving_config import ServingConfig, Value
from experiments.study import Study, TrialState
from experiments.trial import Route, Stage, Tier, TrialLoad
from tests.acceptance.testbed import PoolBed, describe_pool, history_of, kill_jobs, make_study

Watch = Callable[[Progress], None]


@dataclass
class Hosts(PoolBed):
    """The SSH servers of a pool in this process, so that a test can cut their connections."""

    servers: list[EmbeddedSshServer] = field(default_factory=list)

    def open(self) -> None:
        self.servers = serve(self.folder)

    def drop_connections(self) -> None:
        for server in self.servers:
            server.drop_connections()

    def shut(self) -> None:
        """No host can be reached. What runs on them goes on."""
        for server in self.servers:
            server.stop()

    def close(self) -> None:
        self.shut()
        kill_jobs(self.folder)


def open_hosts(folder: Path, timeouts: Mapping[str, float] | None = None) -> Hosts:
    describe_pool(folder, timeouts)
    hosts = Hosts(folder=folder, process=None)
    hosts.open()
    return hosts


@dataclass
class Desk:
    """One study. `watch` sees every word of progress before the product goes on."""

    workspace: Workspace
    hosts: Hosts
    application: Application
    watch: list[Watch] = field(default_factory=list)

    @property
    def study(self) -> Study:
        return self.application.store.read()

    def started(
        self, *, concurrency: int = 8, requests: int = 16, config: ServingConfig | None = None, **settings: Value
    ) -> str:
        """Mint the next trial. `settings`: changes to the starting configuration, as `prefill__name=value`."""
        study = self.study
        chosen = config or study.opened.starting
        for name, value in settings.items():
            role, _, flag = name.partition("__")
            chosen = chosen.with_value(SettingPath.parse(f"{role}.flag.{flag.replace('_', '-')}"), value)
        cache = study.goal.scenario.cache
        load = TrialLoad(
            requests=requests,
            concurrency=concurrency,
            rate=6.0,
            cache="zero" if cache.state == "zero" else f"warm>={cache.per_request_min}",
        )
        trial_id = f"{study.study_id}-t{len(study.trials) + 1:03d}"
        self.application.store.append(
            [
                TrialStarted(
                    at=self.application.clock.now(),
                    trial_id=trial_id,
                    tier=Tier.BASELINE,
                    card_digest=None,
                    config=chosen,
                    load=load,
                    why="a test",
                )
            ]
        )
        return trial_id

    def run(self, **trial: Any) -> TrialState:
        """One trial from its start to where it ends, waits or is held."""
        trial_id = self.started(**trial)
        self.go_on()
        return self.study.trials[trial_id]

    def go_on(self) -> str | None:
        return self.application.nodes.execute()

    def starts_of(self, trial: TrialState) -> int:
        return Counter(self.hosts.starts())[trial.started.trial_id]

    def violations(self, **known: Any) -> tuple[Violation, ...]:
        return check_history(history_of(self.workspace, self.hosts, **known))

    @contextmanager
    def at(self, stage: Stage, act: Callable[[], object], word: str = "") -> Iterator[None]:
        """Do something once, when a stage says something that contains `word`."""
        done = False
        said: list[str] = []

        def look(progress: Progress) -> None:
            nonlocal done
            said.append(f"{progress.stage}: {progress.text}")
            if not done and progress.stage is stage and word in progress.text:
                done = True
                act()

        self.watch.append(look)
        try:
            yield
        finally:
            self.watch.remove(look)
        assert done, f"nothing of {stage} was said with {word!r} in it, but: {said[-12:]}"

    def reopen(self) -> None:
        """Another process takes the study over: a new driver, new connections, nothing remembered."""
        self.application.close()
        self.application = _open(self.workspace, self.watch)

    def close(self) -> None:
        self.application.close()


def _open(workspace: Workspace, watch: list[Watch]) -> Application:
    def report(progress: Progress) -> None:
        for look in tuple(watch):
            look(progress)

    return open_application(workspace.root, Settings(), report=report, tell=lambda _: None)


def answer_within(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """A host that is away is given up after so long instead of twenty seconds."""
    call = AgentClient.call

    def hasty(self: AgentClient, request: Mapping[str, Any], timeout_s: float, payload: bytes = b"") -> dict[str, Any]:
        return call(self, request, min(timeout_s, seconds), payload)

    patch.setattr(AgentClient, "call", hasty)


def open_desk(root: Path, hosts: Hosts, goal: str | None = None) -> Desk:
    workspace = make_study(root, hosts, goal)
    watch: list[Watch] = []
    return Desk(workspace=workspace, hosts=hosts, application=_open(workspace, watch), watch=watch)


def outcome(trial: TrialState) -> tuple[str, str, str, str]:
    """(route, reason, stage, sent) of a trial without numbers; ("valid", "", "", sent) of one with numbers."""
    record = trial.record
    if record is None:
        return ("held" if trial.is_held else "open", "", "", "")
    if record.failure is None:
        return ("valid", "", "", str(record.sent))
    route = classify_failure(record).route
    return (str(Route(route)), str(record.failure.reason), str(record.failure.stage), str(record.sent))


__all__ = ["FAULTS", "RUNS", "Desk", "Hosts", "json", "open_desk", "open_hosts", "outcome"]
