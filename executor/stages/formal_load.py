"""measure: the formal load is sent once, under one id, and never again. What is certain about it, and what is not.

The one home of the three answers: not sent (made true by a fence), sent and finished, and unknown, which stops all new
work on the pool. No error on the way, and no finding of a person, becomes more than the host confirms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from executor.bench.client_run import ClientRun
from executor.client_command import compile_client, dataset_path
from executor.job_wait import RETRY_S, WaitEnd, wait_for_job
from executor.remote_host import JobState, JobStatus, RemoteHost
from executor.stage_result import Done, Faulted, StageResult, Unknown, Waiting
from executor.stages.client_job import TTL_GRACE_S, launch_client
from executor.stages.diagnosis import describe_dead, fault_of, head_of_log, states_of
from executor.stages.live_sampling import LiveSampling
from executor.stages.serving import is_up, service_of
from executor.standing import fault_payload
from executor.trial_context import TrialContext
from executor.trial_plan import measure_job, trial_directory
from experiments.errors import HostError, HostUnreachable
from experiments.ledger import Finding
from experiments.serving_config import Role
from experiments.trial import Reason, Sent, Stage

WATCH_S = 5.0  # between two looks at the servers while the load runs
CLIENT_PATIENCE_S = 30.0  # that a client is given to notice the death of a server


def measure_intent(context: TrialContext) -> dict[str, Any]:
    """The one job id of the formal load, and how each server's log began and how far it went before it."""
    service = service_of(context.payloads[Stage.LAUNCH])
    states = states_of(context, service)
    return {
        "job_id": measure_job(context.plan),
        "log_offsets": {str(server.role): state.log_size for server, state in states.items()},
        "log_heads": {str(server.role): head_of_log(context.hosts[server.host], server.job_id) for server in states},
    }


def measure(context: TrialContext, intent: Mapping[str, Any]) -> StageResult:
    """Send the formal load unless it was ever sent, then wait for its end. Only the host can say that it never ran."""
    name, host = context.host_of(Role.CLIENT)
    load = _FormalLoad(name=name, host=host, job_id=str(intent["job_id"]), run=_formal_client(context, name))
    if context.finding is not None:
        return _settle(context, load, context.finding)
    watched = _send_once(context, load)
    if not isinstance(watched, bool):
        return watched
    servers = _ServerWatch(context)

    def is_over(state: JobState) -> bool:
        return not state.is_live or servers.have_died()

    with LiveSampling(context, service_of(context.payloads[Stage.LAUNCH])):
        end = wait_for_job(context, host, load.job_id, context.timeout_s + TTL_GRACE_S, until=is_over)
    if end.state is not None and end.state.is_live and not end.cancelled and servers.have_died():
        return _cut_short(context, load)
    return _judge_end(context, load, end, watched=watched)


class _ServerWatch:
    """Whether a server of the trial is gone for good while its load runs.

    A client waits for a dead decode server as long as its own time-outs say, which is minutes to hours. It is given
    some patience to end by itself, because then its records say what became of each request.
    """

    def __init__(self, context: TrialContext) -> None:
        self._context = context
        self._looked = self._gone_since = -math.inf

    def have_died(self) -> bool:
        now = self._context.clock.monotonic()
        if now - self._looked >= WATCH_S:
            self._looked = now
            if is_up(self._context):
                self._gone_since = -math.inf
            elif self._gone_since == -math.inf:
                self._gone_since = now
                self._context.say("a server has died under the load")
        return self._gone_since != -math.inf and now - self._gone_since >= CLIENT_PATIENCE_S


@dataclass(frozen=True, kw_only=True)
class _FormalLoad:
    """The one job of a trial that is sent once."""

    name: str  # of the host
    host: RemoteHost
    job_id: str
    run: ClientRun

    @property
    def place(self) -> str:
        return f"job {self.job_id} on host {self.name}"


def _formal_client(context: TrialContext, name: str) -> ClientRun:
    return compile_client(
        context,
        experiment_id=context.plan.trial_id,
        result_dir=f"{trial_directory(context.plan, context.pool.workdir_of(name))}/measure",
        requests=context.plan.load.requests,
        concurrency=context.plan.load.concurrency,
        dataset=dataset_path(context, "measure"),
    )


def _send_once(context: TrialContext, load: _FormalLoad) -> bool | Waiting | Faulted | Unknown:
    """Ask until the host says that it has the job; True if the load was seen to run, False if it was over before.

    A host that is away costs patience, and a repeated question nothing: the id is claimed once.
    """
    deadline = context.clock.monotonic() + context.timeout_s
    while True:
        try:
            return _ask_and_send(context, load)
        except HostUnreachable as error:
            if context.clock.monotonic() >= deadline:
                raise
            context.say(f"{error}; asking again")
            context.clock.sleep(RETRY_S)


def _ask_and_send(context: TrialContext, load: _FormalLoad) -> bool | Waiting | Faulted | Unknown:
    state = load.host.poll(load.job_id)
    if state.status is not JobStatus.ABSENT:
        return state.is_live
    if _is_another_directory(context, load):
        return Unknown(detail=f"the job directory on host {load.name} was replaced; {load.place} may have run before")
    blocked = context.gate(context.timeout_s)
    if blocked is not None:
        return Waiting(why=blocked.reason)
    dead = _dead_before(context, load)
    if dead is not None:
        return dead
    launch_client(context, load.name, load.host, load.job_id, load.run)
    return True


def _is_another_directory(context: TrialContext, load: _FormalLoad) -> bool:
    """Whether the host keeps its jobs in another directory than when the trial began: then "absent" proves nothing."""
    known = context.payloads[Stage.CHECK]["hosts"][load.name]["root_id"]
    return bool(load.host.facts().root_id != known)


def _dead_before(context: TrialContext, load: _FormalLoad) -> Faulted | None:
    """No load is sent to servers that are gone. That it was not sent is made true before it is said."""
    service = service_of(context.payloads[Stage.LAUNCH])
    if not describe_dead(states_of(context, service)):
        return None
    load.host.fence(load.job_id, context.lease_on(load.name))
    return fault_of(context, service, "a server was gone before the load was sent", reason=Reason.ENVIRONMENT)


def _judge_end(context: TrialContext, load: _FormalLoad, end: WaitEnd, *, watched: bool) -> StageResult:
    if end.cancelled:
        return _cancel(context, load, end)
    state = end.state
    if state is None:
        return Unknown(detail=f"host {load.name} does not answer ({end.detail}); see whether {load.place} still runs")
    match state.status:
        case JobStatus.EXITED:
            return _finished(context, state, load.run, watched=watched)
        case JobStatus.LOST_REBOOT:
            detail = f"host {load.name} rebooted while the load ran"
            return Faulted(reason=Reason.ENVIRONMENT, detail=detail, sent=Sent.UNKNOWN)
        case JobStatus.ABSENT | JobStatus.FENCED | JobStatus.CLAIMED_DEAD:
            return after_error(context, {"job_id": load.job_id}, "the client never started", Reason.CLIENT)
        case JobStatus.RUNNING | JobStatus.LAUNCHING | JobStatus.UNSUPERVISED:
            return Unknown(detail=f"{load.place} still runs after {context.timeout_s:.0f} s")
        case _:
            return Unknown(detail=f"{load.place} is {state.status}: {state.why or 'its end is unknown'}")


def _finished(context: TrialContext, state: JobState, run: ClientRun, *, watched: bool) -> StageResult:
    """The client's process ended. Whether its load was the promised one is judged from its data, later.

    A server that is gone now died in the load if we watched it; otherwise it may have died long after, and then the
    data decides.
    """
    died = _server_death(context, state.job_id)
    if died is not None and watched:
        return died
    payload = {
        "exit_code": state.exit_code,
        "signal": state.signal,
        "end": end_of(state),
        "why": state.why,
        "duration_s": state.duration_s,
        "cwd": run.cwd,
        "raw_files": list(run.raw_files),
        "stdout": run.stdout,
        "server_death": None if died is None else fault_payload(died),
    }
    return Done(payload=payload, note=f"the client ended: {end_of(state)}")


def _cut_short(context: TrialContext, load: _FormalLoad) -> Faulted | Unknown:
    """End a client that waits for a dead server. Some of its requests were sent; what became of them is not known."""
    state = load.host.cancel(load.job_id, context.lease_on(load.name))
    service = service_of(context.payloads[Stage.LAUNCH])
    what = "a server died under the load, and its client was ended"
    if state.is_live:
        return Unknown(detail=f"{what}, but {load.place} would not end")
    return fault_of(context, service, what, reason=Reason.ENVIRONMENT, sent=Sent.UNKNOWN, client_job=load.job_id)


def end_of(state: JobState) -> str:
    """How the client's process ended, in the words of its host."""
    why = f" ({state.why})" if state.why else ""
    if state.status is not JobStatus.EXITED:
        return f"no record of its end{why}"
    return f"signal {state.signal}{why}" if state.signal is not None else f"exit {state.exit_code}{why}"


def _server_death(context: TrialContext, client_job: str) -> Faulted | None:
    """Which server is gone, and why. A host that cannot be asked now does not make the load's end unknown."""
    service = service_of(context.payloads[Stage.LAUNCH])
    try:
        if not describe_dead(states_of(context, service)):
            return None
        what = "the load ended after a server did"
        return fault_of(context, service, what, reason=Reason.ENVIRONMENT, sent=Sent.FINISHED, client_job=client_job)
    except HostUnreachable as error:
        context.say(f"{error}; whether its server lives is not known")
        return None


def _cancel(context: TrialContext, load: _FormalLoad, end: WaitEnd) -> StageResult:
    """The operator said stop: end the load, and say what is certain about it."""
    state = load.host.cancel(load.job_id, context.lease_on(load.name))
    if state.is_live:
        return Unknown(detail=f"{end.detail}: {load.place} would not end")
    sent = Sent.NOT_SENT if state.status is JobStatus.FENCED else Sent.UNKNOWN
    return Faulted(reason=Reason.CANCELLED, detail=f"cancelled: {end.detail}", sent=sent)


def after_error(context: TrialContext, intent: Mapping[str, Any], detail: str, reason: Reason) -> Faulted | Unknown:
    """What is certain about the formal load after an error on the way: only a fence makes "not sent" true."""
    name, host = context.host_of(Role.CLIENT)
    job_id = str(intent["job_id"])
    try:
        state = host.fence(job_id, context.lease_on(name))
    except HostError as error:
        return Unknown(detail=f"{detail}; then {error}; see whether job {job_id} still runs on host {name}")
    if state.status is JobStatus.FENCED:
        return Faulted(reason=reason, detail=detail, sent=Sent.NOT_SENT)
    return Unknown(detail=f"{detail}; job {job_id} on host {name} is {state.status}")


def _settle(context: TrialContext, load: _FormalLoad, finding: Finding) -> StageResult:
    """Close an unknown end by what a person found out, unless the host knows otherwise.

    What still runs is ended first: it was said to be over, and nothing may be started beside it.
    """
    act = load.host.fence if finding is Finding.NEVER_RAN else load.host.cancel
    try:
        state = act(load.job_id, context.lease_on(load.name))
    except HostUnreachable as error:
        return Waiting(why=f"{error}; what was found out about {load.place} is kept until it answers")
    said = finding.replace("_", " ")
    if state.is_live:
        return Unknown(detail=f"said to be {said}, but {load.place} is {state.status}")
    if state.status is JobStatus.FENCED:
        return _settled_unsent(load, finding)
    if finding is Finding.NEVER_RAN and state.status is JobStatus.EXITED:
        return Unknown(detail=f"said to have never run, but {load.place} ended with {end_of(state)}")
    if finding is Finding.FINISHED or (state.status is JobStatus.EXITED and state.why != "cancel"):
        return _finished(context, state, load.run, watched=False)
    sent = Sent.NOT_SENT if finding is Finding.NEVER_RAN else Sent.UNKNOWN
    return Faulted(reason=Reason.UNKNOWN_END, detail=f"an operator found: {said}", sent=sent)


def _settled_unsent(load: _FormalLoad, finding: Finding) -> Faulted | Unknown:
    if finding is Finding.FINISHED:
        return Unknown(detail=f"said to be finished, but {load.place} never ran")
    detail = f"an operator found: {finding.replace('_', ' ')}; its host confirms that it never ran"
    return Faulted(reason=Reason.UNKNOWN_END, detail=detail, sent=Sent.NOT_SENT)
