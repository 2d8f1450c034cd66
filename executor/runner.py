"""Run one trial to its record: stages in order, the journal before and after each, release always.

There is one loop. Going on after a crash is the same loop entered later: what stands of an earlier process is read
from the journal (`executor.standing`), the interrupted stage is entered again with the intent that was committed for
it, and each stage asks its host before it acts. This is the only place that turns an exception into a recorded fault;
an error of the journal itself is none, it ends the process.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from executor.clock import Clock
from executor.failpoints import failpoint
from executor.job_wait import RETRY_S
from executor.layouts import named_layouts
from executor.pool import Pool
from executor.remote_host import HostRefused, JobStatus, RemoteHost
from executor.stage_result import Done, Faulted, Payload, StageResult, Unknown, Waiting
from executor.stages import (
    evaluation,
    formal_load,
    layout_fitting,
    layout_recording,
    load,
    preparation,
    profiling,
    results,
    serving,
)
from executor.standing import DONE, SERVING, Standing, fault_payload, standing_of
from executor.trial_context import Progress, Report, TrialContext
from executor.trial_plan import TrialPlan
from executor.trial_record import Evaluated, evaluated_of, record_of
from experiments.errors import HostError, HostUnreachable, InputError, StoreError
from experiments.ledger import Finding
from experiments.ports import Gate, Journal, JournalRow
from experiments.serving_config import Role
from experiments.trial import EVALUATION, Reason, Sent, Stage, TrialRecord

log = structlog.get_logger(__name__)


ORDER = (
    Stage.CHECK,
    Stage.RESERVE,
    Stage.PREPARE,
    Stage.RECORD,
    Stage.FIT,
    Stage.LAUNCH,
    Stage.READY,
    Stage.CANARY,
    Stage.WARM_UP,
    Stage.CACHE,
    Stage.MEASURE,
    Stage.COLLECT,
    Stage.ANALYSE,
    Stage.PROFILE,
)
EVALUATION_ORDER = tuple(stage for stage in EVALUATION if stage is not Stage.RELEASE)
# Before these, pause, lease end and unknown state are honoured.
SENDING = frozenset(
    {
        Stage.PREPARE,
        Stage.RECORD,
        Stage.LAUNCH,
        Stage.CANARY,
        Stage.WARM_UP,
        Stage.CACHE,
        Stage.MEASURE,
        Stage.EVALUATE,
    }
)

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

StageFunction = Callable[[TrialContext, Mapping[str, Any]], StageResult]
STAGES: dict[Stage, StageFunction] = {
    Stage.CHECK: preparation.check,
    Stage.RESERVE: preparation.reserve,
    Stage.PREPARE: preparation.prepare,
    Stage.RECORD: layout_recording.record,
    Stage.FIT: layout_fitting.fit,
    Stage.LAUNCH: serving.launch,
    Stage.READY: serving.ready,
    Stage.CANARY: serving.canary,
    Stage.WARM_UP: load.warm_up,
    Stage.CACHE: load.cache,
    Stage.MEASURE: formal_load.measure,
    Stage.COLLECT: results.collect,
    Stage.ANALYSE: results.analyse,
    Stage.PROFILE: profiling.profile,
    Stage.EVALUATE: evaluation.evaluate,
    Stage.RELEASE: results.release,
}
INTENTS: dict[Stage, Callable[[TrialContext], dict[str, Any]]] = {
    Stage.LAUNCH: serving.launch_intent,
    Stage.MEASURE: formal_load.measure_intent,
    Stage.EVALUATE: evaluation.evaluate_intent,
}


@dataclass(frozen=True, kw_only=True)
class Held:
    """The end of the formal load is unknown. Nothing new may be sent on this pool."""

    stage: Stage
    detail: str


TrialEnd = TrialRecord | Held | Waiting
StageEnd = Done | Faulted | Waiting | Held


def order_of(plan: TrialPlan) -> tuple[Stage, ...]:
    """The stages of this run up to its release."""
    return ORDER if plan.evaluation is None else EVALUATION_ORDER


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
        context.finding = finding
        end = self._run_and_release(context)
        return end or record_of(plan.trial_id, self._journal.rows(plan.trial_id))

    def evaluate(self, plan: TrialPlan, gate: Gate) -> Evaluated | Waiting:
        """Evaluate the outputs of a configuration, or go on with that. No formal load is sent."""
        end = self._run_and_release(self._context(plan, gate))
        return end if isinstance(end, Waiting) else evaluated_of(self._journal.rows(plan.trial_id))

    def _run_and_release(self, context: TrialContext) -> Waiting | Held | None:
        """Every stage that is left. Where it waits or is held, nothing is released yet."""
        if self._standing(context).ending is None:
            end = self._run_stages(context)
            if isinstance(end, Waiting | Held):
                return end
        self._attempt(context, Stage.RELEASE)
        return None

    def ask_again(self, plan: TrialPlan) -> str | None:
        """How the load of a held trial ended, if its host has that on record by now; None: a person has to look."""
        measure = self._standing_of(plan).open_row(Stage.MEASURE)
        if measure is None or not measure.payload:
            return None
        name = self._pool.client.on
        try:
            state = self._hosts[name].poll(str(measure.payload["job_id"]))
        except HostError:
            return None
        return f"host {name}: {formal_load.end_of(state)}" if state.status is JobStatus.EXITED else None

    def _context(self, plan: TrialPlan, gate: Gate) -> TrialContext:
        return TrialContext(
            plan=plan,
            pool=self._pool,
            hosts=self._hosts,
            gate=gate,
            clock=self._clock,
            report=self._report,
            artifacts=self._artifacts / plan.trial_id,
        )

    def _standing(self, context: TrialContext) -> Standing:
        return self._standing_of(context.plan)

    def _standing_of(self, plan: TrialPlan) -> Standing:
        return standing_of(self._journal.rows(plan.trial_id))

    def _run_stages(self, context: TrialContext) -> StageEnd:
        """Every stage that does not stand, up to the one that ends the trial."""
        standing = self._taken_over(context)
        end: StageEnd = Done()
        for stage in order_of(context.plan):
            if stage not in standing and _is_due(context, stage):
                end = self._stage(context, stage)
            if not isinstance(end, Done):
                break
        return end

    def _taken_over(self, context: TrialContext) -> frozenset[Stage]:
        """The stages of an earlier process that stand. Their payloads are read from the journal.

        Once the load may be on its way, all do. Before that, the lease is taken again, which makes the old one stale;
        the cache is prepared again, because nobody watched it; and servers that are gone are started again.
        """
        standing = self._standing(context)
        for stage in order_of(context.plan):
            payload = standing.payload(stage)
            if payload is not None:
                context.payloads[stage] = payload
        done = frozenset(context.payloads)
        if standing.load_began:
            return done
        kept = done - {Stage.RESERVE, Stage.CACHE}
        if Stage.LAUNCH in kept and not serving.is_up(context):
            kept -= set(SERVING)
        return kept

    def _stage(self, context: TrialContext, stage: Stage) -> StageEnd:
        """One stage with its repairs. No repair sends the formal load again: its job id is claimed once."""
        while True:
            end = self._attempt(context, stage)
            if not isinstance(end, Faulted) or self._standing(context).is_exhausted(stage):
                return end
            context.say(f"{end.reason}: {end.detail}; repairing")

    def _attempt(self, context: TrialContext, stage: Stage) -> StageEnd:
        standing = self._standing(context)
        interrupted = standing.open_row(stage)
        context.stage, context.attempt = stage, standing.next_attempt(stage)
        context.repairs = standing.last_repair_reason(stage)
        # An interrupted measure may be on its way: it asks its host first and this gate after that.
        if stage in SENDING and not (interrupted is not None and stage is Stage.MEASURE):
            # A recording asks for its time itself: where the layout stands, it takes none.
            blocked = context.gate(0.0 if stage is Stage.RECORD else self._pool.timeouts.of(stage))
            if blocked is not None:
                return Waiting(why=blocked.reason)
        context.say("again, after an interruption" if interrupted is not None else "")
        failpoint(f"{stage}.before_intent")
        intent = self._intent(context, stage, interrupted)
        self._begin(context, stage, intent if isinstance(intent, dict) else {})
        result = self._guarded(context, stage, intent) if isinstance(intent, dict) else intent
        failpoint(f"{stage}.before_outcome")
        end = self._recorded(context, stage, result)
        failpoint(f"{stage}.recorded")
        return end

    def _intent(self, context: TrialContext, stage: Stage, interrupted: JournalRow | None) -> dict[str, Any] | Faulted:
        """What is about to be done, decided before anything is touched; an interrupted stage keeps to its own."""
        decide = INTENTS.get(stage)
        if decide is None or (interrupted is not None and interrupted.payload):
            return dict(interrupted.payload) if interrupted is not None else {}
        try:
            return decide(context)
        except HostUnreachable as error:
            return Faulted(reason=Reason.TRANSPORT, detail=str(error), repairable=True)
        except HostError as error:
            return Faulted(reason=Reason.ENVIRONMENT, detail=str(error))

    def _begin(self, context: TrialContext, stage: Stage, intent: dict[str, Any]) -> None:
        """The intent is durable, and our right to drive the study was checked, before anything is touched."""
        trial = context.plan.trial_id
        self._journal.begin(trial, stage, context.attempt, intent)
        if stage is Stage.MEASURE and intent:
            self._journal.claim_formal_send(trial, str(intent["job_id"]), context.host_name(Role.CLIENT))
        failpoint(f"{stage}.begun")

    def _guarded(self, context: TrialContext, stage: Stage, intent: dict[str, Any]) -> StageResult:
        """Every exception of a stage becomes a value here; of the measure stage, never more than what is certain."""
        deadline = self._clock.monotonic() + context.timeout_s
        while True:
            try:
                result = STAGES[stage](context, intent)
            except HostUnreachable as error:
                if stage is not Stage.MEASURE and self._clock.monotonic() < deadline:
                    context.say(f"{error}; asking again")
                    self._clock.sleep(RETRY_S)
                    continue
                return _unreachable(context, stage, intent, error)
            except (HostError, InputError) as error:
                return _refused(context, stage, intent, error)
            except StoreError:
                raise  # as an error of the journal: the stage is entered again when the record can be written
            except Exception as error:  # noqa: BLE001 - the one place: an unforeseen error is a recorded fault
                return self._unforeseen(context, stage, intent, error)
            if isinstance(result, Done):
                return Done(payload={**intent, **result.payload, "note": result.note}, note=result.note)
            return result

    def _unforeseen(self, context: TrialContext, stage: Stage, intent: Payload, error: Exception) -> StageResult:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return Waiting(why=f"this machine's disk: {error.strerror}; make room, and the {stage} stage goes on")
        context.artifacts.mkdir(parents=True, exist_ok=True)
        kept = context.artifacts / f"{stage}.{context.attempt}.traceback.txt"
        kept.write_text("".join(traceback.format_exception(error)))
        log.error("stage.unforeseen", trial=context.plan.trial_id, stage=str(stage), error=type(error).__name__)
        detail = f"{type(error).__name__}: {error}; traceback in {kept.name}"
        if stage is Stage.MEASURE:
            return formal_load.after_error(context, intent, detail, Reason.UNRECOGNISED)
        reason = Reason.POST_PROCESSING if stage in (Stage.COLLECT, Stage.ANALYSE) else Reason.UNRECOGNISED
        return Faulted(reason=reason, detail=detail, sent=_sent_before(context), repairable=stage is Stage.COLLECT)

    def _recorded(self, context: TrialContext, stage: Stage, result: StageResult) -> StageEnd:
        trial, attempt = context.plan.trial_id, context.attempt
        match result:
            case Done():
                payload = dict(result.payload)
                self._journal.end(trial, stage, attempt, DONE, payload)
                context.payloads[stage] = payload
                return result
            case Faulted():
                self._journal.end(trial, stage, attempt, str(result.reason), fault_payload(result))
                return result
            case Waiting():
                return result  # the row stays open: it is entered again with its own intent
            case Unknown():
                return Held(stage=stage, detail=result.detail)


def _is_due(context: TrialContext, stage: Stage) -> bool:
    """Most trials have no optional stage."""
    match stage:
        case Stage.RECORD | Stage.FIT:
            return bool(named_layouts(context.pool, context.plan.config))
        case Stage.PROFILE:
            return profiling.is_wanted(context)
        case _:
            return True


def _unreachable(context: TrialContext, stage: Stage, intent: Payload, error: HostUnreachable) -> StageResult:
    """The host did not answer for as long as the stage may take."""
    if stage is Stage.MEASURE:
        return formal_load.after_error(context, intent, str(error), Reason.TRANSPORT)
    if stage is Stage.COLLECT:
        return Waiting(why=f"{error}. The load is over and its data is on the host; it is collected when that answers")
    return Faulted(reason=Reason.TRANSPORT, detail=str(error), sent=_sent_before(context), repairable=True)


def _refused(context: TrialContext, stage: Stage, intent: Payload, error: HostError | InputError) -> StageResult:
    """The host, or our own check of what would be sent, said no."""
    reason = Reason.CONTRACT_MISMATCH if isinstance(error, InputError) else Reason.ENVIRONMENT
    if stage is Stage.MEASURE:
        return formal_load.after_error(context, intent, str(error), reason)
    repairable = stage is Stage.COLLECT and isinstance(error, HostRefused)
    return Faulted(reason=reason, detail=str(error), sent=_sent_before(context), repairable=repairable)


def _sent_before(context: TrialContext) -> Sent:
    """Whether the load of this trial was over before the stage that failed now."""
    return Sent.FINISHED if Stage.MEASURE in context.payloads else Sent.NOT_SENT


__all__ = ["ORDER", "SENDING", "STAGES", "Held", "Progress", "Runner", "TrialEnd", "Waiting"]
