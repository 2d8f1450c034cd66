"""A trial: one card run at one tier, as a line of stages. Only names and outcomes; nothing here runs.

Rules that hold here: a fault is never a number, and a missing value is `None` (shown as `NOT_OBSERVED`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, model_validator

from experiments.evidence import ServingEvidence
from experiments.live import RankLive
from experiments.measurement import Measurement
from experiments.profile import ServerProfile

NOT_OBSERVED = "NOT_OBSERVED"


class Tier(StrEnum):
    """Why a trial runs. Results are compared within one tier's load only."""

    BASELINE = "baseline"  # the incumbent, measured at the load that a comparison needs
    SCREENING = "screening"  # a challenger, at the screening load
    CONFIRMATION = "confirmation"  # a promising challenger, at the formal load
    SENTINEL = "sentinel"  # the incumbent again, to see drift


class Stage(StrEnum):
    """The stages of a trial, in order. `evaluate` is no part of one: it stands where a load would, see `EVALUATION`."""

    CHECK = "check"
    RESERVE = "reserve"
    PREPARE = "prepare"
    RECORD = "record"  # only of a configuration that names an expert layout
    FIT = "fit"
    LAUNCH = "launch"
    READY = "ready"
    CANARY = "canary"
    WARM_UP = "warm_up"
    CACHE = "cache"
    MEASURE = "measure"
    COLLECT = "collect"
    ANALYSE = "analyse"
    PROFILE = "profile"  # only where the pool asks for it
    EVALUATE = "evaluate"
    RELEASE = "release"


EVALUATION = (
    Stage.CHECK,
    Stage.RESERVE,
    Stage.RECORD,  # an expert layout that stands is found, not made again
    Stage.FIT,
    Stage.LAUNCH,
    Stage.READY,
    Stage.CANARY,
    Stage.EVALUATE,
    Stage.RELEASE,
)
"""The stages of an evaluation of a configuration's outputs, in order."""

_EVALUATION_ID = re.compile(r"(.+)-q\d{3,}")


def evaluation_id(study_id: str, number: int) -> str:
    """The id of a study's n-th evaluation, from 1: its stages stand in the journal under it."""
    return f"{study_id}-q{number:03d}"


def study_of_evaluation(run_id: str) -> str | None:
    """The study that an evaluation belongs to; None for the id of a trial."""
    found = _EVALUATION_ID.fullmatch(run_id)
    return None if found is None else found[1]


OPTIONAL = frozenset({Stage.RECORD, Stage.FIT, Stage.PROFILE})
"""Stages that most trials do not have."""


class Effect(StrEnum):
    """What may be done with a stage whose end was not recorded."""

    PURE = "pure"  # repeat freely
    IDEMPOTENT = "idempotent"  # repeat under the same key
    ONE_SHOT = "one_shot"  # ask the host; never send again
    ADOPTABLE = "adoptable"  # ask the host; adopt what is provably ours


EFFECTS: dict[Stage, Effect] = {
    Stage.CHECK: Effect.PURE,
    Stage.RESERVE: Effect.IDEMPOTENT,
    Stage.PREPARE: Effect.IDEMPOTENT,
    Stage.RECORD: Effect.IDEMPOTENT,  # its load is not formal: what was recorded so far is thrown away
    Stage.FIT: Effect.IDEMPOTENT,
    Stage.LAUNCH: Effect.ADOPTABLE,
    Stage.READY: Effect.PURE,
    Stage.CANARY: Effect.IDEMPOTENT,
    Stage.WARM_UP: Effect.IDEMPOTENT,
    Stage.CACHE: Effect.IDEMPOTENT,
    Stage.MEASURE: Effect.ONE_SHOT,
    Stage.COLLECT: Effect.IDEMPOTENT,
    Stage.ANALYSE: Effect.PURE,
    Stage.PROFILE: Effect.IDEMPOTENT,
    Stage.EVALUATE: Effect.IDEMPOTENT,  # no formal load: an attempt that was cancelled may be made again
    Stage.RELEASE: Effect.IDEMPOTENT,
}


class Route(StrEnum):
    """The three branches of the classifier."""

    ORCHESTRATION_FAULT = "orchestration_fault"
    VALID_NEGATIVE = "valid_negative"
    PROMISING = "promising"


class Reason(StrEnum):
    """Why a trial took its route."""

    # orchestration faults: nothing was learned about the configuration
    TRANSPORT = "transport"
    LAUNCH = "launch"
    CONTRACT_MISMATCH = "contract_mismatch"
    CLIENT = "client"
    POST_PROCESSING = "post_processing"
    UNKNOWN_END = "unknown_end"
    ENVIRONMENT = "environment"
    EVIDENCE_INCOMPLETE = "evidence_incomplete"
    WORKLOAD_VIOLATED = "workload_violated"
    CANCELLED = "cancelled"
    UNRECOGNISED = "unrecognised"
    # valid negatives: the configuration did it
    SLOWER = "slower"
    SLO_VIOLATED = "slo_violated"
    INFEASIBLE = "infeasible"
    NO_SIGNIFICANT_GAIN = "no_significant_gain"
    QUALITY_FAILED = "quality_failed"  # faster, but an evaluation of its outputs failed
    # promising
    GAIN = "gain"
    NOT_EXCLUDED = "not_excluded"  # screening could not rule a gain out; only confirmation can say


FAULT_REASONS = frozenset(
    {
        Reason.TRANSPORT,
        Reason.LAUNCH,
        Reason.CONTRACT_MISMATCH,
        Reason.CLIENT,
        Reason.POST_PROCESSING,
        Reason.UNKNOWN_END,
        Reason.ENVIRONMENT,
        Reason.EVIDENCE_INCOMPLETE,
        Reason.WORKLOAD_VIOLATED,
        Reason.CANCELLED,
        Reason.UNRECOGNISED,
    }
)


class Sent(StrEnum):
    """Whether the formal load of a trial reached the servers. Three answers, never two."""

    NOT_SENT = "not_sent"
    FINISHED = "finished"
    UNKNOWN = "unknown"


class StageTime(BaseModel):
    """One attempt of one stage. Stages do not nest, so these may be added."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage
    attempt: int
    began: AwareDatetime
    seconds: float
    note: str = ""  # "adopted prefill", "reused the hot service", …


class StageFault(BaseModel):
    """One attempt of one stage that failed, and what the repair was. Never carries a metric."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage
    attempt: int
    reason: Reason
    sent: Sent
    detail: str
    repaired: bool = False  # a later attempt of the same stage succeeded
    repair: str = ""  # what the later attempt did differently


class Artifact(BaseModel):
    """A raw file kept under `artifacts/<trial>/`, by the name it has there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    size: int


class TrialLoad(BaseModel):
    """The load of one trial: what the client is told, and what the cache preparation was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: int
    concurrency: int
    rate: float | None  # requests per second; None = unlimited
    cache: str  # "zero" or "warm>=0.9"


class TrialRecord(BaseModel):
    """What one trial left behind: either a measurement or the fault that ended it, never both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trial_id: str
    measurement: Measurement | None = None
    evidence: ServingEvidence | None = None
    failure: StageFault | None = None
    configuration_caused: bool = False  # the failure is the configuration's own doing (OOM, rejected argument)
    sent: Sent
    faults: tuple[StageFault, ...] = ()  # repaired ones as well
    stages: tuple[StageTime, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    adjusted: tuple[str, ...] = ()  # values that the server set otherwise, each with the rule that expects it
    server_version: str | None = None
    host_checks: tuple[str, ...] = ()  # what the installed engine answered before anything was started
    sources: tuple[str, ...] = ()  # per server: the build as it reported itself, and its process
    profiles: tuple[ServerProfile, ...] = ()
    live: tuple[RankLive, ...] = ()  # what the servers answered while the load ran; the series is an artifact

    @model_validator(mode="after")
    def _either_measured_or_failed(self) -> Self:
        if (self.measurement is None) == (self.failure is None):
            raise ValueError(f"trial {self.trial_id}: a record holds a measurement or a failure, never both")
        if self.measurement is not None and self.sent is not Sent.FINISHED:
            raise ValueError(f"trial {self.trial_id}: only a finished load has numbers, this one is {self.sent}")
        return self
