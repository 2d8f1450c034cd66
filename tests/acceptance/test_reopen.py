"""tuneloop reopen: an ended study goes on another night, from what it knows and with its budget anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent.entrypoints.status import describe_status
from agent.workspace import Workspace
from experiments.ledger import StopReason, StudyReopened
from experiments.study import Study
from state.database import open_database
from tests.acceptance.goal_text import goal_text
from tests.acceptance.served import TUNELOOP, served
from tests.acceptance.testbed import PoolBed, make_study, read, run_to_end, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ASKED = ("--reason", "another night", "--by", "ops")


@pytest.fixture
def ended(tmp_path: Path, pool: PoolBed) -> Workspace:
    workspace = make_study(tmp_path / "study", pool, goal_text(trials=4))
    assert run_to_end(workspace) == 0
    return workspace


def reopen(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TUNELOOP, "reopen", str(root), *options], capture_output=True, text=True, check=False)


def end_of(study: Study) -> tuple[int, StopReason | None]:
    return len(study.trials), study.stopped.reason if study.stopped else None


def test_the_budget_counts_anew_and_nothing_is_measured_again(ended: Workspace, pool: PoolBed) -> None:
    """Four trials more, on the same baseline; who said so is in the ledger, and the history checker finds nothing."""
    before = read(ended)
    said = reopen(ended.root, *ASKED)
    assert run_to_end(ended) == 0
    after = read(ended)
    with open_database(ended.database, may_migrate=False) as database:
        words = [e for e in database.ledger().entries(after.study_id) if isinstance(e, StudyReopened)]

    assert (said.returncode, said.stderr) == (0, "")
    assert "goes on for 4 more trials" in said.stdout
    assert [(word.by, word.reason) for word in words] == [("ops", "another night")]
    assert [end_of(study) for study in (before, after)] == [
        (4, StopReason.BUDGET_TRIALS),
        (8, StopReason.BUDGET_TRIALS),
    ]
    assert list(after.trials)[:4] == list(before.trials)
    assert violations(ended, pool) == ()


def test_only_an_ended_study_is_reopened_and_only_with_a_reason(ended: Workspace) -> None:
    """One line and exit code 2, and the ledger is as it was."""
    no_reason = reopen(ended.root)
    first = reopen(ended.root, *ASKED)
    twice = reopen(ended.root, *ASKED)

    assert (no_reason.returncode, first.returncode, twice.returncode) == (2, 0, 2)
    assert "--reason says why" in no_reason.stderr
    assert twice.stderr.count("\n") == 1
    assert "has not ended; go on with: tuneloop run" in twice.stderr
    assert read(ended).stopped is None


def test_the_status_does_not_repeat_what_was_said_before(ended: Workspace) -> None:
    """Nobody drives it yet, so the last service's words are old at once; the whole budget is left."""
    before = describe_status(ended.root)
    reopen(ended.root, *ASKED)
    after = describe_status(ended.root)

    assert "ended (budget_trials)" in before
    assert "0 of 4 trials left" in before
    assert "budget_trials" not in after
    assert "no service drives this study; tuneloop run or tuneloop serve" in after
    assert "4 of 4 trials left" in after


def test_a_running_service_takes_it_up(ended: Workspace) -> None:
    """It looks at the ledger, so nobody has to start it again."""
    with served(ended.root, log=ended.root / "served.log") as service:
        service.wait_for(lambda: "the study ended" in service.said())
        assert reopen(ended.root, *ASKED).returncode == 0
        service.wait_for(lambda: end_of(read(ended)) == (8, StopReason.BUDGET_TRIALS))
