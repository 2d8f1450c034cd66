"""`tuneloop serve` as the process that it is: it drives, leaves, is killed, and comes back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.entrypoints.operate import set_mode
from agent.workspace import Workspace
from experiments.ledger import StopReason
from state.database import open_database
from tests.acceptance.desk import Desk, outcome
from tests.acceptance.goal_text import goal_text
from tests.acceptance.served import TUNELOOP, served
from tests.acceptance.testbed import PoolBed, make_study, read, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def slowly(pool: PoolBed) -> PoolBed:
    """Loads take three seconds."""
    described = pool.description.read_text()
    assert "TUNELOOP_SIM_PACE: '0'" in described
    pool.description.write_text(described.replace("TUNELOOP_SIM_PACE: '0'", "TUNELOOP_SIM_PACE: '3'"))
    return pool


def has_ended(workspace: Workspace) -> bool:
    if not workspace.study_file.exists():  # written after the schema, before the study is opened
        return False
    with open_database(workspace.database, may_migrate=False) as database:
        return any(study.stop_reason is not None for study in database.views().studies())


def a_load_runs(pool: PoolBed, trial: str) -> bool:
    return bool(pool.starts()) and pool.starts()[-1].endswith(trial)


def test_two_studies_of_one_pool_take_turns_and_a_drain_ends_the_service(pool: PoolBed, tmp_path: Path) -> None:
    """From one service.yaml: both studies end by their budget, never at once on the pool; drained, it leaves with 0."""
    told = tmp_path / "told.jsonl"
    program = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read())"
    studies = [make_study(tmp_path / name, pool, goal_text(name, trials=2)) for name in ("first", "second")]
    (tmp_path / "service.yaml").write_text(
        "name: tuner-1\nworkspaces: [first, second]\ntick_s: 0.2\ndisk_free_gib: 0\n"
        f"notify: {{command: {json.dumps([sys.executable, '-c', program])}, 'on': [stopped]}}\n"
    )
    with served(tmp_path / "service.yaml", log=tmp_path / "log") as service:
        service.wait_for(lambda: all(map(has_ended, studies)) and told.exists() and told.read_text().count("\n") == 2)
        for study in studies:
            set_mode(study.root, "drain", reason="morning", by="ops")
        code = service.wait()

    assert code == 0
    assert "first: the machines are free" in service.said()
    for study in studies:
        found = read(study)
        assert found.stopped is not None
        assert found.stopped.reason is StopReason.BUDGET_TRIALS
        assert [trial.sample is not None for trial in found.trials.values()] == [True, True]
        assert found.directives[-1].mode == "drain"
    assert {json.loads(line)["event"] for line in told.read_text().splitlines()} == {"stopped"}
    assert overlaps(*studies) == []
    assert [violations(study, pool) for study in studies] == [(), ()]


def overlaps(first: Workspace, second: Workspace) -> list[tuple[str, str]]:
    """Pairs of trials of two studies that ran at the same time."""
    spans = [
        [(t.started.trial_id, t.started.at, t.finished_at) for t in read(study).trials.values()]
        for study in (first, second)
    ]
    return [
        (a, b)
        for a, began, ended in spans[0]
        for b, other_began, other_ended in spans[1]
        if ended is not None and other_ended is not None and began < other_ended and other_began < ended
    ]


def test_a_killed_service_and_one_told_to_leave_lose_nothing(pool: PoolBed, tmp_path: Path) -> None:
    """kill -9 in the first load, SIGTERM in the second, each time the same command again: two trials, one start each.

    Told to leave it leaves with 0 and lets the load run on; killed or not, the next service has the numbers.
    """
    study = make_study(tmp_path / "study", slowly(pool), goal_text(trials=2))
    with served(study.root, log=tmp_path / "first") as first:
        first.wait_for(lambda: a_load_runs(pool, "-t001"))
        first.process.send_signal(signal.SIGKILL)
        killed = first.wait()
    open_trials = [read(study).open_trial]
    with served(study.root, log=tmp_path / "second") as second:
        second.wait_for(lambda: a_load_runs(pool, "-t002"))
        second.process.terminate()
        told = second.wait()
    open_trials.append(read(study).open_trial)
    with served(study.root, log=tmp_path / "third") as third:
        third.wait_for(lambda: has_ended(study))
        set_mode(study.root, "drain", reason="morning", by="ops")
        drained = third.wait()
    trials = read(study).trials

    assert (killed, told, drained) == (-signal.SIGKILL, 0, 0)
    assert [trial.started.trial_id for trial in open_trials if trial is not None] == list(trials)
    assert [trial.sample is not None for trial in trials.values()] == [True, True]
    assert [pool.starts().count(trial_id) for trial_id in trials] == [1, 1]
    assert violations(study, pool) == ()


def test_nothing_to_drive_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """A folder that is no workspace is named."""
    done = subprocess.run([TUNELOOP, "serve", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is not a workspace" in done.stderr


def test_machines_of_another_owner_are_waited_for(desk: Desk) -> None:
    """Held by another study: the trial waits, says who holds which host, and is no fault; released, it is measured."""
    trial_id = desk.started()
    with desk.hosts.hosts() as others:
        lease = others["p0"].acquire("study-of-theirs", 600.0)
        waits = [desk.go_on(), desk.go_on()]
        free = others["d0"].acquire("study-of-theirs", 600.0)  # taken before p0, and given back
        others["d0"].release(free)
        open_meanwhile = desk.study.open_trial
        others["p0"].release(lease)
        desk.go_on()
    trial = desk.study.trials[trial_id]

    assert [str(why).partition(" for another")[0] for why in waits] == ["host p0: held by study-of-theirs"] * 2
    assert open_meanwhile is not None
    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.violations() == ()
