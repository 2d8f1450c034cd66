"""A server that dies under the formal load: its client is not waited for until its own time-outs, and is no number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from executor.remote_host import JobSpec
from executor.service import tear_down
from executor.stage_result import Done, Faulted
from executor.stages import formal_load
from executor.trial_context import TrialContext
from executor.trial_plan import measure_job
from experiments.serving_config import Role
from experiments.trial import Reason, Sent, Stage
from tests.executor.stage_bench import BASELINE, Bench, numbers

SLEEP = ("/bin/sh", "-c", "sleep 300")


@pytest.fixture(name="bench")
def pool_with_a_stuck_client(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The client sends nothing and ends never by itself; servers are looked at often."""
    monkeypatch.setattr(formal_load, "WATCH_S", 0.2)
    monkeypatch.setattr(formal_load, "CLIENT_PATIENCE_S", 1.0)
    programs = bench.pool.programs.model_copy(update={"aisbench": SLEEP})
    changed = bench.pool.model_copy(update={"programs": programs})
    stuck = replace(bench, pool=changed, study=f"study-{next(numbers)}")
    yield stuck
    tear_down(stuck.hosts, stuck.study, 60.0)


def start(bench: Bench, context: TrialContext, name: str, role: Role, seconds: float) -> dict[str, object]:
    """A stand-in of a server as a job of its own, that ends by itself after a while."""
    host = bench.hosts[name]
    job_id = f"{bench.study}.{role}.0123456789ab.1"
    workdir = bench.pool.workdir_of(name)
    argv = ("/bin/sh", "-c", f"sleep {seconds}; exit 3")
    host.launch(JobSpec(job_id=job_id, argv=argv, cwd=workdir, ttl_s=600.0), context.lease_on(name))
    return {"role": str(role), "host": name, "job_id": job_id, "port": bench.pool.hosts[name].port, "reused": False}


def under_load(bench: Bench, prefill_s: float, decode_s: float) -> TrialContext:
    """A trial at its measure stage, with both servers running."""
    context = bench.trial(BASELINE)
    context.stage = Stage.MEASURE
    context.leases = {name: host.acquire(bench.study, 60.0) for name, host in bench.hosts.items()}
    servers = [
        start(bench, context, "p0", Role.PREFILL, prefill_s),
        start(bench, context, "d0", Role.DECODE, decode_s),
    ]
    data = Path(bench.pool.workdir_of("p0")) / "measure.jsonl"
    data.write_text("{}\n")
    context.payloads = {
        Stage.CHECK: {"hosts": {name: {"root_id": host.facts().root_id} for name, host in bench.hosts.items()}},
        Stage.LAUNCH: {"servers": servers, "obsolete": []},
        Stage.PREPARE: {"parts": {"measure": str(data)}},
    }
    return context


def test_the_client_of_a_dead_server_is_ended_and_the_fault_names_the_server(bench: Bench) -> None:
    """Decode ends after a second; the stuck client is ended after its patience, and what was sent is not known."""
    context = under_load(bench, 300, 1)
    result = formal_load.measure(context, formal_load.measure_intent(context))
    assert isinstance(result, Faulted)
    assert (result.reason, result.sent, result.repairable) == (Reason.ENVIRONMENT, Sent.UNKNOWN, False)
    assert result.configuration_caused is False
    assert "a server died under the load, and its client was ended; decode (exited, exit 3) ended" in result.detail
    client = bench.hosts["p0"].poll(measure_job(context.plan))
    assert not client.is_live


def test_a_client_that_ends_by_itself_is_waited_for(bench: Bench) -> None:
    """Both servers live: the end of the client is the end of the load."""
    programs = bench.pool.programs.model_copy(update={"aisbench": ("/bin/sh", "-c", "sleep 2")})
    quick = replace(bench, pool=bench.pool.model_copy(update={"programs": programs}))
    context = under_load(quick, 300, 300)
    result = formal_load.measure(context, formal_load.measure_intent(context))
    assert isinstance(result, Done)
    assert result.payload["exit_code"] == 0
