"""A named expert layout on the simulated pool: recorded, fitted, loaded, judged, and used again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executor.simulated.model.experts import trivial_placement
from executor.simulated.pool import write_pool_files
from executor.trial_context import Progress
from experiments.measurement import WindowKind
from experiments.serving_config import Kind, Role, ServingConfig
from experiments.serving_config import Path as SettingPath
from experiments.study import TrialState
from experiments.trial import Stage, TrialRecord
from tests.acceptance.desk import Desk, open_desk, open_hosts, outcome
from tests.acceptance.goal_text import baseline_text, goal_text
from tests.acceptance.testbed import make_study, open_pool, read, run_to_end, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FITTED = "{record: {requests: 8, concurrency: 4}, fit: {redundant_experts: 16}}"
LAYOUTS = "layouts:\n" + "".join(f"  layout-{number}: {FITTED}\n" for number in range(12))
LAYOUTS += "  odd-slots: {record: {requests: 4}, fit: {redundant_experts: 10}}\n"
FLAG = "init-expert-location"
names = (f"layout-{number}" for number in range(12))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("layouts")
    hosts = open_hosts(folder / "pool", {"record": 40.0, "fit": 20.0})
    hosts.description.write_text(hosts.description.read_text().replace("timeouts:", LAYOUTS + "timeouts:"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("executor.stages.layout_recording.DUMP_WAIT_S", 1.5)
        desk = open_desk(folder / "study", hosts, goal_text(trials=1000))
        yield desk
        desk.close()
    hosts.close()


@pytest.fixture
def name(desk: Desk) -> str:
    """Of a layout that no other test has made."""
    desk.hosts.order()
    return next(names)


def with_layout(desk: Desk, value: str | None, role: Role = Role.PREFILL) -> ServingConfig:
    return desk.study.opened.starting.with_value(SettingPath(role, Kind.LAYOUT, FLAG), value)


def folder_of(desk: Desk, name: str, role: str = "prefill") -> Path:
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


def test_a_layout_is_recorded_fitted_loaded_and_used_again(desk: Desk, name: str) -> None:
    """Two stages of their own before the formal launch; the next trial finds both done and the very same server."""
    uniform = folder_of(desk, name).parents[1] / "uniform.json"
    uniform.write_text(json.dumps({"physical_to_logical_map": trivial_placement()}))
    before = desk.run(config=with_layout(desk, str(uniform)))
    first = desk.run(config=with_layout(desk, name))
    again = desk.run(config=with_layout(desk, name))

    assert [outcome(trial) for trial in (before, first, again)] == [("valid", "", "", "finished")] * 3
    assert "8 requests recorded" in notes(first)[Stage.RECORD]
    assert notes(again)[Stage.RECORD] == "every layout was fitted before"
    assert notes(again)[Stage.FIT].endswith("fitted before")
    assert notes(again)[Stage.LAUNCH].startswith("kept prefill")
    assert Stage.RECORD not in notes(before)
    (said,) = [source for source in record_of(first).sources if f"layout {name}" in source]
    assert "272 slots, fitted on 8 requests, predicted balancedness" in said
    layout = json.loads((folder_of(desk, name) / "layout.json").read_text())
    assert (set(layout), len(layout["physical_to_logical_map"][0])) == ({"physical_to_logical_map"}, 272)
    kept = [artifact.name for artifact in record_of(first).artifacts]
    assert f"layout/prefill.{name}.json" in kept
    assert sum(one.startswith("layout/prefill.expert_distribution_recorder_") for one in kept) == 1
    assert not any(artifact.name.startswith("layout/") for artifact in record_of(again).artifacts)
    assert throughput(first) > throughput(before)
    assert desk.starts_of(first) == 1


def throughput(trial: TrialState) -> float:
    measurement = record_of(trial).measurement
    assert measurement is not None
    return measurement.window(WindowKind.WHOLE).output_tok_s_per_card  # type: ignore[union-attr]


def test_the_recorder_is_off_in_the_formal_run(desk: Desk, name: str) -> None:
    """The server that was recorded on is another job than the one that is measured, and does not outlive its launch."""
    with desk.hosts.hosts() as hosts:
        earlier = {job.job_id for job in hosts["p0"].jobs()}
    trial = desk.run(config=with_layout(desk, name))

    formal = {server["role"]: server["job_id"] for server in launched(desk, trial)["servers"]}
    with desk.hosts.hosts() as hosts:
        prefills = {job.job_id: job.is_live for job in hosts["p0"].jobs() if ".prefill." in job.job_id}
        info = hosts["p0"].http(desk.application.pool.hosts["p0"].port, 5.0)
        reported = info.get("/server_info").json()
    assert [job for job, is_live in prefills.items() if is_live] == [formal["prefill"]]
    assert sum(1 for job in prefills if job not in earlier) == 2
    assert reported["expert_distribution_recorder_mode"] is None
    assert (reported["init_expert_location"], reported["ep_num_redundant_experts"]) == (
        str(folder_of(desk, name) / "layout.json"),
        16,
    )
    assert reported["simulated_expert_misfit"] < 0.2


def test_both_sides_are_recorded_with_one_load(desk: Desk, name: str) -> None:
    """A change of both roles needs one recording service and fits each side on its own host."""
    config = with_layout(desk, name).with_value(SettingPath(Role.DECODE, Kind.LAYOUT, FLAG), name)
    trial = desk.run(config=config)

    assert outcome(trial) == ("valid", "", "", "finished")
    assert notes(trial)[Stage.RECORD].startswith("prefill, decode: servers in")
    one, other = (
        json.loads((folder_of(desk, name, role) / "layout.json").read_text()) for role in ("prefill", "decode")
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
    desk: Desk, name: str, fault: str, expected: tuple[str, str, str, str], said: str
) -> None:
    """No load was sent, no number is stored, and the next trial of the same configuration gets its layout."""
    desk.hosts.order({"fault": fault, "program": "server", "role": "prefill", "match": "recorder", "times": 2})
    failed = desk.run(config=with_layout(desk, name))
    desk.hosts.order()
    after = desk.run(config=with_layout(desk, name))

    assert outcome(failed) == expected
    failure = record_of(failed).failure
    assert failure is not None
    assert said in failure.detail
    assert desk.starts_of(failed) == 0
    assert outcome(after) == ("valid", "", "", "finished")


def test_a_dump_that_is_missing_once_is_recorded_again(desk: Desk, name: str) -> None:
    """The repair starts a recorder of its own; the fault is kept, and the trial has its numbers."""
    desk.hosts.order({"fault": "dump_missing", "program": "server", "role": "prefill", "match": "recorder"})
    trial = desk.run(config=with_layout(desk, name))

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


def test_a_layout_of_another_topology_is_refused(desk: Desk, name: str) -> None:
    """It was recorded with 16 ranks; on 8 its slots are on other ranks."""
    assert outcome(desk.run(config=with_layout(desk, name)))[0] == "valid"
    other = with_layout(desk, name).with_value(SettingPath.parse("prefill.flag.dp-size"), 8)
    trial = desk.run(config=other)

    assert outcome(trial) == ("valid_negative", "contract_mismatch", "record", "not_sent")
    failure = record_of(trial).failure
    assert failure is not None
    assert f"the layout {name} was recorded with another topology" in failure.detail


def test_a_layout_file_that_was_changed_is_refused(desk: Desk, name: str) -> None:
    """By its digest, before a server is started with it."""
    assert outcome(desk.run(config=with_layout(desk, name)))[0] == "valid"
    path = folder_of(desk, name) / "layout.json"
    path.write_text(json.dumps({"physical_to_logical_map": trivial_placement(272)}))
    trial = desk.run(config=with_layout(desk, name))

    assert outcome(trial) == ("orchestration_fault", "environment", "record", "not_sent")


def test_a_service_that_comes_back_in_a_recording_goes_on(desk: Desk, name: str) -> None:
    """Interrupted while it records: the same servers are found, what was recorded so far is thrown away."""
    trial_id = desk.started(config=with_layout(desk, name))

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


def test_the_history_of_all_of_it_holds_every_invariant(desk: Desk) -> None:
    """Recordings send loads, and none of them is a formal one."""
    assert desk.violations() == ()


STUDY_GOAL = """\
name: layouts
scenario:
  model: DeepSeek-V4-Flash-W8A8
  deployment: pd
  input: {{body_tokens: 16384, encoded_tokens: 16388, task: copy}}
  output_tokens: 1024
  cache: {{state: zero}}
  load: {{client: aisbench, requests: 640, concurrency: 128, rate: 6.0, warmup: 2, seed: 42}}
objective: {{metric: output_tok_s_per_card, window: native, direction: maximize}}
window_floor: {{requests: 128, seconds: 60}}
constraints: [failed_requests == 0]
screening: {{requests: 320}}
confirmation: {{detect: 0.04}}
budget: {{trials: 10, hours: 10}}
baseline: {{file: baseline.yaml}}
knobs:
  - {{role: prefill, layout: init-expert-location, values: ["{uniform}", fitted-16k], cost: restart}}
"""


def test_a_study_records_fits_loads_and_judges_a_layout_card(tmp_path: Path) -> None:
    """From a placement that does not fit: the card is found, its layout made once, confirmed and kept."""
    write_pool_files(tmp_path / "pool")
    description = tmp_path / "pool" / "pool.yaml"
    layouts = "layouts:\n  fitted-16k: {fit: {redundant_experts: 16}}\n"
    description.write_text(description.read_text().replace("timeouts:", layouts + "timeouts:"))
    pool = open_pool(tmp_path / "pool", {"record": 60.0})
    uniform = pool.workdir("p0") / "uniform.json"
    uniform.write_text(json.dumps({"physical_to_logical_map": trivial_placement()}))
    workspace = make_study(tmp_path / "study", pool, STUDY_GOAL.format(uniform=uniform))
    placed = f"prefill:\n  layout: {{init-expert-location: {uniform}}}\n"
    (workspace.root / "baseline.yaml").write_text(baseline_text().replace("prefill:\n", placed, 1))
    try:
        assert run_to_end(workspace, within_s=550.0) == 0
        study = read(workspace)
        (card,) = study.cards.values()
        trials = [trial for trial in study.trials.values() if trial.started.card_digest == card.digest]
        recorded = [trial for trial in trials if "recorded in" in notes(trial)[Stage.RECORD]]
        digests = {
            source.split(" sha256 ")[1][:16] for t in trials for source in record_of(t).sources if "layout" in source
        }
        closed = study.closed[card.digest]

        assert card.name == "c01-init-expert-location-fitted-16k"
        assert (closed.classification.route, closed.kept) == ("promising", True)
        assert closed.classification.comparison is not None
        assert 0.07 < closed.classification.comparison.gain < 0.25
        assert len(trials) >= 3
        assert (recorded, len(digests)) == (trials[:1], 1)
        assert violations(workspace, pool) == ()
    finally:
        pool.close()
