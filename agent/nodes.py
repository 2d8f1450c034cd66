"""The nodes of the study graph. Each is a read, a pure decision and one guarded append; `execute` runs the trial.

A node may be entered again at any time, or twice at once: the ledger refuses the second append, and a trial that was
started is found again under its id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from agent.authority import Authority, allowed_costs
from agent.durations import evaluation_s, expected_s
from agent.planner.chain import Objections, choose_card
from agent.planner.evidence import assemble_packet
from agent.planner.port import Proposer
from agent.study_store import StudyStore
from executor.clock import Clock
from executor.pool import Pool
from executor.runner import Held, TrialEnd, Waiting
from executor.trial_plan import TrialPlan
from executor.trial_record import Evaluated
from experiments.agenda import Close, Continue, Evaluate, Hold, Measure, Propose, Step, Stop, may_ask_model, next_step
from experiments.card import Card
from experiments.goal import Quality
from experiments.knob import Cost
from experiments.ledger import (
    ApprovalUsed,
    Finding,
    LedgerEntry,
    QualityEvaluated,
    StopReason,
    StudyStopped,
    TrialFinished,
    TrialHeld,
    TrialResolved,
    TrialStarted,
)
from experiments.ports import Gate
from experiments.serving_config import ServingConfig
from experiments.study import Study, TrialState
from experiments.tier_load import load_of
from experiments.trial import Tier
from experiments.validity import usual_retokenized_ratio
from experiments.verdict import entries_of_phase

log = structlog.get_logger(__name__)

Tell = Callable[[str], None]


class TrialRunner(Protocol):
    """Runs one trial to its end. Called again with the same plan it goes on; nothing is sent twice."""

    def run(self, plan: TrialPlan, gate: Gate, finding: Finding | None = None) -> TrialEnd: ...

    def evaluate(self, plan: TrialPlan, gate: Gate) -> Evaluated | Waiting: ...


@dataclass(kw_only=True)
class Nodes:
    """What the nodes share. `step` is what survey found, for the edge that follows it and for nothing else."""

    store: StudyStore
    pool: Pool
    runner: TrialRunner
    authority: Authority
    clock: Clock
    suggesters: Sequence[Proposer]
    planner: Proposer | None
    objections: Callable[[Study], Objections]
    tell: Tell
    ask_again: Callable[[TrialPlan], str | None] = lambda _: None  # whether a held load's host knows its end by now
    closed: Callable[[Study], None]  # after a card was closed or the study stopped: refresh what people read

    def survey(self) -> Step:
        """What is next, from the ledger alone."""
        return next_step(self.store.read(), self.clock.now())

    def propose(self) -> str | None:
        """One admitted card, or the end of the study where no candidate is left. None: it was decided; else why not."""
        study, now = self.store.read(), self.clock.now()
        refusal = self.authority.proposal_refusal(study)
        if refusal is not None:
            return refusal
        control = self.authority.read().state
        packet = assemble_packet(study, now, allowed_costs=allowed_costs(control))
        choice = choose_card(
            study,
            packet,
            suggesters=self.suggesters,
            planner=self.planner if may_ask_model(study) else None,
            objections=self.objections(study),
            at=now,
        )
        entries = list(choice.entries)
        if choice.card is None:
            detail = "no proposer has a candidate that may run: " + "; ".join(choice.notes)
            entries.append(StudyStopped(at=now, reason=StopReason.NO_CANDIDATE, detail=detail))
        else:
            draft = choice.card.draft
            self.tell(f"card {choice.card.name} by {draft.source}: {draft.change}. {draft.mechanism}")
        self.store.append(entries)
        return None

    def start(self) -> str | None:
        """Mint and record the trial before anything of it is sent. None: it may not start now, and why was told."""
        study, now = self.store.read(), self.clock.now()
        step = next_step(study, now)
        if not isinstance(step, Measure):
            return None
        refusal = self.authority.refusal(study, step, expected_s(study, self.pool, requests=step.load.requests))
        if refusal is not None:
            return refusal
        entries: list[LedgerEntry] = self._used_approval(study, step)
        entries.append(
            TrialStarted(
                at=now,
                trial_id=f"{study.study_id}-t{len(study.trials) + 1:03d}",
                tier=step.tier,
                card_digest=None if step.card is None else step.card.digest,
                config=step.config,
                load=step.load,
                why=step.why,
            )
        )
        self.store.append(entries)
        return None

    def _used_approval(self, study: Study, step: Measure) -> list[LedgerEntry]:
        """An approval is spent when its card starts, so that it opens nothing else."""
        card, control = step.card, self.authority.read().state
        if card is None or card.digest in study.approvals_used:
            return []
        if card.cost in control.allow and card.cost is not Cost.REBUILD:
            return []
        return [ApprovalUsed(at=self.clock.now(), card_digest=card.digest, by=control.by)]

    def execute(self) -> str | None:
        """Run or go on with the open trial, and append its end. Returns why it waits, if it does."""
        study = self.store.read()
        trial = study.open_trial
        if trial is None:
            return None
        taken = self.authority.turn()
        if taken is not None:
            return taken
        self.tell(f"trial {trial.started.trial_id}: {trial.started.why}")
        card = study.cards.get(trial.started.card_digest or "")
        requests = trial.started.load.requests
        gate = self.authority.gate(
            study, card, trial.started.config, lambda: expected_s(study, self.pool, requests=requests)
        )
        finding = None if trial.resolved is None else trial.resolved.finding
        end = self.runner.run(plan_of(study, trial), gate, finding)
        now = self.clock.now()
        match end:
            case Waiting():
                return end.why
            case Held():
                self.store.append(
                    [TrialHeld(at=now, trial_id=trial.started.trial_id, stage=end.stage, detail=end.detail)]
                )
                return end.detail
            case _:
                self.store.append([TrialFinished(at=now, record=end)])
                return None

    def evaluate(self) -> str | None:
        """Have the outputs of a confirmed configuration evaluated, and append the answer. Else: why it waits."""
        study = self.store.read()
        step = next_step(study, self.clock.now())
        if not isinstance(step, Evaluate):
            return None
        expected = evaluation_s(study, self.pool)
        refusal = self.authority.refusal(study, step, expected)
        if refusal is not None:
            return refusal
        plan = evaluation_plan(study, step.config, step.quality)
        self.tell(f"evaluation {plan.trial_id}: the outputs of {step.card.name}")
        end = self.runner.evaluate(plan, self.authority.gate(study, None, step.config, lambda: expected))
        if isinstance(end, Waiting):
            return end.why
        self.tell(f"evaluation {plan.trial_id}: {end.outcome}: {end.detail}")
        self.store.append([_evaluated(step.card, plan, end, self.clock.now())])
        return None

    def hold(self) -> str | None:
        """Ask the host of an unknown end again: what it has on record by now needs no person. Else: why it waits."""
        study = self.store.read()
        trial = study.held_trial
        known = self.ask_again(plan_of(study, trial)) if trial is not None else None
        if trial is None or known is None:
            return "the end of a trial is unknown"
        trial_id, now = trial.started.trial_id, self.clock.now()
        self.tell(f"the end of trial {trial_id} is known now: {known}")
        resolved = TrialResolved(at=now, trial_id=trial_id, finding=Finding.FINISHED, by="tuneloop", reason=known)
        self.store.append([resolved])
        return None

    def close(self) -> None:
        """Write what a decided phase of the open card means."""
        study, now = self.store.read(), self.clock.now()
        step = next_step(study, now)
        if not isinstance(step, Close):
            return
        entries = entries_of_phase(step.card, step.tier, step.decided, now)
        study = self.store.append(entries)
        found = step.decided.classification
        self.tell(f"card {step.card.name}, {step.tier}: {found.route} ({found.reason}): {found.explanation}")
        if step.card.digest in study.closed:
            self.closed(study)

    def stop(self) -> str:
        """Record why the study ends, once."""
        study, now = self.store.read(), self.clock.now()
        step = next_step(study, now)
        if isinstance(step, Stop) and study.stopped is None:
            study = self.store.append([StudyStopped(at=now, reason=step.reason, detail=step.detail)])
        self.closed(study)
        stopped = study.stopped
        return f"{stopped.reason}: {stopped.detail}" if stopped is not None else ""


def plan_of(study: Study, trial: TrialState) -> TrialPlan:
    """The executor's view of a trial, from the ledger alone."""
    goal, card = study.goal, study.cards.get(trial.started.card_digest or "")
    return TrialPlan(
        study_id=study.study_id,
        trial_id=trial.started.trial_id,
        tier=trial.started.tier,
        config=trial.started.config,
        scenario=goal.scenario,
        load=trial.started.load,
        floor=goal.window_floor,
        native_rule=goal.native_rule,
        parent=None if card is None else card.parent,
        allowed_failures=_allowed_failures(study),
        usual_retokenized_ratio=usual_retokenized_ratio([s.measurement for s in study.all_samples()]),
    )


def evaluation_plan(study: Study, config: ServingConfig, quality: Quality) -> TrialPlan:
    """The next evaluation of this study, as the executor sees it: until its answer stands it keeps its id."""
    goal = study.goal
    return TrialPlan(
        study_id=study.study_id,
        trial_id=study.next_evaluation_id(),
        tier=Tier.CONFIRMATION,
        config=config,
        scenario=goal.scenario,
        load=load_of(study, config, Tier.CONFIRMATION),
        floor=goal.window_floor,
        native_rule=goal.native_rule,
        evaluation=quality,
    )


def _evaluated(card: Card, plan: TrialPlan, end: Evaluated, at: datetime) -> QualityEvaluated:
    return QualityEvaluated(
        at=at,
        card_digest=card.digest,
        outcome=end.outcome,
        detail=end.detail,
        evaluation_id=plan.trial_id,
        score=end.score,
        seconds=end.seconds,
        log=end.log,
    )


def _allowed_failures(study: Study) -> int:
    """Zero unless the goal says otherwise by a constraint of its own."""
    limits = [c.bound for c in study.goal.constraints if c.metric == "failed_requests"]
    return int(limits[0].limit) if limits and limits[0].is_upper else 0


def node_of(step: Step) -> str:
    """Which node does a step. The graph's edges hold no other rule."""
    match step:
        case Measure():
            return "start"
        case Continue():
            return "execute"
        case Propose():
            return "propose"
        case Close():
            return "close"
        case Stop():
            return "stop"
        case Evaluate():
            return "evaluate"
        case Hold():
            return "hold"
