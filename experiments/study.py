"""The study: what the ledger says, folded. Holds no rule of its own beyond what each entry means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from experiments.card import Card, NoveltyKey, novelty_key
from experiments.classification import Classification
from experiments.comparison import Sample
from experiments.drift import DriftWatch
from experiments.errors import InvalidTransition
from experiments.evidence import ServingEvidence
from experiments.goal import Goal
from experiments.ledger import (
    ApprovalUsed,
    CardAdmitted,
    CardClosed,
    CardRejected,
    ConfigurationKept,
    LedgerEntry,
    OperatorSpoke,
    ProposalMade,
    ProposerFailed,
    QualityEvaluated,
    QualityOutcome,
    StudyOpened,
    StudyReopened,
    StudyStopped,
    TrialFinished,
    TrialHeld,
    TrialResolved,
    TrialsClassified,
    TrialStarted,
)
from experiments.lifecycle import check_entry
from experiments.serving_config import ServingConfig
from experiments.trial import Artifact, Reason, Route, Tier, TrialLoad, TrialRecord, evaluation_id


@dataclass(frozen=True, kw_only=True)
class Refutation:
    """One item of negative memory: a change that was refuted under its conditions, and why.

    Its scope: the parent configuration (with its topology and its load), the scenario, the build of the servers.
    """

    key: NoveltyKey
    parent_fingerprint: str
    scenario_digest: str
    card_digest: str
    reason: Reason
    explanation: str
    position: int  # of the card's last word
    build: str | None  # what the servers of its last valid run reported


@dataclass(kw_only=True)
class TrialState:
    """One trial as the ledger knows it. `record` is None while it runs; `resolved` is a person's finding."""

    started: TrialStarted
    position: int
    record: TrialRecord | None = None
    finished_at: datetime | None = None
    classification: Classification | None = None
    held: TrialHeld | None = None
    resolved: TrialResolved | None = None
    sample: Sample | None = None  # the valid run, in the form that comparisons take

    @property
    def is_held(self) -> bool:
        """Its end is unknown and nobody has settled it: nothing new may be sent."""
        return self.held is not None and self.resolved is None


@dataclass(frozen=True, kw_only=True)
class Reopening:
    """From where budgets and counts of faults begin: the opening of the study, or the last time it was reopened."""

    at: datetime
    position: int = 0
    trials: int = 0
    closed: int = 0
    shifts: int = 0


@dataclass(kw_only=True)
class Study:
    """The fold. Made by `fold` only; readers treat it as frozen."""

    opened: StudyOpened
    position: int = 0
    incumbent: ServingConfig
    incumbent_card: str | None = None
    incumbent_since: int = 0  # position at which the incumbent was adopted
    cards: dict[str, Card] = field(default_factory=dict)
    open_card: Card | None = None  # the admitted card that has no last word yet; at most one
    closed: dict[str, CardClosed] = field(default_factory=dict)
    closed_at: list[int] = field(default_factory=list)  # positions, in the order of `closed`
    kept: list[ConfigurationKept] = field(default_factory=list)
    trials: dict[str, TrialState] = field(default_factory=dict)
    open_trial: TrialState | None = None  # the one that was started and has no record yet; at most one
    phases: list[TrialsClassified] = field(default_factory=list)
    judged: set[tuple[str | None, Tier]] = field(default_factory=set)  # card and tier of `phases`
    rejected: list[CardRejected] = field(default_factory=list)
    proposals: list[ProposalMade] = field(default_factory=list)
    proposer_failures: list[ProposerFailed | ProposalMade] = field(default_factory=list)
    refutations: list[Refutation] = field(default_factory=list)
    approvals_used: dict[str, ApprovalUsed] = field(default_factory=dict)
    directives: list[OperatorSpoke] = field(default_factory=list)
    evaluations: dict[str, list[QualityEvaluated]] = field(default_factory=dict)  # by card
    stopped: StudyStopped | None = None
    builds: dict[str, str] = field(default_factory=dict)  # by fingerprint of the configuration
    reopened: Reopening
    last_at: datetime
    drift: DriftWatch

    @property
    def goal(self) -> Goal:
        return self.opened.goal

    @property
    def study_id(self) -> str:
        return self.opened.study_id

    @property
    def held_trial(self) -> TrialState | None:
        """Only a trial without a record can be held."""
        return self.open_trial if self.open_trial is not None and self.open_trial.is_held else None

    def card_trials(self, card_digest: str | None, tier: Tier) -> list[TrialState]:
        """Trials of one card (None: of the incumbent) at one tier, in order."""
        return [t for t in self.trials.values() if t.started.card_digest == card_digest and t.started.tier is tier]

    def closed_since(self, position: int) -> int:
        """How many cards got their last word after this position."""
        return sum(1 for at in self.closed_at if at > position)

    def last_phase(self, card_digest: str) -> TrialsClassified | None:
        return next((p for p in reversed(self.phases) if p.card_digest == card_digest), None)

    def next_evaluation_id(self) -> str:
        """The id that the next evaluation has, until its answer stands."""
        return evaluation_id(self.study_id, len(self.all_evaluations()) + 1)

    def all_artifacts(self) -> Iterator[tuple[str, Artifact]]:
        """Every raw file that the ledger names, with the trial or evaluation that it is of."""
        for trial_id, trial in self.trials.items():
            for artifact in trial.record.artifacts if trial.record is not None else ():
                yield trial_id, artifact
        for entry in self.all_evaluations():
            if entry.evaluation_id is not None and entry.log is not None:
                yield entry.evaluation_id, entry.log

    def all_evaluations(self) -> list[QualityEvaluated]:
        return [entry for tries in self.evaluations.values() for entry in tries]

    def evaluation_ids(self) -> set[str]:
        """Of every evaluation that ended, and of the one that may be under way."""
        ended = {entry.evaluation_id for entry in self.all_evaluations() if entry.evaluation_id is not None}
        return {*ended, self.next_evaluation_id()}

    def quality_of(self, card_digest: str) -> QualityOutcome:
        evaluations = self.evaluations.get(card_digest)
        return evaluations[-1].outcome if evaluations else "not_evaluated"

    def samples(self, config: ServingConfig, load: TrialLoad) -> list[Sample]:
        """Every valid run of this configuration at this load, in order."""
        fingerprint = config.fingerprint()
        return [s for s in self.all_samples() if s.load == load and s.fingerprint == fingerprint]

    def all_samples(self) -> list[Sample]:
        return [t.sample for t in self.trials.values() if t.sample is not None]

    def latest_evidence(
        self, fingerprint: str | None = None, before: int | None = None
    ) -> tuple[TrialState, ServingEvidence] | None:
        """The newest serving evidence of the incumbent, or of another configuration before a position."""
        wanted = self.incumbent.fingerprint() if fingerprint is None else fingerprint
        for trial in reversed(self.trials.values()):
            record = trial.record
            if record is None or record.evidence is None or (before is not None and trial.position >= before):
                continue
            if trial.started.config.fingerprint() == wanted:
                return trial, record.evidence
        return None

    def build(self, fingerprint: str) -> str | None:
        """What the servers of the newest run of this configuration reported as their version."""
        return self.builds.get(fingerprint)

    def tokens_used(self) -> int:
        """Of every question that was asked. Ledgers of older versions have them on cards and failures only."""
        told = {p.prompt_digest for p in self.proposals}
        older = [c.draft.tokens for c in self.cards.values() if c.draft.prompt_digest not in told]
        failures = [f.tokens for f in self.proposer_failures if isinstance(f, ProposerFailed)]
        return sum(p.tokens for p in self.proposals) + sum(older) + sum(failures)

    def llm_cost(self) -> float:
        """What the language model cost so far, where a price is configured."""
        return math.fsum(p.cost for p in self.proposals if p.cost is not None)


def fold(entries: Iterable[LedgerEntry]) -> Study:
    """Fold a whole ledger. Raises InvalidTransition on an entry that the lifecycle table forbids."""
    study: Study | None = None
    for position, entry in enumerate(entries, start=1):
        if study is None:
            study = _opened(entry)
        else:
            _apply(study, entry, position)
        study.position = position
        study.last_at = entry.at
    if study is None:
        raise ValueError("an empty ledger is not a study")
    return study


def _opened(entry: LedgerEntry) -> Study:
    if not isinstance(entry, StudyOpened):
        raise InvalidTransition(f"a ledger begins with study_opened, this one with {entry.kind}")
    return Study(
        opened=entry,
        incumbent=entry.starting,
        last_at=entry.at,
        reopened=Reopening(at=entry.at),
        drift=DriftWatch(goal=entry.goal),
    )


def extend(study: Study, entries: Iterable[LedgerEntry]) -> None:
    """Apply entries that were just appended."""
    for entry in entries:
        _apply(study, entry, study.position + 1)
        study.position += 1
        study.last_at = entry.at


def _apply(study: Study, entry: LedgerEntry, position: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one arm per kind
    check_entry(study, entry)
    match entry:
        case CardAdmitted():
            study.cards[entry.card.digest] = study.open_card = entry.card
        case CardRejected():
            study.rejected.append(entry)
        case ProposalMade():
            study.proposals.append(entry)
            if entry.failure is not None:
                study.proposer_failures.append(entry)
        case ProposerFailed():
            study.proposer_failures.append(entry)
        case TrialStarted():
            study.open_trial = TrialState(started=entry, position=position)
            study.trials[entry.trial_id] = study.open_trial
        case TrialFinished():
            _finish(study, entry)
        case TrialsClassified():
            study.phases.append(entry)
            study.judged.add((entry.card_digest, entry.tier))
            for trial_id in entry.trial_ids:
                study.trials[trial_id].classification = entry.classification
        case CardClosed():
            _close(study, entry, position)
            study.closed_at.append(position)
        case ConfigurationKept():
            study.kept.append(entry)
            study.incumbent, study.incumbent_card = entry.config, entry.card_digest
            study.incumbent_since = position
        case QualityEvaluated():
            _evaluate(study, entry)
        case ApprovalUsed():
            study.approvals_used[entry.card_digest] = entry
        case OperatorSpoke():
            study.directives.append(entry)
        case TrialHeld():
            trial = study.trials[entry.trial_id]
            trial.held, trial.resolved = entry, None
        case TrialResolved():
            study.trials[entry.trial_id].resolved = entry
        case StudyStopped():
            study.stopped = entry
        case StudyReopened():
            study.stopped = None
            study.reopened = Reopening(
                at=entry.at,
                position=position,
                trials=len(study.trials),
                closed=len(study.closed),
                shifts=len(study.drift.shifts),
            )
        case StudyOpened():
            raise AssertionError("check_entry lets no second study_opened through")
        case _:
            assert_never(entry)


def _finish(study: Study, entry: TrialFinished) -> None:
    record = entry.record
    state = study.trials[record.trial_id]
    state.record, state.finished_at, study.open_trial = record, entry.at, None
    fingerprint = state.started.config.fingerprint()
    if record.server_version:
        study.builds[fingerprint] = record.server_version
    if record.measurement is not None:
        state.sample = Sample(
            trial_id=record.trial_id,
            tier=state.started.tier,
            config=state.started.config,
            fingerprint=fingerprint,
            scenario=study.goal.scenario,
            scenario_digest=study.opened.scenario_digest,
            load=state.started.load,
            build=record.server_version,
            measurement=record.measurement,
            position=state.position,
        )
        study.drift.observe(state.sample)


def _evaluate(study: Study, entry: QualityEvaluated) -> None:
    study.evaluations.setdefault(entry.card_digest, []).append(entry)
    study.kept = [
        k.model_copy(update={"quality": entry.outcome}) if k.card_digest == entry.card_digest else k for k in study.kept
    ]


def _close(study: Study, entry: CardClosed, position: int) -> None:
    study.closed[entry.card_digest] = entry
    study.open_card = None
    if entry.classification.route is Route.VALID_NEGATIVE:
        card = study.cards[entry.card_digest]
        study.refutations.append(
            Refutation(
                key=novelty_key(card.draft.change),
                parent_fingerprint=card.parent_fingerprint,
                scenario_digest=card.scenario_digest,
                card_digest=entry.card_digest,
                reason=entry.classification.reason,
                explanation=entry.classification.explanation,
                position=position,
                build=study.build(card.parent_fingerprint),
            )
        )
