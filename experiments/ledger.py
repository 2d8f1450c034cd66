"""The ledger entries: facts in the past tense, appended once and never edited. Everything else is a fold of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from experiments.card import Card, CardDraft, Source
from experiments.classification import Classification
from experiments.control import ControlState
from experiments.goal import Goal
from experiments.serving_config import ServingConfig
from experiments.trial import Artifact, Stage, Tier, TrialLoad, TrialRecord

ENTRY_SCHEMA = 1

QualityOutcome = Literal["not_evaluated", "passed", "failed"]


class StopReason(StrEnum):
    """Why a study ended. What only lets it wait is in docs/operations.md; each is a row of one tested table."""

    BUDGET_TRIALS = "budget_trials"
    BUDGET_HOURS = "budget_hours"
    BUDGET_TOKENS = "budget_tokens"
    BUDGET_COST = "budget_cost"
    NO_CANDIDATE = "no_candidate"
    GOAL_REACHED = "goal_reached"
    BASELINE_FAILED = "baseline_failed"
    DRIFT = "drift"


class Finding(StrEnum):
    """What a person found out about a trial whose end was unknown."""

    FINISHED = "finished"
    NEVER_RAN = "never_ran"
    DEAD = "dead"


class Entry(BaseModel):
    """What every entry carries. `at` is for people; order is the position in the ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = ENTRY_SCHEMA
    at: AwareDatetime


class StudyOpened(Entry):
    kind: Literal["study_opened"] = "study_opened"
    study_id: str
    goal: Goal
    scenario_digest: str
    pool: str
    cards: int  # the divisor of "per card": prefill and decode together
    simulated: bool
    starting: ServingConfig


class CardAdmitted(Entry):
    kind: Literal["card_admitted"] = "card_admitted"
    card: Card


class CardRejected(Entry):
    """A draft that admission refused, with its codes. The draft itself is kept for the reviewer."""

    kind: Literal["card_rejected"] = "card_rejected"
    draft: CardDraft
    codes: tuple[str, ...]
    messages: tuple[str, ...]


class ProposalMade(Entry):
    """One question to a proposer that costs something, or that failed: what came back and what it took.

    `failure` is why there was no usable answer; the loop went on without it. `cost` is None where no price is known.
    """

    kind: Literal["proposal_made"] = "proposal_made"
    source: Source
    drafts: int
    tokens: int = 0
    cost: float | None = None
    model: str | None = None
    rung: str | None = None  # how a model was made to answer in our schema
    seconds: float | None = None
    note: str = ""
    failure: str | None = None
    prompt_digest: str | None = None

    @property
    def detail(self) -> str:
        """Why it failed, as entries of older versions call it."""
        return self.failure or ""


class ProposerFailed(Entry):
    """A proposer gave no usable answer. Written by versions before `proposal_made`, and still read."""

    kind: Literal["proposer_failed"] = "proposer_failed"
    source: Source
    detail: str
    tokens: int = 0


class TrialStarted(Entry):
    """Minted before anything is sent, so that a repeated step finds this id and does not make another."""

    kind: Literal["trial_started"] = "trial_started"
    trial_id: str
    tier: Tier
    card_digest: str | None  # None: the incumbent is measured
    config: ServingConfig
    load: TrialLoad
    why: str


class TrialFinished(Entry):
    kind: Literal["trial_finished"] = "trial_finished"
    record: TrialRecord


class TrialsClassified(Entry):
    """The route of one phase of a card: all runs that it was judged on."""

    kind: Literal["trials_classified"] = "trials_classified"
    trial_ids: tuple[str, ...]
    tier: Tier
    card_digest: str | None
    classification: Classification


class CardClosed(Entry):
    """The last word on a card. `kept` only after confirmation."""

    kind: Literal["card_closed"] = "card_closed"
    card_digest: str
    classification: Classification
    kept: bool


class ConfigurationKept(Entry):
    """A configuration stored whole, so that it can be returned to by name."""

    kind: Literal["configuration_kept"] = "configuration_kept"
    name: str
    card_digest: str
    config: ServingConfig
    trial_ids: tuple[str, ...]  # the confirmation runs that stand behind it
    quality: QualityOutcome = "not_evaluated"


class QualityEvaluated(Entry):
    """An evaluation of the outputs of a confirmed configuration. `not_evaluated`: it was tried and gave no answer."""

    kind: Literal["quality_evaluated"] = "quality_evaluated"
    card_digest: str
    outcome: QualityOutcome
    detail: str
    evaluation_id: str | None = None  # of its rows in the journal
    score: float | None = None  # the command's own figure; None: the goal reads none, or there was none
    seconds: float | None = None  # of the command
    log: Artifact | None = None


class ApprovalUsed(Entry):
    kind: Literal["approval_used"] = "approval_used"
    card_digest: str
    by: str


class OperatorSpoke(Entry):
    """The control file changed. `control` is all that it says; None: it could not be followed, `reason` says why."""

    kind: Literal["operator_spoke"] = "operator_spoke"
    mode: str
    by: str
    reason: str
    file_digest: str  # "" where there were no bytes to read
    control: ControlState | None = None


class TrialHeld(Entry):
    """The end of a sent load cannot be learned. Nothing new is sent on the pool until a person settles it."""

    kind: Literal["trial_held"] = "trial_held"
    trial_id: str
    stage: Stage
    detail: str  # what to check, in words an operator can act on


class TrialResolved(Entry):
    """A person settled a trial whose end was unknown."""

    kind: Literal["trial_resolved"] = "trial_resolved"
    trial_id: str
    finding: Finding
    by: str
    reason: str


class StudyStopped(Entry):
    kind: Literal["study_stopped"] = "study_stopped"
    reason: StopReason
    detail: str


class StudyReopened(Entry):
    """Work goes on after a stop: the budget was raised or an operator said so."""

    kind: Literal["study_reopened"] = "study_reopened"
    by: str
    reason: str


LedgerEntry = Annotated[
    StudyOpened
    | CardAdmitted
    | CardRejected
    | ProposalMade
    | ProposerFailed
    | TrialStarted
    | TrialFinished
    | TrialsClassified
    | CardClosed
    | ConfigurationKept
    | QualityEvaluated
    | ApprovalUsed
    | OperatorSpoke
    | TrialHeld
    | TrialResolved
    | StudyStopped
    | StudyReopened,
    Field(discriminator="kind"),
]

ENTRY: TypeAdapter[LedgerEntry] = TypeAdapter(LedgerEntry)
