"""warm_up, cache, measure: what is sent. The formal load is sent once, under one id, and never again."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import httpx

from executor.bench.client_run import ClientRun
from executor.client_command import compile_client, dataset_path
from executor.job_wait import WaitEnd, wait_for_job
from executor.remote_host import JobSpec, JobState, JobStatus, RemoteHost
from executor.service import Placed
from executor.stage_result import Done, Faulted, StageResult, Unknown, Waiting
from executor.stages.cache_preparation import warm_cache
from executor.stages.diagnosis import describe_dead, fault_of, states_of
from executor.stages.serving import service_of
from executor.trial_context import TrialContext
from executor.trial_plan import measure_job, trial_directory
from experiments.serving_config import Role
from experiments.trial import Reason, Sent, Stage

HTTP_TIMEOUT_S = 60.0
FLUSH_WAIT_S = 60
FLUSH_TRIES = 30


def warm_up(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """A few requests with other prompts, so that the first measured one does not pay for the first graph."""
    count = context.plan.scenario.load.warmup
    if context.payloads[Stage.LAUNCH].get("hot"):
        return Done(note="hot: the service was warm already")
    if count == 0:
        return Done(note="none asked")
    name, host = context.host_of(Role.CLIENT)
    job_id = f"{context.plan.trial_id}.warm-up.{context.attempt}"
    folder = f"{trial_directory(context.plan, context.pool.workdir_of(name))}/warm-up-{context.attempt}"
    run = compile_client(
        context,
        experiment_id=job_id,
        result_dir=folder,
        requests=count,
        concurrency=min(count, context.plan.load.concurrency),
        dataset=dataset_path(context, "warm_up"),
    )
    end = run_client(context, name, host, job_id, run)
    if end.timed_out or end.state is None or end.state.exit_code != 0:
        code = None if end.state is None else end.state.exit_code
        what = f"warm-up: the client ended with {code} {end.detail}".rstrip()
        service = service_of(context.payloads[Stage.LAUNCH])
        return fault_of(context, service, what, reason=Reason.CLIENT, repairable=True, client_job=job_id)
    return Done(note=f"{count} requests")


def cache(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Bring the prefix cache into the scenario's state: flushed, or flushed and seeded with a proof per request."""
    for server in service_of(context.payloads[Stage.LAUNCH]).servers:
        if server.role is Role.ROUTER:
            continue
        refused = _flush(context, server)
        if refused is not None:
            return Faulted(reason=Reason.ENVIRONMENT, detail=f"{server.role}: {refused}", repairable=True)
    if context.plan.scenario.cache.state == "zero":
        return Done(payload={"checks": []}, note="flushed")
    return warm_cache(context)


def _flush(context: TrialContext, server: Placed) -> str | None:
    """Flush when idle. A busy server refuses; older ones ignore the wait, so it is asked again."""
    with context.hosts[server.host].http(server.port, HTTP_TIMEOUT_S + FLUSH_WAIT_S) as http:
        for _ in range(FLUSH_TRIES):
            answer = http.post("/flush_cache", params={"timeout": FLUSH_WAIT_S})
            if answer.status_code == httpx.codes.OK:
                return None
            context.keep_leases()
            context.clock.sleep(1.0)
    return f"the cache was not flushed: HTTP {answer.status_code} {answer.text[:80]!r}"


def measure_intent(context: TrialContext) -> dict[str, Any]:
    """The one job id of the formal load, and where each server's log stood before it."""
    offsets = {}
    for server in service_of(context.payloads[Stage.LAUNCH]).servers:
        offsets[str(server.role)] = context.hosts[server.host].poll(server.job_id).log_size
    return {"job_id": measure_job(context.plan), "log_offsets": offsets}


def measure(context: TrialContext, intent: Mapping[str, Any]) -> StageResult:
    """Send the formal load unless it was ever sent, then wait for its end. Only the host can say that it never ran."""
    name, host = context.host_of(Role.CLIENT)
    job_id = str(intent["job_id"])
    folder = f"{trial_directory(context.plan, context.pool.workdir_of(name))}/measure"
    run = compile_client(
        context,
        experiment_id=context.plan.trial_id,
        result_dir=folder,
        requests=context.plan.load.requests,
        concurrency=context.plan.load.concurrency,
        dataset=dataset_path(context, "measure"),
    )
    state = host.poll(job_id)
    if state.status is JobStatus.ABSENT:
        blocked = context.gate(context.timeout_s)
        if blocked is not None:
            return Waiting(why=blocked.reason)
        context.journal.claim_formal_send(context.plan.trial_id, job_id, name)
    if state.status in (JobStatus.CLAIMED_DEAD, JobStatus.FENCED):
        host.fence(job_id, context.lease_on(name))
        return Faulted(reason=Reason.CLIENT, detail="the client was claimed and never started", sent=Sent.NOT_SENT)
    end = run_client(context, name, host, job_id, run)
    return _judge_end(context, name, host, job_id, end, run)


def run_client(context: TrialContext, name: str, host: RemoteHost, job_id: str, run: ClientRun) -> WaitEnd:
    """Launch a client job unless its id was claimed before, and wait for its end."""
    if host.poll(job_id).status is JobStatus.ABSENT:
        host.make_directory(run.cwd)
        for path, data in run.files_to_upload.items():
            host.make_directory(posixpath.dirname(path))
            host.put_file(path, data)
        spec = JobSpec(
            job_id=job_id,
            argv=run.argv,
            env={**context.pool.hosts[name].env, **run.env},
            cwd=run.cwd,
            ttl_s=context.timeout_s,
        )
        host.launch(spec, context.lease_on(name))
    return wait_for_job(context, host, job_id, context.timeout_s)


def _judge_end(
    context: TrialContext, name: str, host: RemoteHost, job_id: str, end: WaitEnd, run: ClientRun
) -> StageResult:
    if end.cancelled:
        return _cancel(context, name, host, job_id, end)
    state = end.state
    if state is None:
        return Unknown(detail=f"host {name} does not answer ({end.detail}); see whether job {job_id} still runs there")
    match state.status:
        case JobStatus.EXITED:
            return _finished(context, state, run)
        case JobStatus.LOST_REBOOT:
            detail = f"host {name} rebooted while the load ran"
            return Faulted(reason=Reason.ENVIRONMENT, detail=detail, sent=Sent.UNKNOWN)
        case JobStatus.FENCED | JobStatus.CLAIMED_DEAD:
            return Faulted(reason=Reason.CLIENT, detail="the client never started", sent=Sent.NOT_SENT)
        case JobStatus.RUNNING | JobStatus.LAUNCHING | JobStatus.UNSUPERVISED:
            return Unknown(detail=f"job {job_id} on host {name} still runs after {context.timeout_s:.0f} s")
        case _:
            return Unknown(detail=f"job {job_id} on host {name} is {state.status}: {state.why or 'its end is unknown'}")


def _finished(context: TrialContext, state: JobState, run: ClientRun) -> StageResult:
    """The client's process ended. Whether its load was the promised one is judged from its data, later."""
    service = service_of(context.payloads[Stage.LAUNCH])
    dead = describe_dead(states_of(context, service))
    if dead:
        what = "the load ended after a server did"
        return fault_of(context, service, what, reason=Reason.ENVIRONMENT, sent=Sent.FINISHED, client_job=state.job_id)
    payload = {
        "exit_code": state.exit_code,
        "why": state.why,
        "duration_s": state.duration_s,
        "cwd": run.cwd,
        "raw_files": list(run.raw_files),
        "stdout": run.stdout,
    }
    return Done(payload=payload, note=f"the client ended with {state.exit_code}")


def _cancel(context: TrialContext, name: str, host: RemoteHost, job_id: str, end: WaitEnd) -> StageResult:
    """The operator said stop: end the load, and say what is certain about it."""
    state = host.cancel(job_id, context.lease_on(name))
    if state.is_live:
        return Unknown(detail=f"{end.detail}: job {job_id} on host {name} would not end")
    sent = Sent.NOT_SENT if state.status is JobStatus.FENCED else Sent.UNKNOWN
    return Faulted(reason=Reason.CANCELLED, detail=f"cancelled: {end.detail}", sent=sent)
