"""The study graph on a real store: it only routes; facts are in the ledger, and a pause stops it where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.authority import Authority
from agent.graph import run_graph
from agent.nodes import Nodes
from agent.planner.optimizer import OptimizerProposer
from agent.planner.rules import RuleProposer
from agent.study_store import StudyStore
from executor.clock import ManualClock
from executor.pool import Pool, parse_pool
from executor.runner import Held, TrialEnd, Waiting
from executor.trial_plan import TrialPlan
from experiments.control import ControlState, Mode
from experiments.knob import Cost
from experiments.ledger import Finding, StopReason
from experiments.ports import Gate
from experiments.serving_config import Kind, Role
from experiments.serving_config import Path as SettingPath
from experiments.trial import Reason, Sent, Stage
from state.control import ControlFile
from state.memory import MemoryDatabase
from tests.factories import EVENING, Performance, a_fault, a_goal, a_measurement, a_record, an_opening

POOL = """\
name: p8-d8
simulated: true
cards: {prefill: 8, decode: 8}
hosts:
  p0: {role: prefill, ssh: p0}
  d0: {role: decode, ssh: d0, port: 30001}
router: {on: p0, port: 30100}
client: {on: p0, model_path: /models/m}
workdir: /data/tuneloop
"""
CAP = SettingPath(Role.PREFILL, Kind.FLAG, "prefill-max-requests")


@dataclass
class TableRunner:
    """Runs trials by a table instead of on machines: a batch cap of two or more is a third faster."""

    clock: ManualClock
    ends: list[TrialEnd] = field(default_factory=list)  # given before the table's own
    plans: list[TrialPlan] = field(default_factory=list)

    def run(self, plan: TrialPlan, gate: Gate, finding: Finding | None = None) -> TrialEnd:
        self.plans.append(plan)
        blocked = gate(60.0)
        if blocked is not None:
            return Waiting(why=blocked.reason)
        self.clock.advance(300.0)
        if self.ends:
            return self.ends.pop(0)
        fast = (plan.config.get(CAP) or 1) != 1
        wobble = 1 + 0.004 * (len(self.plans) % 3 - 1)
        performance = Performance(per_card=(236.8 if fast else 179.0) * wobble)
        measurement = a_measurement(performance, requests=plan.load.requests)
        return a_record(plan.trial_id, measurement=measurement, began=self.clock.now())


@dataclass
class Night:
    """Everything of a study but the machines."""

    nodes: Nodes
    runner: TableRunner
    control: ControlFile
    folder: Path

    def go_on(self) -> dict[str, Any]:
        return dict(run_graph(self.nodes, self.folder / "graph.db"))

    def direct(self, mode: Mode) -> None:
        self.control.update(lambda state: state.model_copy(update={"mode": mode, "reason": "test"}))


@pytest.fixture
def night(tmp_path: Path) -> Night:
    tmp_path.chmod(0o700)
    clock = ManualClock(EVENING)
    control = ControlFile(tmp_path / "state.yaml")
    control.write(
        ControlState(
            mode=Mode.RUN, authorized_until=EVENING + timedelta(days=2), allow=(Cost.HOT, Cost.RESTART), by="test"
        )
    )
    database = MemoryDatabase()
    goal = a_goal(budget=a_goal().budget.model_copy(update={"patience": 3}))
    opening = an_opening(goal)
    database.ledger().append(opening.study_id, [opening], after=0)
    runner = TableRunner(clock)
    nodes = Nodes(
        store=StudyStore(database.ledger(), opening.study_id),
        pool=pool(),
        runner=runner,
        authority=Authority(control=control, clock=clock),
        clock=clock,
        suggesters=(RuleProposer(), OptimizerProposer()),
        planner=None,
        objections=lambda study: lambda draft: (),
        tell=lambda text: None,
        closed=lambda study: None,
    )
    return Night(nodes, runner, control, tmp_path)


def pool() -> Pool:
    return parse_pool(POOL, "pool.yaml")


def test_a_night_keeps_the_change_that_helps_and_ends_by_itself(night: Night) -> None:
    """From baseline to kept configuration: found from evidence, confirmed at the formal load, then no more gains."""
    state = night.go_on()

    study = night.nodes.store.read()
    assert [study.cards[k.card_digest].draft.change.to_value for k in study.kept] == [2]
    assert state["ended"].startswith("no_candidate")
    assert study.stopped is not None
    assert study.stopped.reason is StopReason.NO_CANDIDATE


def test_nothing_starts_while_paused(night: Night) -> None:
    """A pause that is read stops the study before a trial is minted."""
    night.direct(Mode.PAUSE)

    state = night.go_on()

    assert state["waiting"] == "mode is pause, said by test (test)"
    assert night.nodes.store.read().trials == {}


def test_a_pause_in_the_middle_leaves_the_trial_open_and_it_goes_on_under_its_id(night: Night) -> None:
    """Waiting is no end: the same trial is run again after the pause, and no other is started."""
    night.nodes.start()
    night.direct(Mode.PAUSE)
    night.go_on()
    started = list(night.nodes.store.read().trials)

    night.direct(Mode.RUN)
    night.go_on()

    assert [plan.trial_id for plan in night.runner.plans[:2]] == [started[0], started[0]]


def test_an_unknown_end_stops_everything_until_a_person_settles_it(night: Night) -> None:
    """Held: no step starts anything, however often the study is entered."""
    night.runner.ends = [Held(stage=Stage.MEASURE, detail="look on the host")]
    night.go_on()

    before = len(night.runner.plans)
    state = night.go_on()

    assert state["waiting"] == "the end of a trial is unknown"
    assert len(night.runner.plans) == before


def test_a_fault_is_repeated_once_and_never_becomes_a_number(night: Night) -> None:
    """A baseline that faults is run again under a new id; the faulted one carries no measurement."""
    fault = a_fault(Stage.LAUNCH, Reason.TRANSPORT, Sent.NOT_SENT)
    night.runner.ends = [a_record("night-1-t001", failure=fault)]

    night.go_on()

    trials = night.nodes.store.read().trials
    assert trials["night-1-t001"].sample is None
    assert trials["night-1-t002"].started.load == trials["night-1-t001"].started.load


def test_a_lease_that_is_too_short_for_a_trial_starts_none(night: Night) -> None:
    """Nothing starts that cannot end before the machines have to be given back."""
    night.control.update(lambda s: s.model_copy(update={"authorized_until": EVENING + timedelta(minutes=10)}))

    state = night.go_on()

    assert "authorization ends in" in state["waiting"]
    assert night.nodes.store.read().trials == {}
