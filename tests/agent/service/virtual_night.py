"""A night of twelve virtual hours: services of two machines, their scheduler, the pools, and what happens when.

The studies are wired by the product's own composition root. What is put in its place: the machines, the planners
(an LLM that can be away, and the rules), and the lock file, which does not reach from one machine to another.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent import bootstrap, session
from agent.bootstrap import Application, Surroundings, open_application
from agent.nodes import Tell
from agent.planner.packet import EvidencePacket, Proposal
from agent.planner.port import ProposerUnavailable
from agent.records import Record, open_record
from agent.service import study_job
from agent.service.service import Service
from agent.service.service_file import Arrangement, ServiceFile
from agent.settings import Settings
from agent.workspace import Workspace
from executor.trial_context import Progress, Report
from experiments.card import EvidenceRef, Source
from experiments.control import ControlState, Mode
from experiments.knob import Cost
from experiments.ledger import LedgerEntry, OperatorSpoke
from experiments.study import Study, fold
from state.control import ControlFile
from tests.acceptance.goal_text import baseline_text
from tests.agent.service.virtual_clock import MachineClock, VirtualClock
from tests.agent.service.virtual_pool import Machines, VirtualRunner
from tests.factories import EVENING, GOAL_YAML, a_draft

POOL = """\
name: {name}
simulated: true
cards: {{prefill: 8, decode: 8}}
hosts:
  p0: {{role: prefill, ssh: p0}}
  d0: {{role: decode, ssh: d0, port: 30001}}
router: {{on: p0, port: 30100}}
client: {{on: p0, model_path: /models/m}}
workdir: /data/tuneloop
timeouts: {{ready: 600, measure: 900}}
"""
KNOBS = f"""\
knobs:
  - {{role: prefill, flag: prefill-max-requests, values: [1, 2, 3, 4], cost: restart}}
  - {{role: decode, flag: num-reserved-decode-tokens, values: {list(range(128, 513, 4))}, cost: restart, default: 512}}
  - {{role: client, param: concurrency, values: {list(range(32, 161))}, cost: hot}}
"""
HOURS = 3600.0


@dataclass
class Planner:
    """Proposes the next value of one knob that nobody tried, unless it is away."""

    source: Source
    knob: str
    is_away: bool = False
    tokens: int = 0  # that each answer takes
    cost: float | None = None

    def propose(self, packet: EvidencePacket) -> Proposal:
        if self.is_away:
            raise ProposerUnavailable("the LLM endpoint is away: status 503", 7)
        knob = next((k for k in packet.knobs if k.name == self.knob), None)
        if knob is None:
            return Proposal(drafts=(), note="its knob is not in the goal")
        tried = {outcome.to_value for outcome in packet.outcomes if outcome.path == knob.path}
        untried = [v for v in knob.values if v != knob.current and v not in tried]
        if not untried:
            return Proposal(drafts=(), note="every value was tried")
        figure = next((name, value) for name, value in packet.figures.items() if value is not None)
        evidence = (EvidenceRef(id=figure[0], value=figure[1]),)
        draft = a_draft(knob.path, knob.current, untried[0], source=self.source, evidence=evidence)
        return Proposal(drafts=(draft,), tokens=self.tokens, cost=self.cost)


class Silence:
    """What was told, for a test that fails."""

    def __init__(self, lines: list[str], name: str) -> None:
        self._lines, self._name = lines, name

    def tell(self, text: str) -> None:
        self._lines.append(f"{self._name}: {text}")

    def report(self, progress: Progress) -> None:
        """The pool says enough."""


@dataclass
class VirtualNight:
    """Everything of one night."""

    folder: Path
    database_url: str
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(EVENING))
    machines: dict[str, Machines] = field(default_factory=dict)
    llm: Planner = field(default_factory=lambda: Planner(Source.LLM, "concurrency"))
    services: dict[str, Service] = field(default_factory=dict)
    clocks: dict[str, MachineClock] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    _events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def wire(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(bootstrap, "Runner", functools.partial(VirtualRunner, self.machines))
        patch.setattr(bootstrap, "connect_hosts", lambda pool, clock: {})
        grid = Planner(Source.OPTIMIZER, "num-reserved-decode-tokens")
        patch.setattr(bootstrap, "OptimizerProposer", lambda: grid, raising=False)
        patch.setattr(bootstrap, "optimizer_of", lambda name: grid, raising=False)
        patch.setattr(bootstrap, "build_planner", lambda settings, goal, pool: self.llm)
        patch.setattr(bootstrap, "refresh", lambda *_: None)
        patch.setattr(session, "PUBLISH_S", 300.0)  # of virtual time
        patch.setattr(study_job, "only_one", lambda root: nullcontext())

    def add_study(self, name: str, until: timedelta, changes: Mapping[str, str] | None = None) -> Workspace:
        """A workspace with a pool of its own. `changes`: texts of the goal, and what stands in their place."""
        root = self.folder / name
        root.mkdir(mode=0o700)
        goal = GOAL_YAML.split("knobs:")[0] + KNOBS
        usual = {"flash-16k-zero-cache": name, "hours: 10": "hours: 24", "trials: 40": "trials: 400"}
        for old, new in {**usual, **(changes or {})}.items():
            assert old in goal, f"{old!r} is not in the goal"
            goal = goal.replace(old, new)
        (root / "goal.yaml").write_text(goal)
        (root / "pool.yaml").write_text(POOL.format(name=name))
        (root / "baseline.yaml").write_text(baseline_text())
        self.machines[name] = Machines(name, self.clock)
        word = ControlState(
            mode=Mode.RUN, authorized_until=EVENING + until, allow=(Cost.HOT, Cost.RESTART), by="evening"
        )
        ControlFile(root / "state.yaml").write(word)
        return Workspace(root)

    def add_service(self, name: str, **settings: Any) -> Service:
        roots = tuple(self.folder / machine for machine in self.machines)
        paths = tuple(map(str, roots))
        usual = {"tick_s": 60, "disk_free_gib": 0, "restart_when_stuck": False}
        file = ServiceFile(name=name, workspaces=paths, **{**usual, **settings})
        self.clocks[name] = MachineClock(self.clock)
        self.services[name] = Service(
            Arrangement(file=file, workspaces=roots, folder=self.folder),
            self._open,
            lambda root: Silence(self.lines, f"{name} {root.name}"),
            database_url=self.database_url,
            clock=self.clocks[name],
        )
        return self.services[name]

    @staticmethod
    def _open(root: Path, report: Report, tell: Tell, around: Surroundings) -> Application:
        return open_application(root, Settings(), report=report, tell=tell, around=around)

    def at(self, hours: float, event: Callable[[], None]) -> None:
        self._events.append((hours * HOURS, event))

    def direct(self, study: str, **changes: object) -> None:
        file = ControlFile(self.folder / study / "state.yaml")
        file.update(lambda state: state.model_copy(update=changes))

    def freeze(self, service: str) -> None:
        self.clocks[service].is_frozen = True

    def thaw(self, service: str) -> None:
        self.clocks[service].is_frozen = False

    def run(self, hours: float) -> None:
        """Every job of every service in a thread of its own, until the hours are over."""
        self.at(hours, self.clock.end)
        work: list[Callable[[], None]] = [self._play]
        for name, service in self.services.items():
            work += [functools.partial(self._repeat, name, job.every_s, job.work) for job in service.jobs()]
        threads = [threading.Thread(target=self._take_part, args=(body,), daemon=True) for body in work]
        for _ in threads:
            self.clock.enter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        for service in self.services.values():
            service.close()

    def _take_part(self, body: Callable[[], None]) -> None:
        with self.clock.taking_part():
            try:
                body()
            except Exception as error:
                self.errors.append(error)
                self.clock.end()

    def _repeat(self, service: str, every_s: float, work: Callable[[], None]) -> None:
        while True:
            work()
            self.clocks[service].sleep(every_s)

    def _play(self) -> None:
        for at_s, event in sorted(self._events, key=lambda item: item[0]):
            self.clock.sleep(at_s - self.clock.monotonic())
            event()

    def record(self, study: str) -> Record:
        return open_record(Workspace(self.folder / study), self.database_url, may_migrate=False)

    def entries(self, study: str) -> list[LedgerEntry]:
        with self.record(study) as record:
            return list(record.database.ledger().entries(record.study_id()))

    def study(self, study: str) -> Study:
        return fold(self.entries(study))

    def append(self, study: str, entry: LedgerEntry) -> None:
        """What an operator's command writes, at the virtual hour."""
        with self.record(study) as record:
            ledger, study_id = record.database.ledger(), record.study_id()
            ledger.append(study_id, [entry], after=ledger.position(study_id))

    def words(self, study: str) -> list[OperatorSpoke]:
        return [entry for entry in self.entries(study) if isinstance(entry, OperatorSpoke)]


def edits(words: list[OperatorSpoke]) -> list[tuple[str, str, str]]:
    return [(word.mode, word.by, word.reason) for word in words]


Spans = Mapping[str, list[tuple[float, float, str]]]
