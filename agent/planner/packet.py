"""The evidence packet: everything a proposer is told, built by code from the ledger, with an id for every figure.

It holds no host, user, path, log text or request text, and no field from which one could come.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from experiments.card import CardDraft, Wall
from experiments.serving_config import Value, digest


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ObjectivePart(_Part):
    """What is asked. The proposer may never change any of it."""

    metric: str
    window: str
    direction: str
    target: str | None
    constraints: tuple[str, ...]
    scenario: str  # one line: model, lengths, cache state, N, C, r
    min_effect: float
    confidence: float


class NoisePart(_Part):
    relative_sd: float
    repeats: int
    smallest_visible_gain: float  # at the planned number of runs


class Side(StrEnum):
    """The part of the service that a configuration is held up by."""

    PREFILL = "prefill"
    DECODE = "decode"
    CLIENT = "client"
    UNKNOWN = "unknown"


class WallPart(_Part):
    """One binding wall with the figures that say so, strongest first."""

    wall: Wall
    strength: float  # 0 … 1
    figures: tuple[str, ...]  # evidence ids
    sentence: str


class KnobPart(_Part):
    """One knob: where it is, what it may become, and what is known about it here."""

    path: str
    role: str
    kind: str
    name: str
    current: Value
    values: tuple[Value, ...]  # all candidates, the current one included
    cost: str
    alters_numerics: bool
    relieves: tuple[Wall, ...]
    mechanism: str  # what turning it does, from the knob table; "" where nothing is known
    tried: tuple[Value, ...]  # on this very configuration
    undecided: tuple[Value, ...] = ()  # of `tried`: a gain was neither shown nor excluded, so it may be asked once more


class OutcomePart(_Part):
    """A closed card: what was changed, what came out, and whether it still binds."""

    card: str
    change: str
    path: str
    to_value: Value
    also: tuple[str, Value] | None = None  # path and value of the other part of a bundle
    route: str
    reason: str
    gain: float | None
    source: str
    in_scope: bool  # the same parent configuration as now
    suspect: bool  # the parent has changed since: one retest with new evidence is allowed
    new_evidence: tuple[str, ...] = ()  # figures that have changed materially since, most changed first


class ObservationPart(_Part):
    """One configuration that was run at the screening load since the pool last shifted, and what came out.

    `limits`: each limit of the goal as value / limit, above 1 is a violation; None where it was not observed.
    """

    values: tuple[Value, ...]  # of the packet's knobs, in their order
    runs: int
    objective: float | None  # mean; None where it could not run
    limits: tuple[float | None, ...]
    side: Side  # where it was bound, or where it failed
    headroom: float | None = None  # rate that the decode side could reach over the rate that it had; at most
    infeasible: bool


class BudgetPart(_Part):
    trials_left: int
    hours_left: float
    tokens_left: int | None
    allowed_costs: tuple[str, ...]


class EvidencePacket(_Part):
    study_id: str
    simulated: bool
    objective: ObjectivePart
    noise: NoisePart
    incumbent: dict[str, Value]  # the effective settings, by path
    figures: dict[str, float | None]  # evidence id → value; None is NOT_OBSERVED
    walls: tuple[WallPart, ...]
    knobs: tuple[KnobPart, ...]
    outcomes: tuple[OutcomePart, ...]
    observations: tuple[ObservationPart, ...] = ()
    budget: BudgetPart
    steering: tuple[str, ...] = ()  # the operator's lines
    suggestions: tuple[CardDraft, ...] = ()  # what the other proposers would do, best first
    objections: tuple[str, ...] = ()  # admission's words about the last answer, in a repair round

    @property
    def digest(self) -> str:
        return digest(self.model_dump(mode="json"))


class Proposal(_Part):
    """An answer of a proposer: up to three drafts, best first. None means that it sees nothing worth a run."""

    drafts: tuple[CardDraft, ...]
    note: str = ""
    tokens: int = 0
    cost: float | None = None  # None where no price is known
    model: str | None = None
    rung: str | None = None
    seconds: float | None = None
