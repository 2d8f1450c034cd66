"""Injected faults, one trial each: the expected route, reason, stage and answer about the load, and never a number.

The faults are those of the simulated pool, by name, over every program and role that they apply to. One study carries
all of one client's, so that each fault also shows that the next trial is none the worse for the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from executor.simulated.faults import FAULTS
from experiments.measurement import WindowKind
from experiments.trial import Stage
from state.models import METRIC_COLUMNS
from tests.acceptance.desk import Desk, open_desk, open_hosts, outcome
from tests.acceptance.goal_text import goal_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TIMEOUTS = {"ready": 4.0, "canary": 3.0, "warm_up": 5.0, "measure": 6.0}
FAULT, NEGATIVE = "orchestration_fault", "valid_negative"
LAUNCH = (FAULT, "launch", "ready", "not_sent")
# What a service may do without a fault: start slowly, print much, refuse a flush once, say anything in its log.
HARMLESS = frozenset(
    {"slow_start", "log_flood", "healthy_before_warm", "unhealthy_when_busy", "misleading_log", "flush_refused"}
)
# Only where a profile is taken or a layout recorded: test_profile.py, test_layouts.py.
OPTIONAL = frozenset({"profile_refused", "dump_missing", "dump_cut_off"})
CLIENT_UNSENT = (FAULT, "client", "warm_up", "not_sent")
VIOLATED = (FAULT, "workload_violated", "analyse", "finished")
DIED = (FAULT, "environment", "measure", "finished")
Outcome = tuple[str, str, str, str]


@dataclass(frozen=True)
class Case:
    """One fault, where it strikes, what comes of it, and a word of the message that says so."""

    fault: str
    program: str
    expected: Outcome
    said: str
    role: str = ""
    stage: str = ""
    extra: tuple[tuple[str, Any], ...] = ()

    @property
    def id(self) -> str:
        return "-".join(filter(None, (self.fault, self.role, self.stage)))

    def order(self) -> dict[str, Any]:
        where = {"role": self.role} if self.role else {}
        match = {"match": f"/{self.stage.replace('_', '-')}"} if self.stage else {}
        times = {"times": 2} if self.stage == "warm_up" else {}  # a warm-up is repaired once
        return {"fault": self.fault, "program": self.program, **where, **match, **times, **dict(self.extra)}


def server_cases() -> Iterator[Case]:
    expected = {
        "server_exits_at_start": (LAUNCH, "ended before it was ready"),
        "capture_fails": (LAUNCH, "cause: graph_capture"),
        "server_never_ready": (LAUNCH, "was not ready after 4 s"),
        "port_moves": (LAUNCH, "was not ready after 4 s"),
        "healthy_then_hangs": (LAUNCH, "is ready and does not say what it runs with"),
        "hangs_after_requests": ((FAULT, "launch", "canary", "not_sent"), "canary 3 of 8: no answer"),
        "restarted_in_run": ((FAULT, "environment", "collect", "finished"), "became another process"),
        "wrong_effective_arg": ((FAULT, "contract_mismatch", "ready", "not_sent"), "max-running-requests"),
    }
    assert set(expected) == FAULTS["server"] - HARMLESS - OPTIONAL - {"log_truncated"}
    by_word = {"wrong_effective_arg", "hangs_after_requests", "capture_fails"}
    wrong = (("argument", "max_running_requests"), ("value", 7))
    for name, (found, said) in expected.items():
        for role in ("prefill", "decode"):
            extra = wrong if name == "wrong_effective_arg" else ()
            yield Case(name, "server", found, said if name in by_word else f"{role} {said}", role=role, extra=extra)
    lost = (FAULT, "evidence_incomplete", "analyse", "finished")
    yield Case("log_truncated", "server", lost, "zero_cache: neither the client nor the servers", role="prefill")
    yield Case("router_exits_at_start", "router", LAUNCH, "router ended before it was ready")
    yield Case("router_never_ready", "router", LAUNCH, "router was not ready after 4 s")
    yield Case("router_loses_decode", "router", (FAULT, "launch", "canary", "not_sent"), "HTTP 503 from the front door")


def measure_cases(client: str) -> Iterator[Case]:
    """What happens to the formal load. A finished one is never sent again, whatever its data looks like."""
    no_data = (FAULT, "client", "collect", "finished")
    per_client = {
        "aisbench": {
            "details_truncated": ((FAULT, "post_processing", "collect", "finished"), "summary failed again"),
            "database_missing": ((FAULT, "post_processing", "collect", "finished"), "summary failed again"),
            "silent_retry": (VIOLATED, "sent more than once by the client"),
        },
        "bench_serving": {
            "details_truncated": ((FAULT, "evidence_incomplete", "analyse", "finished"), "bench.jsonl:1: cut off"),
            "client_summary_fails": (no_data, "left no per-request data"),
            "stale_result_in_place": (no_data, "left no per-request data"),
        },
    }
    expected = {
        "client_exit_1_before_sending": ((FAULT, "client", "collect", "not_sent"), "exit 1"),
        "client_killed_halfway": (no_data, "signal 9"),
        "stream_ends_in_error": (VIOLATED, "not exactly 1024 tokens"),
        "summary_disagrees": ((FAULT, "evidence_incomplete", "analyse", "finished"), "the client printed 1"),
        "double_result": ((FAULT, "evidence_incomplete", "analyse", "finished"), "2 "),
        "client_exit_0_some_failed": (VIOLATED, "2 of 16 requests failed"),
        "client_zero_tokens": (VIOLATED, "no output tokens"),
        "client_short_output": (VIOLATED, "not exactly 1024 tokens"),
        "garbled_output": (VIOLATED, "garbling: 2 answers"),
        "decode_dies_in_run": (DIED, "decode.log: RuntimeError"),
        "prefill_dies_in_run": (DIED, "prefill.log: RuntimeError"),
        "oom_at_load": ((NEGATIVE, "environment", "measure", "finished"), "oom_in_run"),
        **per_client[client],
    }
    for name, (found, said) in expected.items():
        yield Case(name, "bench", found, said, stage="measure")


def warm_up_cases() -> Iterator[Case]:
    for name in ("client_exit_1_before_sending", "client_killed_halfway", "client_summary_fails", "details_truncated"):
        yield Case(name, "bench", CLIENT_UNSENT, "the client ended", stage="warm_up")
    yield Case("client_hangs_after_finish", "bench", CLIENT_UNSENT, "the client ended", stage="warm_up")
    yield Case("decode_dies_in_run", "bench", CLIENT_UNSENT, "decode (exited", stage="warm_up")
    yield Case("prefill_dies_in_run", "bench", CLIENT_UNSENT, "prefill (exited", stage="warm_up")
    yield Case("oom_at_load", "bench", (NEGATIVE, *CLIENT_UNSENT[1:]), "oom_in_run", stage="warm_up")


AISBENCH = [*server_cases(), *measure_cases("aisbench"), *warm_up_cases()]
BENCH_SERVING = list(measure_cases("bench_serving"))


def desk_for(folder: Path, client: str) -> Iterator[Desk]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("executor.stages.serving.HTTP_TIMEOUT_S", 3.0)
        yield from _desk_for(folder, client)


def _desk_for(folder: Path, client: str) -> Iterator[Desk]:
    hosts = open_hosts(folder / "pool", TIMEOUTS)
    desk = open_desk(folder / "study", hosts, goal_text(client=client, trials=1000))
    yield desk
    desk.close()
    hosts.close()


@pytest.fixture(scope="module")
def aisbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    yield from desk_for(tmp_path_factory.mktemp("aisbench"), "aisbench")


@pytest.fixture(scope="module")
def bench_serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    yield from desk_for(tmp_path_factory.mktemp("bench-serving"), "bench_serving")


def check(desk: Desk, case: Case) -> None:
    """Order the fault, run a trial into it, and look at what is stored."""
    changes: dict[str, Any] = {}
    order = case.order()
    if case.role or case.program == "router" or case.stage == "warm_up":
        side = "decode__num_reserved_decode_tokens" if case.role == "decode" else "prefill__max_running_requests"
        changes[side] = 300 + len(desk.study.trials)  # so that this side is started anew
        if case.program == "server":  # this very one: another of the last trial may still be starting
            order["match"] = f"--{side.partition('__')[2].replace('_', '-')} {changes[side]}"
    desk.hosts.order(order)
    trial = desk.run(**changes)

    assert outcome(trial) == case.expected
    assert trial.record is not None
    assert trial.record.failure is not None
    assert case.said in trial.record.failure.detail
    assert desk.hosts.left_faults() == [] or case.stage == "warm_up"
    assert desk.starts_of(trial) <= 1
    row = desk.application.database.views().trial(trial.started.trial_id)
    assert row is not None
    assert [name for name in METRIC_COLUMNS if getattr(row, name) is not None] == []


def test_there_are_at_least_forty() -> None:
    """The matrix does not shrink unseen, and every fault of the pool that ends a trial is in it."""
    assert len(AISBENCH) + len(BENCH_SERVING) >= 40
    named = {case.fault for case in (*AISBENCH, *BENCH_SERVING)}
    elsewhere = {"slow_run", "cache_not_zero", "client_hangs_after_finish", "client_hangs_in_run", *HARMLESS, *OPTIONAL}
    assert named >= (FAULTS["server"] | FAULTS["router"] | FAULTS["bench"]) - elsewhere


@pytest.mark.parametrize("case", AISBENCH, ids=lambda case: case.id)
def test_a_fault_with_aisbench_has_its_route_and_no_number(aisbench: Desk, case: Case) -> None:
    """Each ends with the expected route, reason, stage and answer about the load, and stores no number."""
    check(aisbench, case)


@pytest.mark.parametrize("case", BENCH_SERVING, ids=lambda case: case.id)
def test_a_fault_with_bench_serving_has_its_route_and_no_number(bench_serving: Desk, case: Case) -> None:
    """The other client's files are other files; the routes are the same."""
    check(bench_serving, case)


def test_a_cache_filled_behind_our_back_is_a_violated_workload(aisbench: Desk) -> None:
    """Another's request between the flush and the load shows as cached tokens in the server's log."""
    aisbench.hosts.order()
    with aisbench.at(Stage.MEASURE, lambda: _send_the_first_prompt(aisbench)):
        trial = aisbench.run()

    assert outcome(trial) == VIOLATED
    assert trial.record is not None
    assert trial.record.failure is not None
    assert "zero_cache" in trial.record.failure.detail


def _send_the_first_prompt(desk: Desk) -> None:
    import json

    pool = desk.application.pool
    dataset = next(desk.hosts.workdir(pool.client.on).glob("datasets/*/measure.jsonl"))
    prompt = json.loads(dataset.read_text().splitlines()[0])["question"]
    body = {"model": "", "messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
    with desk.application.hosts[pool.router.on].http(pool.router.port, 10.0) as http:
        assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_a_failed_summary_is_repaired_from_the_data(aisbench: Desk) -> None:
    """The fault is kept with its repair, the trial has numbers, and the load was sent once."""
    aisbench.hosts.order({"fault": "client_summary_fails", "program": "bench", "match": "/measure"})
    trial = aisbench.run()

    assert outcome(trial) == ("valid", "", "", "finished")
    assert trial.record is not None
    assert [(f.stage, f.reason, f.repaired) for f in trial.record.faults] == [("collect", "post_processing", True)]
    assert aisbench.starts_of(trial) == 1


@pytest.mark.parametrize("client", ["aisbench", "bench_serving"])
def test_a_client_that_hangs_after_its_data_is_whole_is_judged_by_the_data(
    client: str, request: pytest.FixtureRequest
) -> None:
    """The host ends it at its own deadline; what it wrote is whole, so the result is not lost."""
    desk: Desk = request.getfixturevalue(client)
    desk.hosts.order({"fault": "client_hangs_after_finish", "program": "bench", "match": "/measure"})
    trial = desk.run()

    assert outcome(trial) == ("valid", "", "", "finished")
    assert desk.starts_of(trial) == 1


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("fault", sorted(HARMLESS))
def test_what_a_service_may_do_costs_no_result(aisbench: Desk, fault: str, role: str) -> None:
    """No sentence in a log, no slow start and no refusal that passes ends a trial."""
    aisbench.hosts.order({"fault": fault, "program": "server", "role": role})
    side = "decode__num_reserved_decode_tokens" if role == "decode" else "prefill__max_running_requests"
    trial = aisbench.run(**{side: 300 + len(aisbench.study.trials)})

    assert outcome(trial) == ("valid", "", "", "finished")
    assert aisbench.hosts.left_faults() == []


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_server_that_could_not_be_used_is_not_found_again(aisbench: Desk, role: str) -> None:
    """It never became ready: the same configuration, asked for once more, gets a process that does."""
    aisbench.hosts.order({"fault": "server_never_ready", "program": "server", "role": role})
    side = "decode__num_reserved_decode_tokens" if role == "decode" else "prefill__max_running_requests"
    changes = {side: 300 + len(aisbench.study.trials)}
    failed, again = aisbench.run(**changes), aisbench.run(**changes)

    assert outcome(failed) == LAUNCH
    assert outcome(again) == ("valid", "", "", "finished")


def test_servers_that_still_hold_a_dead_clients_requests_are_replaced(aisbench: Desk) -> None:
    """The client hung in its load and was ended; what cannot be flushed after that is ended as well, and it goes on."""
    aisbench.hosts.order({"fault": "client_hangs_in_run", "program": "bench", "match": "/measure"})
    hung, stuck, after = aisbench.run(), aisbench.run(), aisbench.run()

    assert outcome(hung) == (FAULT, "client", "collect", "finished")
    assert hung.record is not None
    assert hung.record.failure is not None
    assert "signal 15 (ttl)" in hung.record.failure.detail
    assert outcome(stuck) == (FAULT, "environment", "cache", "not_sent")
    assert outcome(after) == ("valid", "", "", "finished")
    assert [aisbench.starts_of(trial) for trial in (hung, stuck, after)] == [1, 0, 1]


class TestSlowRuns:
    """A slow run is no fault: over-rejection would hide the very negatives that a study is for."""

    @pytest.mark.parametrize("factor", [1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 6.0, 10.0])
    def test_a_slowed_load_has_its_numbers(self, aisbench: Desk, factor: float) -> None:
        """However slow the service was, whatever was measured is stored."""
        aisbench.hosts.order({"fault": "slow_run", "program": "bench", "factor": factor, "match": "/measure"})
        self._has_numbers(aisbench.run())
        assert aisbench.hosts.left_faults() == []

    @pytest.mark.parametrize("concurrency", range(1, 11))
    def test_a_slow_configuration_has_its_numbers(self, aisbench: Desk, concurrency: int) -> None:
        """Few requests in flight serve little; that is a result."""
        aisbench.hosts.order()
        self._has_numbers(aisbench.run(concurrency=concurrency))

    def _has_numbers(self, trial: Any) -> None:
        assert outcome(trial) == ("valid", "", "", "finished")
        window = trial.record.measurement.window(WindowKind.WHOLE)
        assert window.n_requests == 16
        assert window.output_tok_s_per_card > 0


@pytest.mark.parametrize("client", ["aisbench", "bench_serving"])
def test_the_history_of_all_of_it_holds_every_invariant(client: str, request: pytest.FixtureRequest) -> None:
    """After every fault above: ledger, journal, hosts, clients and artifacts agree."""
    desk: Desk = request.getfixturevalue(client)
    assert desk.violations() == ()
