"""A load whose end is unknown: nothing new on the pool, the operator is told what to check, and each word goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.entrypoints.operate import resolve_trial
from agent.entrypoints.status import describe_status
from executor.stages.client_job import launch_client
from experiments.agenda import Hold, next_step
from experiments.errors import InvalidTransition
from experiments.history import Invariant
from experiments.study import TrialState
from experiments.trial import Stage
from tests.acceptance.desk import Desk, answer_within, open_desk, open_hosts, outcome
from tests.acceptance.goal_text import goal_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HANG = {"fault": "client_hangs_after_finish", "program": "bench", "match": "/measure"}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what shuts its hosts: they are given up early. A busy machine may be silent for as long, so others wait."""
    answer_within(6.0, monkeypatch)


@pytest.fixture
def desk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    hosts = open_hosts(tmp_path / "pool", {"measure": 8.0} if "hasty" in request.fixturenames else None)
    made = open_desk(tmp_path / "study", hosts, goal_text(trials=1000))
    yield made
    made.close()
    hosts.close()


def measure_job(desk: Desk) -> Path:
    trial = desk.study.open_trial
    assert trial is not None
    workdir = desk.hosts.workdir(desk.application.pool.client.on)
    return workdir / ".tuneloop" / "jobs" / f"{trial.started.trial_id}.measure"


def measure_job_folder(desk: Desk) -> Path:
    """Where the client's host keeps its jobs."""
    return desk.hosts.workdir(desk.application.pool.client.on) / ".tuneloop"


def lose(desk: Desk, *, whole: bool) -> None:
    """Kill the client and its supervisor, so that nobody can record the end; the data is `whole` or not yet there."""
    job = measure_job(desk)
    until = time.monotonic() + 10.0
    while whole and b"Performance Result files located" not in (job / "out.log").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.05)
    started = json.loads((job / "started.json").read_text())
    for who in ("supervisor", "child"):
        os.kill(int(started[who]["pid"]), signal.SIGKILL)


def held(desk: Desk, *, whole: bool = True) -> TrialState:
    """A trial whose load was sent and whose end nobody knows."""
    desk.hosts.order(HANG)
    with desk.at(Stage.MEASURE, lambda: lose(desk, whole=whole), word=" s"):
        trial = desk.run()
    assert outcome(trial)[0] == "held"
    return trial


def say(desk: Desk, trial: TrialState, finding: str, tries: int = 5) -> TrialState:
    """The operator's word, then the service goes on."""
    resolve_trial(desk.workspace.root, trial.started.trial_id, [finding], reason="looked on the host", by="ops")
    return gone_on(desk, trial.started.trial_id, tries)


def gone_on(desk: Desk, trial_id: str, tries: int = 5) -> TrialState:
    """As the service does: tried again where a busy host was silent for longer than these tests wait."""
    for _ in range(tries):
        desk.go_on()
        if outcome(desk.study.trials[trial_id])[0] != "open":
            break
    return desk.study.trials[trial_id]


def test_nothing_new_starts_while_an_end_is_unknown(desk: Desk) -> None:
    """Not the next trial of the study, whoever asks for it, and the lifecycle table refuses it as well."""
    trial = held(desk)

    assert isinstance(next_step(desk.study, desk.application.clock.now()), Hold)
    assert desk.application.nodes.start() is None
    assert len(desk.study.trials) == 1
    with pytest.raises(InvalidTransition, match=f"the end of trial {trial.started.trial_id} is unknown"):
        desk.started()
    assert desk.violations() == ()


def test_the_status_says_what_to_check_and_the_commands(desk: Desk) -> None:
    """The job, its host, and the three commands stand on the screen; the machines are not safe to take."""
    trial = held(desk)
    text = describe_status(desk.workspace.root)

    assert f"job {trial.started.trial_id}.measure on host p0 is lost" in text
    assert "NOT safe to take" in text
    for word in ("--finished", "--never-ran", "--dead"):
        assert f"tuneloop resolve {trial.started.trial_id} {word}" in text


def test_found_finished_goes_on_to_the_original_data(desk: Desk) -> None:
    """The data is whole on the host: it is collected and judged, and the load is not sent again."""
    trial = say(desk, held(desk), "finished")

    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1
    assert outcome(desk.run()) == ("valid", "", "", "finished")
    assert desk.violations() == ()


def test_found_finished_without_its_data_is_a_fault_and_no_number(desk: Desk) -> None:
    """A word of a person does not make a measurement: without its data there is none."""
    trial = held(desk, whole=False)
    work = desk.hosts.workdir(desk.application.pool.client.on) / "trials" / trial.started.trial_id
    for records in work.glob("measure/**/*_details.jsonl"):
        records.unlink()
    trial = say(desk, trial, "finished")

    assert outcome(trial)[0] == "orchestration_fault"
    assert desk.violations() == ()


def test_found_dead_is_a_fault_whose_load_was_perhaps_sent(desk: Desk) -> None:
    """The trial ends without a number, its id is burnt, and the next trial runs."""
    trial = say(desk, held(desk, whole=False), "dead")

    assert outcome(trial) == ("orchestration_fault", "unknown_end", "measure", "unknown")
    assert outcome(desk.run()) == ("valid", "", "", "finished")
    assert desk.violations() == ()


@pytest.mark.usefixtures("hasty")
def test_found_never_ran_is_made_true_by_a_fence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host was away as the load was to be sent; the word is confirmed by it, and the id can never start again."""
    trial_id = desk.started()

    def send_into_the_void(*asked: Any) -> Any:
        desk.hosts.shut()
        return launch_client(*asked)

    with monkeypatch.context() as patch:
        patch.setattr("executor.stages.formal_load.launch_client", send_into_the_void)
        desk.go_on()
    trial = desk.study.trials[trial_id]
    assert outcome(trial)[0] == "held"
    desk.hosts.open()
    trial = say(desk, trial, "never_ran")

    assert outcome(trial) == ("orchestration_fault", "unknown_end", "measure", "not_sent")
    assert desk.starts_of(trial) == 0
    with desk.hosts.hosts() as hosts:
        assert hosts["p0"].poll(f"{trial_id}.measure").status == "fenced"
    assert desk.violations() == ()


@pytest.mark.usefixtures("hasty")
def test_a_word_that_the_host_contradicts_is_not_taken(desk: Desk) -> None:
    """The load ran to its end while its host was away: "never ran" is refused, "finished" goes on."""
    trial_id = desk.started()
    desk.hosts.order(HANG)
    with desk.at(Stage.MEASURE, desk.hosts.shut, word=" s"):
        desk.go_on()
    desk.hosts.open()
    trial = say(desk, desk.study.trials[trial_id], "never_ran")

    assert outcome(trial)[0] == "held"
    assert trial.held is not None
    assert "said to have never run, but job" in trial.held.detail
    trial = say(desk, trial, "finished")
    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1
    assert desk.violations() == ()


@pytest.mark.usefixtures("hasty")
def test_a_host_that_answers_again_needs_no_person(desk: Desk) -> None:
    """The load ended while its host was away for too long: asked again, the host knows, and the trial goes on."""
    trial_id = desk.started()
    desk.hosts.order(HANG)
    with desk.at(Stage.MEASURE, desk.hosts.shut, word=" s"):
        desk.go_on()
    while_away = desk.application.nodes.hold()
    desk.hosts.open()
    with desk.hosts.hosts() as hosts:
        hosts["p0"].poll(f"{trial_id}.measure", wait_s=15.0)
    answered = next((None for _ in range(5) if desk.application.nodes.hold() is None), "still unknown")
    trial = gone_on(desk, trial_id)

    assert (while_away, answered) == ("the end of a trial is unknown", None)
    assert trial.resolved is not None
    assert trial.resolved.by == "tuneloop"
    assert trial.resolved.reason.startswith("host p0: ")
    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1
    assert desk.violations() == ()


def test_a_lost_end_stays_with_a_person(desk: Desk) -> None:
    """A host that has no record of the end will not get one: asking it again settles nothing."""
    trial = held(desk)

    assert desk.application.nodes.hold() == "the end of a trial is unknown"
    assert desk.study.trials[trial.started.trial_id].is_held


@pytest.mark.usefixtures("hasty")
def test_a_word_is_kept_until_the_host_answers(desk: Desk) -> None:
    """A finding about a host that is still away changes nothing yet; the trial waits with it."""
    trial = held(desk)
    desk.hosts.shut()
    waiting = outcome(say(desk, trial, "finished", tries=1))[0]
    desk.hosts.open()
    trial = gone_on(desk, trial.started.trial_id)

    assert waiting == "open"
    assert outcome(trial) == ("valid", "", "", "finished")


def test_a_false_word_is_found_by_the_audit(desk: Desk) -> None:
    """Said never to have run although its client counted a start: the record stands, and the audit says so."""
    trial = say(desk, held(desk, whole=False), "never_ran")

    assert outcome(trial) == ("orchestration_fault", "unknown_end", "measure", "not_sent")
    if desk.starts_of(trial):
        assert Invariant.UNSENT_NEVER_STARTED in {violation.invariant for violation in desk.violations()}


def test_a_replaced_job_directory_never_reads_as_never_sent(desk: Desk) -> None:
    """An empty directory in the place of the old one says "absent" of a load that ran: held, and not sent again."""
    jobs = measure_job_folder(desk)
    desk.hosts.order(HANG)

    def replace_and_lose_the_service() -> None:
        lose(desk, whole=True)
        shutil.rmtree(jobs)
        raise KeyboardInterrupt

    with desk.at(Stage.MEASURE, replace_and_lose_the_service, word=" s"), contextlib.suppress(KeyboardInterrupt):
        desk.run()
    desk.reopen()

    waiting = desk.go_on()

    trial = desk.study.open_trial
    assert trial is not None
    assert trial.is_held
    assert "was replaced" in (waiting or "")
    assert desk.starts_of(trial) == 1
