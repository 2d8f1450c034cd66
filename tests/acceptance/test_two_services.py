"""Two services on one study, and a service whose right was taken: one drives, the other stops and harms nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from experiments.errors import TuningError
from experiments.trial import Stage
from state.errors import DriverRefused
from tests.acceptance.desk import Desk, outcome
from tests.acceptance.goal_text import goal_text
from tests.acceptance.testbed import make_study, open_pool, read, start_service, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_second_service_on_a_workspace_leaves_at_once(tmp_path: Path) -> None:
    """It says that another one runs; the first is not disturbed and ends its study."""
    pool = open_pool(tmp_path / "pool")
    workspace = make_study(tmp_path / "study", pool, goal_text(trials=2))
    try:
        first, second = start_service(workspace), None
        while not (workspace.root / "service.log").exists() or "trial" not in first.log():
            assert first.process.is_alive()
            first.process.join(0.05)
        second = start_service(workspace)
        refused = second.wait()
        said = first.log()
        code = first.wait(60.0)

        assert refused != 0
        assert "another tuneloop runs this workspace" in said
        assert code == 0
        assert [trial.sample is not None for trial in read(workspace).trials.values()] == [True, True]
        assert violations(workspace, pool) == ()
    finally:
        pool.close()


def test_another_owner_of_the_study_is_named(desk: Desk) -> None:
    """A service elsewhere holds the study in the shared store: this one does not start."""
    drivers = desk.application.database.drivers(desk.application.clock.now)
    study_id = desk.study.study_id
    desk.application.drive.stop()
    drivers.release(study_id, desk.application.drive.epoch)
    drivers.acquire(study_id, "night-2:/srv/other", timedelta(minutes=2))

    with pytest.raises(DriverRefused, match="is driven by night-2:/srv/other"):
        desk.reopen()


@pytest.mark.parametrize("stage", [Stage.PREPARE, Stage.WARM_UP, Stage.MEASURE, Stage.COLLECT])
def test_a_service_that_was_replaced_writes_nothing_and_the_other_goes_on(desk: Desk, stage: Stage) -> None:
    """Taken over in the middle of a trial: the first stops with the reason, the second ends it; one start, numbers."""
    drivers = desk.application.database.drivers(desk.application.clock.now)
    owner = drivers.current(desk.study.study_id)
    assert owner is not None
    trial_id = desk.started()

    def take_over() -> None:
        drivers.acquire(desk.study.study_id, owner.owner, timedelta(minutes=2))

    with desk.at(stage, take_over), pytest.raises(DriverRefused, match="this process lost it"):
        desk.go_on()
    desk.reopen()
    desk.go_on()
    trial = desk.study.trials[trial_id]

    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1
    assert desk.violations() == ()


@pytest.mark.parametrize("stage", [Stage.LAUNCH, Stage.WARM_UP])
def test_a_stale_epoch_starts_nothing(desk: Desk, stage: Stage) -> None:
    """Another process took the host's lease: our next change is refused by the host, and nothing was sent."""
    with desk.hosts.hosts() as others, desk.at(stage, lambda: take_leases(desk, others)):
        trial = desk.run()

    assert outcome(trial) == ("orchestration_fault", "environment", str(stage), "not_sent")
    assert trial.record is not None
    assert trial.record.failure is not None
    assert "is stale" in trial.record.failure.detail
    assert desk.starts_of(trial) == 0
    assert desk.violations() == ()


def test_a_stale_epoch_before_the_load_holds_the_trial(desk: Desk) -> None:
    """Whoever holds the lease now might send it: without the right to fence, not even "not sent" is certain."""
    with desk.hosts.hosts() as others, desk.at(Stage.MEASURE, lambda: take_leases(desk, others)):
        trial = desk.run()

    assert outcome(trial)[0] == "held"
    assert trial.held is not None
    assert "is stale" in trial.held.detail
    assert desk.starts_of(trial) == 0
    assert desk.violations() == ()


def test_a_lease_that_is_lost_while_the_load_runs_sends_nothing_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal is refused: the load that runs is not touched, its trial is held, and no other starts."""
    monkeypatch.setattr("executor.trial_context.RENEW_AT", 0.0)  # every look renews
    desk.hosts.order({"fault": "client_hangs_after_finish", "program": "bench", "match": "/measure"})
    with desk.hosts.hosts() as others, desk.at(Stage.MEASURE, lambda: take_leases(desk, others), word=" s"):
        trial = desk.run()

    assert outcome(trial)[0] == "held"
    assert trial.held is not None
    assert "is stale" in trial.held.detail
    with pytest.raises(TuningError, match="is unknown"):
        desk.started()
    assert desk.starts_of(trial) == 1
    assert desk.violations() == ()


def take_leases(desk: Desk, others: dict[str, object]) -> None:
    """Another process of the same owner takes every host over from us."""
    for host in others.values():
        host.acquire(desk.study.study_id, 60.0)  # type: ignore[attr-defined]
