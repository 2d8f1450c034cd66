"""A named expert layout on the simulated pool: recorded, fitted, loaded, judged, and used again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executor.simulated.model.experts import trivial_placement
from executor.trial_context import Progress
from experiments.serving_config import Kind, Role, ServingConfig
from experiments.serving_config import Path as SettingPath
from experiments.study import TrialState
from experiments.trial import Stage, TrialRecord
from tests.acceptance.desk import Desk, open_desk, open_hosts, outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LAYOUTS = """\
layouts:
  fitted-16k:
    record: {requests: 8, concurrency: 4}
    fit: {redundant_experts: 16}
  odd-slots:
    record: {requests: 4}
    fit: {redundant_experts: 10}
"""
FLAG = "init-expert-location"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    hosts = open_hosts(tmp_path / "pool", {"record": 40.0, "fit": 20.0})
    description = hosts.description.read_text().replace("timeouts:", LAYOUTS + "timeouts:")
    hosts.description.write_text(description)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("executor.stages.layout_recording.DUMP_WAIT_S", 1.5)
        desk = open_desk(tmp_path / "study", hosts)
        yield desk
        desk.close()
    hosts.close()


def with_layout(desk: Desk, value: str | None, role: Role = Role.PREFILL) -> ServingConfig:
    return desk.study.opened.starting.with_value(SettingPath(role, Kind.LAYOUT, FLAG), value)


def folder_of(desk: Desk, name: str = "fitted-16k", role: str = "prefill") -> Path:
    host = "p0" if role == "prefill" else "d0"
    return desk.hosts.workdir(host) / "layouts" / f"{role}.{name}"


def record_of(trial: TrialState) -> TrialRecord:
    assert trial.record is not None
    return trial.record


def notes(trial: TrialState) -> dict[Stage, str]:
    return {stage.stage: stage.note for stage in record_of(trial).stages}


def launched(desk: Desk, trial: TrialState, stage: Stage = Stage.LAUNCH) -> dict[str, Any]:
    rows = desk.application.database.journal(desk.application.clock.now).rows(trial.started.trial_id)
    return next(dict(row.payload) for row in rows if row.stage is stage and row.outcome == "done")


def test_a_layout_is_recorded_fitted_loaded_and_used_again(desk: Desk) -> None:
    """Two stages of their own before the formal launch; the next trial finds both done and the very same server."""
    uniform = folder_of(desk).parents[1] / "uniform.json"
    uniform.write_text(json.dumps({"physical_to_logical_map": trivial_placement()}))
    before = desk.run(config=with_layout(desk, str(uniform)))
    first = desk.run(config=with_layout(desk, "fitted-16k"))
    again = desk.run(config=with_layout(desk, "fitted-16k"))

    assert [outcome(trial) for trial in (before, first, again)] == [("valid", "", "", "finished")] * 3
    assert "8 requests recorded" in notes(first)[Stage.RECORD]
    assert notes(again)[Stage.RECORD] == "every layout was fitted before"
    assert notes(again)[Stage.FIT].endswith("fitted before")
    assert notes(again)[Stage.LAUNCH].startswith("kept prefill")
    assert Stage.RECORD not in notes(before)
    (said,) = [source for source in record_of(first).sources if "layout fitted-16k" in source]
    assert "272 slots, fitted on 8 requests, predicted balancedness" in said
    layout = json.loads((folder_of(desk) / "layout.json").read_text())
    assert (set(layout), len(layout["physical_to_logical_map"][0])) == ({"physical_to_logical_map"}, 272)
    names = [artifact.name for artifact in record_of(first).artifacts]
    assert "layout/prefill.fitted-16k.json" in names
    assert sum(name.startswith("layout/prefill.expert_distribution_recorder_") for name in names) == 1
    assert not any(name.startswith("layout/") for name in (a.name for a in record_of(again).artifacts))
    assert throughput(first) > throughput(before)
    assert desk.starts_of(first) == 1
    assert desk.violations() == ()


def throughput(trial: TrialState) -> float:
    from experiments.measurement import WindowKind

    measurement = record_of(trial).measurement
    assert measurement is not None
    return measurement.window(WindowKind.WHOLE).output_tok_s_per_card  # type: ignore[union-attr]


def test_the_recorder_is_off_in_the_formal_run(desk: Desk) -> None:
    """The server that was recorded on is another job than the one that is measured, and does not outlive its launch."""
    trial = desk.run(config=with_layout(desk, "fitted-16k"))

    formal = {server["role"]: server["job_id"] for server in launched(desk, trial)["servers"]}
    with desk.hosts.hosts() as hosts:
        prefills = {job.job_id: job.is_live for job in hosts["p0"].jobs() if ".prefill." in job.job_id}
        info = hosts["p0"].http(desk.application.pool.hosts["p0"].port, 5.0)
        reported = info.get("/server_info").json()
    assert [job for job, is_live in prefills.items() if is_live] == [formal["prefill"]]
    assert len(prefills) == 2
    assert reported["expert_distribution_recorder_mode"] is None
    assert (reported["init_expert_location"], reported["ep_num_redundant_experts"]) == (
        str(folder_of(desk) / "layout.json"),
        16,
    )
    assert reported["simulated_expert_misfit"] < 0.2


def test_both_sides_are_recorded_with_one_load(desk: Desk) -> None:
    """A change of both roles needs one recording service and fits each side on its own host."""
    config = with_layout(desk, "fitted-16k").with_value(SettingPath(Role.DECODE, Kind.LAYOUT, FLAG), "fitted-16k")
    trial = desk.run(config=config)

    assert outcome(trial) == ("valid", "", "", "finished")
    assert notes(trial)[Stage.RECORD].startswith("prefill, decode: servers in")
    one, other = (
        json.loads((folder_of(desk, role=role) / "layout.json").read_text()) for role in ("prefill", "decode")
    )
    assert one != other


@pytest.mark.parametrize(
    ("fault", "expected", "said"),
    [
        ("dump_missing", ("orchestration_fault", "evidence_incomplete", "record", "not_sent"), "left no dump"),
        ("dump_cut_off", ("orchestration_fault", "post_processing", "fit", "not_sent"), "was not fitted"),
        ("server_exits_at_start", ("orchestration_fault", "launch", "record", "not_sent"), "while recording: prefill"),
    ],
)
def test_a_fault_of_the_recording_is_no_word_about_the_card(
    desk: Desk, fault: str, expected: tuple[str, str, str, str], said: str
) -> None:
    """No load was sent, no number is stored, and the next trial of the same configuration gets its layout."""
    desk.hosts.order({"fault": fault, "program": "server", "role": "prefill", "match": "recorder", "times": 2})
    failed = desk.run(config=with_layout(desk, "fitted-16k"))
    desk.hosts.order()
    after = desk.run(config=with_layout(desk, "fitted-16k"))

    assert outcome(failed) == expected
    failure = record_of(failed).failure
    assert failure is not None
    assert said in failure.detail
    assert desk.starts_of(failed) == 0
    assert outcome(after) == ("valid", "", "", "finished")


def test_a_dump_that_is_missing_once_is_recorded_again(desk: Desk) -> None:
    """The repair starts a recorder of its own; the fault is kept, and the trial has its numbers."""
    desk.hosts.order({"fault": "dump_missing", "program": "server", "role": "prefill", "match": "recorder"})
    trial = desk.run(config=with_layout(desk, "fitted-16k"))

    assert outcome(trial) == ("valid", "", "", "finished")
    faults = [(fault.stage, fault.reason, fault.repaired) for fault in record_of(trial).faults]
    assert faults == [("record", "evidence_incomplete", True)]


def test_a_layout_that_cannot_be_spread_is_the_cards_own_fault(desk: Desk) -> None:
    """256 experts + 10 redundant are no multiple of 16 ranks: infeasible, and nothing formal was launched."""
    trial = desk.run(config=with_layout(desk, "odd-slots"))

    assert outcome(trial) == ("valid_negative", "contract_mismatch", "fit", "not_sent")
    failure = record_of(trial).failure
    assert failure is not None
    assert "256 experts + 10 redundant = 266, not a multiple of 16 ranks" in failure.detail


def test_a_layout_of_another_topology_is_refused(desk: Desk) -> None:
    """It was recorded with 16 ranks; on 8 its slots are on other ranks."""
    assert outcome(desk.run(config=with_layout(desk, "fitted-16k")))[0] == "valid"
    other = with_layout(desk, "fitted-16k").with_value(SettingPath.parse("prefill.flag.dp-size"), 8)
    trial = desk.run(config=other)

    assert outcome(trial) == ("valid_negative", "contract_mismatch", "record", "not_sent")
    failure = record_of(trial).failure
    assert failure is not None
    assert "the layout fitted-16k was recorded with another topology" in failure.detail


def test_a_layout_file_that_was_changed_is_refused(desk: Desk) -> None:
    """By its digest, before a server is started with it."""
    assert outcome(desk.run(config=with_layout(desk, "fitted-16k")))[0] == "valid"
    path = folder_of(desk) / "layout.json"
    path.write_text(json.dumps({"physical_to_logical_map": trivial_placement(272)}))
    trial = desk.run(config=with_layout(desk, "fitted-16k"))

    assert outcome(trial) == ("orchestration_fault", "environment", "record", "not_sent")


def test_a_service_that_comes_back_in_a_recording_goes_on(desk: Desk) -> None:
    """Interrupted while it records: the same servers are found, what was recorded so far is thrown away."""
    trial_id = desk.started(config=with_layout(desk, "fitted-16k"))

    class Killed(BaseException):
        """Ends the process at this word."""

    def die(progress: Progress) -> None:
        if progress.stage is Stage.RECORD and "generating" in progress.text:
            raise Killed

    desk.watch.append(die)
    with pytest.raises(Killed):
        desk.go_on()
    desk.watch.remove(die)
    desk.reopen()
    desk.go_on()

    trial = desk.study.trials[trial_id]
    assert outcome(trial) == ("valid", "", "", "finished")
    assert "8 requests recorded" in notes(trial)[Stage.RECORD]
    assert desk.violations() == ()
