"""Why something failed while the servers were up: the cause from all of their logs together, and who died.

The root cause is often in another file than the last error, so all servers, the router and the client are read.
"""

from __future__ import annotations

import hashlib

from executor.engines.failure import Cause, IncidentFile, classify_failure
from executor.engines.failure_kinds import Source
from executor.remote_host import HostRefused, JobState, RemoteHost
from executor.service import Placed, ServiceIntent
from executor.stage_result import Faulted
from executor.trial_context import TrialContext
from experiments.serving_config import Role
from experiments.trial import Reason, Sent

TAIL_BYTES = 4 << 20
HEAD_BYTES = 256


def states_of(context: TrialContext, service: ServiceIntent) -> dict[Placed, JobState]:
    """What each server's host says about it now."""
    return {server: context.hosts[server.host].poll(server.job_id) for server in service.servers}


def head_of_log(host: RemoteHost, job_id: str) -> str:
    """Of the first bytes: it changes only if the log was rotated or truncated."""
    return hashlib.sha256(host.read_log(job_id, 0, HEAD_BYTES).data).hexdigest()[:16]


def describe_dead(states: dict[Placed, JobState]) -> str:
    """The servers that no longer run; empty when all live."""
    dead = [f"{s.role} ({state.status}, {_end(state)})" for s, state in states.items() if not state.is_live]
    return ", ".join(dead)


def _end(state: JobState) -> str:
    return f"signal {state.signal}" if state.signal is not None else f"exit {state.exit_code}"


def find_cause(context: TrialContext, states: dict[Placed, JobState], client_job: str | None = None) -> Cause:
    """The one cause over the logs of every server and, where there is one, of the client."""
    files = [
        IncidentFile(name=f"{server.role}.log", source=_source(server), lines=_tail(context, server.host, state))
        for server, state in states.items()
    ]
    if client_job is not None:
        name = context.host_name(Role.CLIENT)
        state = context.hosts[name].poll(client_job)
        files.append(IncidentFile(name="client.log", source=Source.CLIENT, lines=_tail(context, name, state)))
    signals = {f"{s.role}.log": state.signal for s, state in states.items() if state.signal is not None}
    return classify_failure(files, signals)


def _source(server: Placed) -> Source:
    return Source.ROUTER if server.role is Role.ROUTER else Source.SERVER


def _tail(context: TrialContext, name: str, state: JobState) -> list[str]:
    return end_of_log(context.hosts[name], state, TAIL_BYTES).decode(errors="replace").splitlines()


def end_of_log(host: RemoteHost, state: JobState, most: int) -> bytes:
    """The last bytes that a job wrote; none where it never wrote a log."""
    try:
        return host.read_log(state.job_id, max(0, state.log_size - most), most).data
    except HostRefused:
        return b""


def fault_of(
    context: TrialContext,
    service: ServiceIntent,
    what: str,
    *,
    reason: Reason,
    sent: Sent = Sent.NOT_SENT,
    repairable: bool = False,
    client_job: str | None = None,
) -> Faulted:
    """A fault with its cause. A server that the configuration killed makes it the configuration's own doing."""
    states = states_of(context, service)
    dead = describe_dead(states)
    cause = find_cause(context, states, client_job)
    detail = f"{what}; {dead + ' ended' if dead else 'all servers live'}; cause: {cause.kind}"
    if cause.evidence:
        detail += f" ({cause.file}: {cause.evidence})"
    return Faulted(
        reason=reason,
        detail=detail,
        sent=sent,
        repairable=repairable and not dead,
        configuration_caused=bool(dead) and cause.configuration_caused,
    )
