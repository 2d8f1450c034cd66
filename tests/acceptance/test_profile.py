"""A short profile of the servers after a trial's numbers are safe, on the simulated pool."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from executor.stages.live_sampling import SERIES
from experiments.serving_config import Role
from experiments.trial import NOT_OBSERVED, Stage
from tests.acceptance.desk import Desk, open_desk, open_hosts, outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("profile")
    hosts = open_hosts(folder / "pool")
    with hosts.description.open("a") as pool:
        pool.write("profile: {tiers: [baseline], steps: 3, requests: 4}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("executor.stages.profiling.TRACE_WAIT_S", 3.0)
        desk = open_desk(folder / "study", hosts)
        yield desk
        desk.close()
    hosts.close()


def note_of(desk: Desk, trial_id: str) -> str:
    record = desk.study.trials[trial_id].record
    assert record is not None
    return next(stage.note for stage in record.stages if stage.stage is Stage.PROFILE)


def test_conclusions_stand_in_the_record_and_no_trace_does(desk: Desk) -> None:
    """Shares per family for both servers; the traces are gone from their hosts and never came home."""
    trial = desk.run()

    assert outcome(trial) == ("valid", "", "", "finished")
    assert trial.record is not None
    assert [profile.role for profile in trial.record.profiles] == [Role.PREFILL, Role.DECODE]
    decode = trial.record.profiles[1]
    assert (decode.basis, decode.steps) == ("device", 3)
    assert {"attention", "moe", "communication", "matmul", "sampling"} == set(decode.families)
    assert 0 < decode.idle < 0.2
    assert not any("trace" in artifact.name for artifact in trial.record.artifacts if artifact.name != SERIES)
    assert [path for name in ("p0", "d0") for path in desk.hosts.workdir(name).rglob("*.trace.json.gz")] == []
    assert desk.starts_of(trial) == 1


def test_the_same_servers_are_profiled_once(desk: Desk) -> None:
    """Another trial on hot servers says so and costs nothing."""
    trial = desk.run()
    assert outcome(trial) == ("valid", "", "", "finished")
    assert note_of(desk, trial.started.trial_id) == "these servers were profiled in an earlier trial"


def test_a_server_that_refuses_a_profile_costs_no_result(desk: Desk) -> None:
    """The conclusions of that server are not observed, with the reason; the numbers stand."""
    desk.hosts.order({"fault": "profile_refused", "program": "server", "role": "decode"})
    trial = desk.run(decode__num_reserved_decode_tokens=333)

    assert outcome(trial) == ("valid", "", "", "finished")
    assert trial.record is not None
    assert [profile.role for profile in trial.record.profiles] == [Role.PREFILL]
    assert f"decode {NOT_OBSERVED}: HTTP 500 from /start_profile" in note_of(desk, trial.started.trial_id)


def test_the_history_holds_every_invariant(desk: Desk) -> None:
    """The load of a profile is no formal load, and the checker agrees."""
    assert desk.violations() == ()
