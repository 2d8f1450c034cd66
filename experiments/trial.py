"""A trial: one card run at one tier, as a line of stages. Only names and outcomes; nothing here runs.

Rules that hold here: a fault is never a number, and a missing value is `None` (shown as `NOT_OBSERVED`).
"""

from __future__ import annotations

from enum import StrEnum

NOT_OBSERVED = "NOT_OBSERVED"


class Tier(StrEnum):
    """Why a trial runs. Results are compared within one tier's load only."""

    BASELINE = "baseline"  # the incumbent, measured at the load that a comparison needs
    SCREENING = "screening"  # a challenger, at the screening load
    CONFIRMATION = "confirmation"  # a promising challenger, at the formal load
    SENTINEL = "sentinel"  # the incumbent again, to see drift


class Stage(StrEnum):
    """The stages of a trial, in order."""

    CHECK = "check"
    RESERVE = "reserve"
    PREPARE = "prepare"
    LAUNCH = "launch"
    READY = "ready"
    CANARY = "canary"
    WARM_UP = "warm_up"
    CACHE = "cache"
    MEASURE = "measure"
    COLLECT = "collect"
    ANALYSE = "analyse"
    RELEASE = "release"


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
    Stage.LAUNCH: Effect.ADOPTABLE,
    Stage.READY: Effect.PURE,
    Stage.CANARY: Effect.IDEMPOTENT,
    Stage.WARM_UP: Effect.IDEMPOTENT,
    Stage.CACHE: Effect.IDEMPOTENT,
    Stage.MEASURE: Effect.ONE_SHOT,
    Stage.COLLECT: Effect.IDEMPOTENT,
    Stage.ANALYSE: Effect.PURE,
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
    # promising
    GAIN = "gain"


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
