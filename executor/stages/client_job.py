"""A bench client as a job on its host: launched under one id, waited for, and ended before another takes its place."""

from __future__ import annotations

import posixpath

from executor.bench.client_run import ClientRun
from executor.failpoints import failpoint
from executor.job_wait import WaitEnd, wait_for_job
from executor.remote_host import JobSpec, JobState, JobStatus, RemoteHost
from executor.trial_context import TrialContext

TTL_GRACE_S = 30.0  # we wait so much longer than the host lets it run, so that the host's own record decides


def run_client(context: TrialContext, name: str, host: RemoteHost, job_id: str, run: ClientRun) -> WaitEnd:
    """Launch a client job unless its id was claimed before, and wait for its end."""
    if host.poll(job_id).status is JobStatus.ABSENT:
        launch_client(context, name, host, job_id, run)
    return wait_for_job(context, host, job_id, context.timeout_s + TTL_GRACE_S)


def launch_client(context: TrialContext, name: str, host: RemoteHost, job_id: str, run: ClientRun) -> JobState:
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
    lease = context.lease_on(name)
    failpoint(f"{context.stage}.before_send")
    state = host.launch(spec, lease)
    failpoint(f"{context.stage}.after_send")
    return state


def end_earlier_attempts(context: TrialContext, name: str, host: RemoteHost, job_name: str) -> None:
    """End what earlier attempts of this stage left running: nothing may run beside the next one.

    `job_name` is the id up to the attempt's number. One that was never launched never will be.
    """
    for attempt in range(1, context.attempt):
        state = host.poll(f"{job_name}{attempt}")
        if state.is_live or state.status is JobStatus.ABSENT:
            host.cancel(f"{job_name}{attempt}", context.lease_on(name))
