"""The experiment card: one frozen proposal. Its digest is its identity; outcomes are other rows, never edits."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from experiments.knob import Cost
from experiments.serving_config import Change, ServingConfig, Value, digest

CARD_SCHEMA = 1


class Wall(StrEnum):
    """What bounds the output throughput of the incumbent, as the evidence shows it."""

    PREFILL_SUPPLY = "prefill_supply"  # requests wait for prefill while decode has room
    DECODE_BATCH = "decode_batch"  # decode runs as many as it may, finished prefills wait for it
    CLIENT_SUPPLY = "client_supply"  # neither side queues: the load does not fill the service
    SLO = "slo"  # a constraint is at its limit
    MEMORY = "memory"  # KV space is exhausted: retractions or preallocation waits
    CACHE = "cache"  # the prefix cache misses what the scenario promises
    IMBALANCE = "imbalance"  # ranks of one side differ
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Who proposed the card."""

    BASELINE = "baseline"
    RULES = "rules"
    OPTIMIZER = "optimizer"
    LLM = "llm"
    CONTROL = "control"
    OPERATOR = "operator"


class EvidenceRef(BaseModel):
    """A figure that the proposal rests on. Admission refuses an unknown id or a value that does not match."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    value: float


class Prediction(BaseModel):
    """The effect on the objective that the proposer expects, as a relative change (0.05 = +5 %)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    high: float
    probability: float = Field(ge=0, le=1)  # that the card is promising


class CardDraft(BaseModel):
    """What a proposer says, before admission. Everything in it is data; none of it is ever run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change: Change
    wall: Wall
    mechanism: str = Field(max_length=600)
    evidence: tuple[EvidenceRef, ...]
    prediction: Prediction
    if_promising: str = Field(max_length=300)  # the decision that each outcome leads to
    if_negative: str = Field(max_length=300)
    source: Source
    prompt_digest: str | None = None
    tokens: int = 0


class Card(BaseModel):
    """An admitted draft, bound to the configuration and the scenario that it changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = CARD_SCHEMA
    number: int  # order of admission within the study, for people
    draft: CardDraft
    parent: ServingConfig
    parent_fingerprint: str
    scenario_digest: str
    cost: Cost
    alters_numerics: bool = False  # the knob is known to change the model's outputs

    @cached_property
    def digest(self) -> str:
        """64 hex digits over every field. Two cards with one digest are one card."""
        return digest(self.model_dump(mode="json"))

    @property
    def name(self) -> str:
        """The short name in tables and file names: `c03-prefill-max-requests-2`."""
        parts = (part_name(part.name, part.to_value) for part in self.draft.change.parts)
        return "-".join((f"c{self.number:02d}", *parts))

    @property
    def config(self) -> ServingConfig:
        """The configuration under test: the parent with exactly this change."""
        return self.parent.changed(self.draft.change)


class NoveltyKey(BaseModel):
    """What makes two proposals the same idea, whatever their prose says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    to_value: Value
    also: NoveltyKey | None = None  # the other part of a bundle; the parts stand in the order of their paths


def novelty_key(change: Change) -> NoveltyKey:
    first, *rest = sorted(change.parts, key=lambda part: str(part.path))
    return NoveltyKey(path=str(first.path), to_value=first.to_value, also=novelty_key(rest[0]) if rest else None)


def part_name(knob: str, to_value: Value) -> str:
    """What one part of a change adds to the name of its card."""
    value = "unset" if to_value is None else to_value
    return f"{_slug(knob)}-{_slug(str(value))}"


def _slug(text: str) -> str:
    return "".join(ch if ch.isalnum() else "-" for ch in text.lower()).strip("-")[:40]
