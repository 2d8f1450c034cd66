"""Run one trial to its record: stages in order, the journal before and after each, release always.

There is one loop. Going on after a crash is the same loop entered later: finished stages are read from the journal,
the interrupted one is entered again with the intent that was committed for it, and each stage asks its host before it
acts. This is the only place that turns an exception into a recorded fault.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from executor.clock import Clock
from executor.pool import Pool
from executor.remote_host import HostRefused, RemoteHost
from executor.stage_result import Done, Faulted, StageResult, Unknown, Waiting
from executor.stages import load, preparation, results, serving
from executor.trial_context import Progress, Report, TrialContext
from executor.trial_plan import TrialPlan
from executor.trial_record import DONE, record_of
from experiments.errors import HostUnreachable, InputError, LeaseRefused, TuningError
from experiments.ledger import Finding
from experiments.ports import Gate, Journal, JournalRow
from experiments.trial import Reason, Sent, Stage, TrialRecord

log = structlog.get_logger(__name__)

ATTEMPTS = 2  # of a repairable stage
ORDER = (
    Stage.CHECK,
    Stage.RESERVE,
    Stage.PREPARE,
    Stage.LAUNCH,
    Stage.READY,
    Stage.CANARY,
    Stage.WARM_UP,
    Stage.CACHE,
    Stage.MEASURE,
    Stage.COLLECT,
    Stage.ANALYSE,
)
# Before these, pause, lease end and unknown state are honoured.
SENDING = frozenset({Stage.LAUNCH, Stage.CANARY, Stage.WARM_UP, Stage.CACHE, Stage.MEASURE})

StageFunction = Callable[[TrialContext, Mapping[str, Any]], StageResult]
STAGES: dict[Stage, StageFunction] = {
    Stage.CHECK: preparation.check,
    Stage.RESERVE: preparation.reserve,
    Stage.PREPARE: preparation.prepare,
    Stage.LAUNCH: serving.launch,
    Stage.READY: serving.ready,
    Stage.CANARY: serving.canary,
    Stage.WARM_UP: load.warm_up,
    Stage.CACHE: load.cache,
    Stage.MEASURE: load.measure,
    Stage.COLLECT: results.collect,
    Stage.ANALYSE: results.analyse,
    Stage.RELEASE: results.release,
}
INTENTS: dict[Stage, Callable[[TrialContext], dict[str, Any]]] = {
    Stage.LAUNCH: serving.launch_intent,
    Stage.MEASURE: load.measure_intent,
}


@dataclass(frozen=True, kw_only=True)
class Held:
    """The end of the formal load is unknown. Nothing new may be sent on this pool."""

    stage: Stage
    detail: str


TrialEnd = TrialRecord | Held | Waiting


class Runner:
    """Runs trials on one pool. Not shared between threads."""

    def __init__(
        self,
        *,
        pool: Pool,
        hosts: Mapping[str, RemoteHost],
        journal: Journal,
        clock: Clock,
        report: Report,
        artifacts: Path,
    ) -> None:
        self._pool, self._hosts, self._journal = pool, hosts, journal
        self._clock, self._report, self._artifacts = clock, report, artifacts

    def run(self, plan: TrialPlan, gate: Gate, finding: Finding | None = None) -> TrialEnd:
        """Run, or go on with, a trial. `finding` is what a person found out about an unknown end."""
        context = self._context(plan, gate)
        if finding is not None and self._open_measure(plan) is not None:
            _settle(context, self._open_measure(plan), finding)
        for stage in ORDER:
            end = self._stage(context, stage)
            if isinstance(end, Waiting | Held):
                return end
            if isinstance(end, Faulted):
                break
        self._attempt(context, Stage.RELEASE)
        return record_of(plan.trial_id, self._journal.rows(plan.trial_id))

    def _context(self, plan: TrialPlan, gate: Gate) -> TrialContext:
        return TrialContext(
            plan=plan,
            pool=self._pool,
            hosts=self._hosts,
            journal=self._journal,
            gate=gate,
            clock=self._clock,
            report=self._report,
            artifacts=self._artifacts / plan.trial_id,
        )

    def _open_measure(self, plan: TrialPlan) -> JournalRow | None:
        rows = self._journal.rows(plan.trial_id)
        return next((r for r in rows if r.stage is Stage.MEASURE and r.outcome is None), None)

    def _stage(self, context: TrialContext, stage: Stage) -> Done | Faulted | Waiting | Held:
        """One stage with its repairs. A repair never sends the formal load again: measure has one attempt."""
        rows = [r for r in self._journal.rows(context.plan.trial_id) if r.stage is stage]
        ended = [r for r in rows if r.outcome is not None]
        if ended and ended[-1].outcome == DONE and not _is_lost_lease(context, stage):
            context.payloads[stage] = ended[-1].payload
            return Done(payload=ended[-1].payload)
        if ended and ended[-1].outcome != DONE:
            fault = _faulted(ended[-1])
            if len(ended) >= ATTEMPTS or not fault.repairable:
                return fault
        while True:
            end = self._attempt(context, stage)
            attempts = context.attempt
            if isinstance(end, Faulted) and end.repairable and attempts < ATTEMPTS:
                context.say(f"{end.reason}: {end.detail}; repairing")
                continue
            return end

    def _attempt(self, context: TrialContext, stage: Stage) -> Done | Faulted | Waiting | Held:
        rows = [r for r in self._journal.rows(context.plan.trial_id) if r.stage is stage]
        interrupted = next((r for r in rows if r.outcome is None), None)
        context.stage = stage
        context.attempt = interrupted.attempt if interrupted is not None else len(rows) + 1
        # An interrupted measure may be on its way: it asks its host first and this gate after that.
        if stage in SENDING and not (interrupted is not None and stage is Stage.MEASURE):
            blocked = context.gate(self._pool.timeouts.of(stage))
            if blocked is not None:
                return Waiting(why=blocked.reason)
        context.say("again, after an interruption" if interrupted is not None else "")
        result = self._guarded(context, stage, interrupted)
        return self._recorded(context, stage, result)

    def _guarded(self, context: TrialContext, stage: Stage, interrupted: JournalRow | None) -> StageResult:
        """Every exception of a stage becomes a value here, after the measure stage never a low number."""
        try:
            intent = interrupted.payload if interrupted is not None else _intent(context, stage)
            self._journal.begin(context.plan.trial_id, stage, context.attempt, intent)
            result = STAGES[stage](context, intent)
        except HostUnreachable as error:
            if stage is Stage.MEASURE:
                return Unknown(detail=f"{error}; see whether its client still runs")
            return Faulted(reason=Reason.TRANSPORT, detail=str(error), sent=_sent_by(stage), repairable=True)
        except (HostRefused, LeaseRefused) as error:
            return Faulted(reason=Reason.ENVIRONMENT, detail=str(error), sent=_sent_by(stage))
        except (InputError, TuningError) as error:
            return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=str(error), sent=_sent_by(stage))
        except Exception as error:  # noqa: BLE001 - the one place: an unforeseen error is a recorded fault
            return self._unforeseen(context, stage, error)
        if isinstance(result, Done):
            return Done(payload={**intent, **result.payload, "note": result.note}, note=result.note)
        return result

    def _unforeseen(self, context: TrialContext, stage: Stage, error: Exception) -> StageResult:
        context.artifacts.mkdir(parents=True, exist_ok=True)
        kept = context.artifacts / f"{stage}.{context.attempt}.traceback.txt"
        kept.write_text("".join(traceback.format_exception(error)))
        log.error("stage.unforeseen", trial=context.plan.trial_id, stage=str(stage), error=type(error).__name__)
        detail = f"{type(error).__name__}: {error}; traceback in {kept.name}"
        if stage is Stage.MEASURE:
            return Unknown(detail=detail)
        reason = Reason.POST_PROCESSING if stage in (Stage.COLLECT, Stage.ANALYSE) else Reason.UNRECOGNISED
        return Faulted(reason=reason, detail=detail, sent=_sent_by(stage), repairable=stage is Stage.COLLECT)

    def _recorded(self, context: TrialContext, stage: Stage, result: StageResult) -> Done | Faulted | Waiting | Held:
        trial, attempt = context.plan.trial_id, context.attempt
        match result:
            case Done():
                payload = dict(result.payload)
                self._journal.end(trial, stage, attempt, DONE, payload)
                context.payloads[stage] = payload
                return result
            case Faulted():
                self._journal.end(trial, stage, attempt, str(result.reason), _fault_payload(result))
                return result
            case Waiting():
                return result  # the row stays open: nothing was sent under it
            case Unknown():
                return Held(stage=stage, detail=result.detail)


def _intent(context: TrialContext, stage: Stage) -> dict[str, Any]:
    decide = INTENTS.get(stage)
    return decide(context) if decide is not None else {}


def _is_lost_lease(context: TrialContext, stage: Stage) -> bool:
    """A lease lives in a process. After a restart it is taken again, which makes the old one stale."""
    return stage is Stage.RESERVE and not context.leases


def _sent_by(stage: Stage) -> Sent:
    return Sent.FINISHED if stage in (Stage.COLLECT, Stage.ANALYSE, Stage.RELEASE) else Sent.NOT_SENT


def _fault_payload(fault: Faulted) -> dict[str, object]:
    return {
        "detail": fault.detail,
        "sent": str(fault.sent),
        "repairable": fault.repairable,
        "configuration_caused": fault.configuration_caused,
    }


def _faulted(row: JournalRow) -> Faulted:
    return Faulted(
        reason=Reason(row.outcome or ""),
        detail=str(row.payload["detail"]),
        sent=Sent(str(row.payload["sent"])),
        repairable=bool(row.payload.get("repairable")),
        configuration_caused=bool(row.payload.get("configuration_caused")),
    )


def _settle(context: TrialContext, row: JournalRow | None, finding: Finding) -> None:
    """Close an unknown measure by what a person found out. `finished` goes on to the original data."""
    if row is None:
        return
    trial = context.plan.trial_id
    if finding is Finding.FINISHED:
        payload = {**row.payload, "exit_code": None, "note": "an operator found it finished"}
        context.journal.end(trial, row.stage, row.attempt, DONE, payload)
        return
    sent = Sent.NOT_SENT if finding is Finding.NEVER_RAN else Sent.UNKNOWN
    detail = f"an operator found: {finding.replace('_', ' ')}"
    payload = _fault_payload(Faulted(reason=Reason.UNKNOWN_END, detail=detail, sent=sent))
    context.journal.end(trial, row.stage, row.attempt, str(Reason.UNKNOWN_END), payload)


__all__ = ["Held", "Progress", "Runner", "TrialEnd", "Waiting"]
