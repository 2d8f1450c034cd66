"""Pause and stop: what runs is left to end or is cancelled, and nothing is sent after the word was read."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.entrypoints.operate import set_mode
from agent.workspace import Workspace
from experiments.history import Forbidden
from experiments.trial import Stage
from tests.acceptance.desk import Desk, open_desk, open_hosts, outcome
from tests.acceptance.goal_text import goal_text
from tests.acceptance.service import ANSWERS
from tests.acceptance.testbed import make_study, open_pool, start_service, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PAUSES = 25


def pause(workspace: Workspace) -> None:
    set_mode(workspace.root, "pause", reason="a test", by="ops")


def resume(workspace: Workspace) -> None:
    set_mode(workspace.root, "run", reason="", by="ops")


@pytest.fixture
def slow_desk(tmp_path: Path) -> Iterator[Desk]:
    """Loads take two seconds, so that a quick machine is still in the middle of one when something is said."""
    hosts = open_hosts(tmp_path / "pool")
    described = hosts.description.read_text()
    assert "TUNELOOP_SIM_PACE: '0'" in described
    hosts.description.write_text(described.replace("TUNELOOP_SIM_PACE: '0'", "TUNELOOP_SIM_PACE: '2'"))
    made = open_desk(tmp_path / "study", hosts, goal_text(trials=1000))
    yield made
    made.close()
    hosts.close()


@pytest.mark.parametrize(
    ("stage", "stops_at"),
    [
        (Stage.CHECK, Stage.PREPARE),
        (Stage.PREPARE, Stage.LAUNCH),
        (Stage.READY, Stage.CANARY),
        (Stage.CANARY, Stage.WARM_UP),
        (Stage.WARM_UP, Stage.CACHE),
        (Stage.CACHE, Stage.MEASURE),
    ],
)
def test_a_pause_in_the_middle_of_a_trial_keeps_it_open(desk: Desk, stage: Stage, stops_at: Stage) -> None:
    """The stage that runs is finished, the next that would send is not begun, and the trial goes on later."""
    trial_id = desk.started()
    with desk.at(stage, lambda: pause(desk.workspace)):
        why = desk.go_on()
    begun = {row.stage for row in desk.application.database.journal(desk.application.clock.now).rows(trial_id)}
    resume(desk.workspace)
    desk.reopen()
    desk.go_on()
    trial = desk.study.trials[trial_id]

    assert why is not None
    assert stage in begun
    assert stops_at not in begun
    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1
    assert desk.violations() == ()


def test_a_pause_between_two_servers_starts_no_second_one(desk: Desk) -> None:
    """Prefill is being started as the word comes: decode is not; both run in the end, prefill the same."""
    trial_id = desk.started()
    with desk.at(Stage.LAUNCH, lambda: pause(desk.workspace), word="starting prefill"):
        desk.go_on()
    with desk.hosts.hosts() as hosts:
        started = {name: [j.job_id for j in host.jobs() if ".decode." in j.job_id] for name, host in hosts.items()}
    resume(desk.workspace)
    desk.go_on()

    assert started == {"p0": [], "d0": []}
    assert outcome(desk.study.trials[trial_id]) == ("valid", "", "", "finished")
    assert desk.violations() == ()


def test_a_pause_lets_a_running_load_end(slow_desk: Desk) -> None:
    """A load that was sent is measured and recorded; only what comes after it waits."""
    trial_id = slow_desk.started()
    with slow_desk.at(Stage.MEASURE, lambda: pause(slow_desk.workspace), word=" s"):
        slow_desk.go_on()

    assert outcome(slow_desk.study.trials[trial_id]) == ("valid", "", "", "finished")
    assert slow_desk.application.nodes.start() is not None


def test_stop_cancels_the_running_load_and_says_what_is_certain(desk: Desk) -> None:
    """The client is ended; whether its load reached the servers whole is not known, so it is no number."""
    desk.hosts.order({"fault": "client_hangs_after_finish", "program": "bench", "match": "/measure"})

    def stop() -> None:
        set_mode(desk.workspace.root, "stop", reason="fire", by="ops")

    with desk.at(Stage.MEASURE, stop, word=" s"):
        trial = desk.run()

    assert outcome(trial) == ("orchestration_fault", "cancelled", "measure", "unknown")
    with desk.hosts.hosts() as hosts:
        assert not hosts["p0"].poll(f"{trial.started.trial_id}.measure").is_live
    assert desk.violations() == ()


def test_pauses_at_random_instants_let_nothing_through(tmp_path: Path) -> None:
    """After the service has read the pause, no job of any kind starts on any host until it is resumed."""
    pool = open_pool(tmp_path / "pool")
    workspace = make_study(tmp_path / "study", pool, longer_than_the_test())
    chance = random.Random(5)
    service = start_service(workspace)
    forbidden: list[Forbidden] = []
    try:
        for _ in range(PAUSES):
            time.sleep(chance.uniform(0.4, 3.0))  # long enough for the word before it to be read
            asked = boot_clock()
            pause(workspace)
            since = first_refusal(workspace, asked)
            time.sleep(0.3)
            forbidden.append(Forbidden(since=since, until=boot_clock(), why="paused"))
            resume(workspace)
        service.kill()
        found = violations(workspace, pool, forbidden=forbidden)
    finally:
        pool.close()

    assert found == ()
    assert max(span.until - span.since for span in forbidden) > 0.2


def longer_than_the_test() -> str:
    """A goal with so many candidates that a quick machine does not run out of them."""
    goal = goal_text(trials=1000, repeats=20).replace("values: [128, 256, 512]", "range: [8, 512], step: 8")
    assert "step: 8" in goal
    return goal


def boot_clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def first_refusal(workspace: Workspace, asked: float, within_s: float = 30.0) -> float:
    """When the service first said no after the pause was written, on the boot clock."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        path = workspace.root / ANSWERS
        times = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        later = [at for at in times if at > asked]
        if later:
            return float(later[0])
        time.sleep(0.02)
    last = (workspace.root / "service.log").read_text().splitlines()[-3:]
    raise AssertionError(f"the service never asked after the pause; the last that it said: {last}")
