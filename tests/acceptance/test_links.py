"""Links that break: a lost connection repeats a question, never an action; an outage costs patience, not results."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from executor.runner import ORDER
from experiments.trial import OPTIONAL, Stage
from tests.acceptance.desk import Desk, answer_within, open_desk, open_hosts, outcome
from tests.acceptance.goal_text import goal_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FRESH = 300  # of a setting that the test turns, so that servers are started anew


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("links")
    hosts = open_hosts(folder / "pool", {"check": 2.0, "measure": 8.0, "collect": 2.0})
    made = open_desk(folder / "study", hosts, goal_text(trials=1000))
    with pytest.MonkeyPatch.context() as patch:
        answer_within(6.0, patch)
        yield made
    made.close()
    hosts.close()


def fresh(desk: Desk) -> dict[str, int]:
    return {"prefill__max_running_requests": FRESH + len(desk.study.trials)}


def outage(desk: Desk, seconds: float) -> None:
    """Every host is away for so long."""
    desk.hosts.shut()
    threading.Timer(seconds, desk.hosts.open).start()


@pytest.mark.parametrize("stage", [stage for stage in ORDER if stage not in OPTIONAL])
def test_a_cut_connection_changes_nothing(desk: Desk, stage: Stage) -> None:
    """Every connection is cut as the stage begins; the trial has its numbers and its load was sent once."""
    with desk.at(stage, desk.hosts.drop_connections):
        trial = desk.run(**fresh(desk))

    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1


@pytest.mark.parametrize("stage", [Stage.CHECK, Stage.LAUNCH, Stage.MEASURE, Stage.COLLECT])
def test_an_outage_of_seconds_costs_seconds(desk: Desk, stage: Stage) -> None:
    """The hosts are away as the stage begins and come back; nothing is lost and nothing is sent twice."""
    with desk.at(stage, lambda: outage(desk, 2.0)):
        trial = desk.run(**fresh(desk))

    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1


def test_an_outage_while_the_load_runs_does_not_lose_it(desk: Desk) -> None:
    """The client goes on without us; its end is read when the host answers again."""
    desk.hosts.order({"fault": "client_hangs_after_finish", "program": "bench", "match": "/measure"})
    with desk.at(Stage.MEASURE, lambda: outage(desk, 3.0), word=" s"):
        trial = desk.run()

    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1


def test_a_long_outage_before_the_load_is_a_transport_fault_that_sent_nothing(desk: Desk) -> None:
    """A host that never answers ends the trial before anything of it was sent."""
    desk.hosts.shut()
    try:
        trial = desk.run()
    finally:
        desk.hosts.open()

    assert outcome(trial) == ("orchestration_fault", "transport", "check", "not_sent")
    assert desk.starts_of(trial) == 0


def test_a_long_outage_at_collection_waits_for_the_data(desk: Desk) -> None:
    """The load is over and its data is on the host: the trial stays open, and ends with its numbers later."""
    trial_id = desk.started()
    with desk.at(Stage.COLLECT, desk.hosts.shut):
        why = desk.go_on()
    waiting = desk.study.trials[trial_id]
    desk.hosts.open()
    desk.go_on()
    trial = desk.study.trials[trial_id]

    assert why is not None
    assert "its data is on the host" in why
    assert outcome(waiting) in (("open", "", "", ""), ("valid", "", "", "finished"))
    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1


def test_the_history_of_all_of_it_holds_every_invariant(desk: Desk) -> None:
    """Ledger, journal, hosts, clients and artifacts agree after every broken link."""
    assert desk.violations() == ()
