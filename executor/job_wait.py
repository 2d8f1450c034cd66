"""Wait for a remote job: ask again and again, never act. A lost connection costs patience, not the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from executor.remote_host import HostRefused, JobState, RemoteHost
from executor.trial_context import TrialContext, last_count
from experiments.errors import HostUnreachable

POLL_WAIT_S = 0.5
TAIL_BYTES = 4096
RETRY_S = 0.5  # between two questions to a host that does not answer


@dataclass(frozen=True, kw_only=True)
class WaitEnd:
    """Why the waiting ended. `state` None: the host did not answer up to the deadline."""

    state: JobState | None
    cancelled: bool = False
    detail: str = ""

    @property
    def timed_out(self) -> bool:
        return self.state is None or self.state.is_live


def wait_for_job(
    context: TrialContext,
    host: RemoteHost,
    job_id: str,
    limit_s: float,
    *,
    until: Callable[[JobState], bool] = lambda state: not state.is_live,
) -> WaitEnd:
    """Ask until `until` holds, the operator says stop, or `limit_s` has passed. Renews the leases meanwhile."""
    deadline = context.clock.monotonic() + limit_s
    state: JobState | None = None
    detail = ""
    while True:
        try:
            state = host.poll(job_id, wait_s=POLL_WAIT_S)
            if until(state):
                return WaitEnd(state=state)
            context.keep_leases()
            _show_progress(context, host, state)
        except HostUnreachable as error:
            state, detail = None, str(error)
            context.say(f"no answer from the host: {error}")
        blocked = context.gate(0.0)
        if blocked is not None and blocked.cancel:
            return WaitEnd(state=state, cancelled=True, detail=blocked.reason)
        if context.clock.monotonic() >= deadline:
            return WaitEnd(state=state, detail=detail or f"not over after {limit_s:.0f} s")


def _show_progress(context: TrialContext, host: RemoteHost, state: JobState) -> None:
    try:
        chunk = host.read_log(state.job_id, max(0, state.log_size - TAIL_BYTES), TAIL_BYTES)
    except HostRefused:
        return  # the job has no log yet
    count = last_count(chunk.data)
    elapsed = f"{state.duration_s:.0f} s" if state.duration_s is not None else "starting"
    if count is not None:
        context.say(f"{elapsed}, {count[0]}/{count[1]} requests", done=count[0], total=count[1])
    else:
        context.say(elapsed)
