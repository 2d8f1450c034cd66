"""warm_up and cache: what brings a service into the state in which the formal load may be sent. May be done again."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import httpx

from executor.bench.client_run import ClientRun
from executor.client_command import compile_client, dataset_path
from executor.service import Placed
from executor.stage_result import Done, Faulted, StageResult, Waiting
from executor.stages.asking import ask
from executor.stages.cache_preparation import warm_cache
from executor.stages.client_job import end_earlier_attempts, run_client
from executor.stages.diagnosis import fault_of
from executor.stages.serving import end_unfit, service_of
from executor.trial_context import TrialContext
from executor.trial_plan import trial_directory
from experiments.serving_config import Role, digest
from experiments.trial import Reason, Stage

HTTP_TIMEOUT_S = 60.0
FLUSH_WAIT_S = 60
FLUSH_TRIES = 10


def warm_up(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """A few requests with other prompts, so that the first measured one does not pay for the first graph."""
    count = context.plan.scenario.load.warmup
    if count == 0:
        return Done(note="none asked")
    name, host = context.host_of(Role.CLIENT)
    mark = _warm_mark(context, name)
    if host.file_digest(mark) is not None:
        return Done(note="hot: the service was warm already")
    job_id = f"{context.plan.trial_id}.warm-up.{context.attempt}"
    end_earlier_attempts(context, name, host, f"{context.plan.trial_id}.warm-up.")
    end = run_client(context, name, host, job_id, _warm_up_client(context, name, job_id, count))
    if end.cancelled:
        host.cancel(job_id, context.lease_on(name))
        return Waiting(why=end.detail)
    if end.state is None or end.state.exit_code != 0:
        code = None if end.state is None else end.state.exit_code
        what = f"warm-up: the client ended with {code} {end.detail}".rstrip()
        service = service_of(context.payloads[Stage.LAUNCH])
        return fault_of(context, service, what, reason=Reason.CLIENT, repairable=True, client_job=job_id)
    host.make_directory(posixpath.dirname(mark))
    host.put_file(mark, job_id.encode())
    return Done(note=f"{count} requests")


def _warm_mark(context: TrialContext, name: str) -> str:
    """A file that says that exactly these processes were warmed: a trial may end between launch and warm-up."""
    service = service_of(context.payloads[Stage.LAUNCH])
    key = digest(sorted(server.job_id for server in service.servers))[:16]
    return f"{context.pool.workdir_of(name)}/warm/{key}"


def _warm_up_client(context: TrialContext, name: str, job_id: str, count: int) -> ClientRun:
    return compile_client(
        context,
        experiment_id=job_id,
        result_dir=f"{trial_directory(context.plan, context.pool.workdir_of(name))}/warm-up-{context.attempt}",
        requests=count,
        concurrency=min(count, context.plan.load.concurrency),
        dataset=dataset_path(context, "warm_up"),
    )


def cache(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Bring the prefix cache into the scenario's state: flushed, or flushed and seeded with a proof per request."""
    for server in service_of(context.payloads[Stage.LAUNCH]).servers:
        if server.role is Role.ROUTER:
            continue
        refused = flush(context, server)
        if refused is not None and context.attempt > 1:
            end_unfit(context, (server,))  # it holds requests that nobody waits for
        if refused is not None:
            return Faulted(reason=Reason.ENVIRONMENT, detail=f"{server.role}: {refused}", repairable=True)
    if context.plan.scenario.cache.state == "zero":
        return Done(payload={"checks": []}, note="flushed")
    return warm_cache(context)


def flush(context: TrialContext, server: Placed) -> str | None:
    """Flush when idle. A busy server refuses; older ones ignore the wait, so it is asked again."""
    said = ""
    for _ in range(FLUSH_TRIES):
        try:
            answer = ask(context, context.hosts[server.host], server.port, HTTP_TIMEOUT_S + FLUSH_WAIT_S, _ask_to_flush)
        except httpx.HTTPError as error:
            return f"the cache was not flushed: {type(error).__name__}"
        if answer.status_code == httpx.codes.OK:
            return None
        said = f"HTTP {answer.status_code} {answer.text[:80]!r}"
        context.keep_leases()
        context.clock.sleep(1.0)
    return f"the cache was not flushed: {said}"


def _ask_to_flush(http: httpx.Client) -> httpx.Response:
    return http.post("/flush_cache", params={"timeout": FLUSH_WAIT_S})
