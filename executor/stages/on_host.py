"""Run one of our small programs on a host as a job, and read what it says. The program is sent under its own digest."""

from __future__ import annotations

import itertools
import posixpath
from importlib.resources import files

from executor.job_wait import WaitEnd, wait_for_job
from executor.remote_host import HostRefused, JobSpec, JobStatus
from executor.trial_context import TrialContext
from experiments.serving_config import digest

ANSWER_CAP_BYTES = 1 << 20


def run_on_host(
    context: TrialContext, name: str, what: str, *, python: str, program: str, words: tuple[str, ...]
) -> tuple[WaitEnd, str]:
    """How the job `<trial>.<what>.<n>` ended, and its output. An id is never used twice: n counts."""
    host = context.hosts[name]
    source = files("executor.engines.on_host").joinpath(program).read_bytes()
    workdir = context.pool.workdir_of(name)
    path = f"{workdir}/programs/{digest(source.decode())[:12]}/{program}"
    host.make_directory(posixpath.dirname(path))
    host.put_file(path, source)
    job_id = free_job(context, name, what)
    spec = JobSpec(
        job_id=job_id,
        argv=(python, path, *words),
        env=context.pool.hosts[name].env,
        cwd=workdir,
        ttl_s=context.timeout_s,
    )
    host.launch(spec, context.lease_on(name))
    end = wait_for_job(context, host, job_id, context.timeout_s)
    try:
        return end, host.read_log(job_id, 0, ANSWER_CAP_BYTES).data.decode(errors="replace")
    except HostRefused:
        return end, ""


def free_job(context: TrialContext, name: str, what: str) -> str:
    """The next id of this kind that was never claimed on the host; what ran under an earlier one is ended."""
    host = context.hosts[name]
    for number in itertools.count(1):
        job_id = f"{context.plan.trial_id}.{what}.{number}"
        state = host.poll(job_id)
        if state.status is JobStatus.ABSENT:
            return job_id
        if state.is_live:
            host.cancel(job_id, context.lease_on(name))
    raise AssertionError("counting has no end")
