"""evaluate: the goal's own command looks at what the service generates. Of what it prints, one figure is read.

It runs as a job on the client's host with the address of the service in its environment. It is no formal load: an
attempt that was cancelled is made again under another id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from executor.artifacts import keep_bytes
from executor.bench.client_run import ClientRun
from executor.remote_host import JobState, JobStatus, RemoteHost
from executor.service import front_door
from executor.stage_result import Done, Faulted, StageResult, Waiting
from executor.stages.client_job import end_earlier_attempts, run_client
from executor.stages.diagnosis import describe_dead, end_of_log, fault_of, states_of
from executor.stages.serving import service_of
from executor.trial_context import TrialContext
from executor.trial_plan import trial_directory
from experiments.goal import Quality
from experiments.ledger import QualityOutcome
from experiments.serving_config import Role
from experiments.trial import Reason, Stage

LOG = "evaluation.log"
BY_ITSELF = (None, "main_exit_leftover")
LOG_BYTES = 8 << 20  # of its end: a score stands there


def evaluate_intent(context: TrialContext) -> dict[str, Any]:
    """Under which id, and against which servers."""
    return {"job_id": f"{context.plan.trial_id}.evaluate.{context.attempt}", "servers": _servers(context)}


def _servers(context: TrialContext) -> list[str]:
    return sorted(server.job_id for server in service_of(context.payloads[Stage.LAUNCH]).servers)


def evaluate(context: TrialContext, intent: Mapping[str, Any]) -> StageResult:
    """Run the command, keep what it printed, and say passed, failed, or why there is no answer."""
    quality = context.plan.evaluation
    if quality is None:
        return Faulted(reason=Reason.UNRECOGNISED, detail="the plan names no evaluation")
    job_id, (name, host) = str(intent["job_id"]), context.host_of(Role.CLIENT)
    if list(intent["servers"]) != _servers(context):
        detail = "the servers ended while this was away; what was evaluated against them counts for nothing"
        return Faulted(reason=Reason.ENVIRONMENT, detail=detail, repairable=True)
    end_earlier_attempts(context, name, host, f"{context.plan.trial_id}.evaluate.")
    end = run_client(context, name, host, job_id, compile_evaluation(context, quality, name))
    if end.cancelled or end.timed_out:
        host.cancel(job_id, context.lease_on(name))
    if end.cancelled:
        return Waiting(why=end.detail)
    if end.state is None or end.state.is_live:
        return Faulted(reason=Reason.CLIENT, detail=f"the evaluation was not over in time: {end.detail}")
    dead = describe_dead(states_of(context, service_of(context.payloads[Stage.LAUNCH])))
    if dead or end.state.status is not JobStatus.EXITED or end.state.why not in BY_ITSELF:
        return _fault(context, end.state, job_id)
    return _judged(context, host, end.state, quality)


def compile_evaluation(context: TrialContext, quality: Quality, name: str) -> ClientRun:
    """The command as the goal has it. Nothing is put into it: what it needs to know stands in its environment."""
    _, address, port = front_door(context)
    folder = f"{trial_directory(context.plan, context.pool.workdir_of(name))}/evaluate-{context.attempt}"
    client = context.pool.client
    return ClientRun(
        argv=quality.command,
        env={
            "TUNELOOP_BASE_URL": f"http://{address}:{port}",
            "TUNELOOP_MODEL": client.model_path,
            "TUNELOOP_TOKENIZER": client.tokenizer_path or client.model_path,
            "TUNELOOP_RESULT_DIR": folder,
        },
        cwd=folder,
        files_to_upload={},
        raw_files=(),
    )


def _fault(context: TrialContext, state: JobState, job_id: str) -> Faulted:
    """A command that did not end by itself, or a service that did, is no word about the outputs."""
    service = service_of(context.payloads[Stage.LAUNCH])
    what = f"the evaluation ended as {state.status}{f' ({state.why})' if state.why else ''}"
    cancelled = state.why == "cancel"  # by an operator's stop, before this process took it over
    reason = Reason.CANCELLED if cancelled else Reason.CLIENT
    return fault_of(context, service, what, reason=reason, repairable=cancelled, client_job=job_id)


def _judged(context: TrialContext, host: RemoteHost, state: JobState, quality: Quality) -> Done:
    printed = end_of_log(host, state, LOG_BYTES)
    score = None if quality.score is None else last_figure(quality.score.pattern, printed.decode(errors="replace"))
    outcome, detail = judge(quality, state.exit_code, score)
    payload = {
        "outcome": outcome,
        "detail": detail,
        "score": score,
        "seconds": state.duration_s,
        "log": keep_bytes(context.artifacts, LOG, printed),
    }
    return Done(payload=payload, note=detail)


def judge(quality: Quality, exit_code: int | None, score: float | None) -> tuple[QualityOutcome, str]:
    """(outcome, why). Only what the goal says is an answer is one."""
    ended = f"the command ended with exit code {exit_code}"
    if quality.score is None:
        match exit_code:
            case 0:
                return "passed", ended
            case 1:
                return "failed", ended
            case _:
                return "not_evaluated", f"{ended}; 0 is passed and 1 is failed"
    if exit_code != 0:
        return "not_evaluated", ended
    if score is None:
        return "not_evaluated", "no figure fits the pattern of quality.score in what the command printed"
    passed = score >= quality.score.min
    return "passed" if passed else "failed", f"score {score:g}, the goal asks at least {quality.score.min:g}"


def last_figure(pattern: str, text: str) -> float | None:
    """The last match that is a finite number."""
    for found in reversed(re.findall(pattern, text)):
        try:
            figure = float(found)
        except ValueError:
            continue
        if abs(figure) < float("inf"):
            return figure
    return None
