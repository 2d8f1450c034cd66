"""profile: a few steps of every server under a small load, after the trial's numbers are safe. Conclusions only.

Optional, never formal, and never a fault: whatever goes wrong here is not observed. The traces are summarised on their
hosts and removed there.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import httpx

from executor.client_command import compile_client, dataset_path
from executor.engines.profile import PROGRAM, parse_profile
from executor.pool import Profile
from executor.service import Placed
from executor.stage_result import Done, StageResult
from executor.stages.asking import ask
from executor.stages.client_job import run_client
from executor.stages.load import flush
from executor.stages.on_host import free_job, run_on_host
from executor.stages.serving import is_up, service_of
from executor.trial_context import TrialContext
from executor.trial_plan import trial_directory
from experiments.errors import HostError
from experiments.profile import ServerProfile
from experiments.serving_config import Role, digest
from experiments.trial import NOT_OBSERVED, Stage

ASK_S = 30.0
TRACE_WAIT_S = 60.0  # a server writes its trace after it stopped


def is_wanted(context: TrialContext) -> bool:
    """Where the pool asks for profiles of trials of this tier: by default, of a challenger that was promising."""
    wanted = context.pool.profile
    return wanted is not None and context.plan.tier in wanted.tiers


def profile(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """One server after the other: two profilers at once would show each other."""
    wanted = context.pool.profile
    assert wanted is not None  # noqa: S101 - the stage is entered only where the pool asks for it
    blocked = context.gate(context.timeout_s)
    if blocked is not None:  # the trial has its numbers and does not wait for more
        return Done(note=f"{NOT_OBSERVED}: {blocked.reason}")
    try:
        found, notes = _profiles(context, wanted)
    except (HostError, httpx.HTTPError) as error:
        found, notes = [], [f"{NOT_OBSERVED}: {type(error).__name__}"]
    payload = {"profiles": [conclusion.model_dump(mode="json") for conclusion in found]}
    return Done(payload=payload, note="; ".join(notes))


def _profiles(context: TrialContext, wanted: Profile) -> tuple[list[ServerProfile], list[str]]:
    mark = _mark(context)
    if context.hosts[context.host_name(Role.CLIENT)].file_digest(mark) is not None:
        return [], ["these servers were profiled in an earlier trial"]
    if not is_up(context):
        return [], [f"{NOT_OBSERVED}: a server is gone"]
    found, notes = [], []
    for server in service_of(context.payloads[Stage.LAUNCH]).servers:
        if server.role is Role.ROUTER:
            continue
        seen = _profile_of(context, server, wanted)
        notes.append(str(seen) if isinstance(seen, ServerProfile) else f"{server.role} {NOT_OBSERVED}: {seen}")
        found += [seen] if isinstance(seen, ServerProfile) else []
    _set_mark(context, mark)
    return found, notes


def _profile_of(context: TrialContext, server: Placed, wanted: Profile) -> ServerProfile | str:
    """The conclusions about one server, or why there are none."""
    folder = f"{trial_directory(context.plan, context.pool.workdir_of(server.host))}/profile-{server.role}"
    host = context.hosts[server.host]
    host.make_directory(folder)
    refused = flush(context, server)
    if refused is not None:
        return refused
    body = {
        "output_dir": folder,
        "num_steps": wanted.steps,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }
    started = ask(context, host, server.port, ASK_S, lambda http: http.post("/start_profile", json=body))
    if started.status_code != httpx.codes.OK:
        return f"HTTP {started.status_code} from /start_profile"
    _send_load(context, server.role, wanted)
    # It stops by itself after its steps, and then says so with an error.
    ask(context, host, server.port, ASK_S, lambda http: http.post("/stop_profile"))
    words = (folder, "--wait", f"{TRACE_WAIT_S:g}", "--remove")
    python = context.pool.engine_python_of(server.host)
    _, output = run_on_host(
        context, server.host, f"summarise-{server.role}", python=python, program=PROGRAM, words=words
    )
    return parse_profile(output, server.role, wanted.steps)


def _send_load(context: TrialContext, role: Role, wanted: Profile) -> None:
    """A few requests of the measured data. Not formal: how they end is nobody's concern."""
    name, host = context.host_of(Role.CLIENT)
    job_id = free_job(context, name, f"profile-{role}")
    run = compile_client(
        context,
        experiment_id=job_id,
        result_dir=f"{trial_directory(context.plan, context.pool.workdir_of(name))}/{job_id.partition('.')[2]}",
        requests=min(wanted.requests, context.plan.load.requests),
        concurrency=min(wanted.requests, context.plan.load.concurrency),
        dataset=dataset_path(context, "measure"),
    )
    end = run_client(context, name, host, job_id, run)
    if end.timed_out or end.cancelled:
        host.cancel(job_id, context.lease_on(name))


def _mark(context: TrialContext) -> str:
    """A file that says that exactly these processes were profiled."""
    servers = service_of(context.payloads[Stage.LAUNCH]).servers
    key = digest(sorted(server.job_id for server in servers))[:16]
    return f"{context.pool.workdir_of(context.host_name(Role.CLIENT))}/profiled/{key}"


def _set_mark(context: TrialContext, mark: str) -> None:
    host = context.hosts[context.host_name(Role.CLIENT)]
    host.make_directory(posixpath.dirname(mark))
    host.put_file(mark, context.plan.trial_id.encode())
