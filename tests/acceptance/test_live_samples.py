"""Live samples of a paced load on the simulated pool, from the servers' pages to the record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.simulated.pool import write_pool_files
from executor.stages.live_sampling import SERIES
from experiments.serving_config import Role
from tests.acceptance.desk import Desk, open_desk, open_hosts, outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PACE_S = 3.0


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("live")
    write_pool_files(folder / "pool", pace_s=PACE_S)
    hosts = open_hosts(folder / "pool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("executor.stages.live_sampling.CADENCE_S", 0.1)
        desk = open_desk(folder / "study", hosts)
        yield desk
        desk.close()
    hosts.close()


def test_queues_are_sampled_while_the_load_runs(desk: Desk) -> None:
    """The record has median and maximum per rank, the series is an artifact, and the queues are those of the run."""
    trial = desk.run()

    assert outcome(trial) == ("valid", "", "", "finished")
    assert trial.record is not None
    live = trial.record.live
    assert {rank.role for rank in live} == {Role.PREFILL, Role.DECODE}
    assert all(rank.samples >= 5 for rank in live)
    assert max(rank.running.max or 0 for rank in live if rank.role is Role.DECODE) > 0
    assert [artifact.name for artifact in trial.record.artifacts].count(SERIES) == 1
    path = desk.workspace.artifacts / trial.started.trial_id / SERIES
    assert {json.loads(line)["role"] for line in path.read_text().splitlines()} == {"prefill", "decode"}


def test_a_server_that_says_nothing_costs_no_result(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """No page can be read: nothing is observed, and the trial has its numbers."""
    monkeypatch.setattr("executor.stages.live_sampling._PAGES", ("/no-such-page",))
    trial = desk.run()

    assert outcome(trial) == ("valid", "", "", "finished")
    assert trial.record is not None
    assert trial.record.live == ()


def test_the_history_holds_every_invariant(desk: Desk) -> None:
    """Sampling sends no load and leaves nothing behind that the checker does not know."""
    assert desk.violations() == ()


def test_a_trial_whose_disk_is_full_keeps_its_numbers(tmp_path: Path) -> None:
    """Where a series cannot be written, sampling ends by itself."""
    from executor.stages.live_sampling import _append

    blocked = tmp_path / "a-file"
    blocked.write_text("")
    assert _append(blocked / "live.jsonl", "{}") is False
