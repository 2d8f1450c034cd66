"""What the model answers, and how that becomes drafts. The wire model is plain: scalars and lists, no dictionaries.

The knob's present value is taken from the packet, never from the answer. Cited figures are kept as the model wrote
them, so that admission can compare. Nothing is mended that would change what is proposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator

from agent.planner.packet import EvidencePacket, KnobPart
from agent.planner.packet_document import value_text
from agent.planner.prompt import MAX_CARDS, RenderedPrompt
from agent.planner.redaction import clean_line, cut
from experiments.card import CardDraft, EvidenceRef, Prediction, Source, Wall
from experiments.serving_config import Change, Path, Value

MAX_EVIDENCE = 20


def _as_text(value: object) -> object:
    """A model that writes 2 or true where text is asked for means the value as it is listed."""
    return value_text(value) if value is None or isinstance(value, bool | int | float) else value


def _as_wall(value: object) -> object:
    return value.strip().lower().replace(" ", "_").replace("-", "_") if isinstance(value, str) else value


class _Wire(BaseModel):
    """Unknown fields are dropped: endpoints that ignore the schema add some."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class CitedFigure(_Wire):
    id: str
    value: float


class ProposedCard(_Wire):
    knob: str
    to_value: Annotated[str, BeforeValidator(_as_text)]
    wall: Annotated[Wall, BeforeValidator(_as_wall)]
    mechanism: str
    evidence: list[CitedFigure]
    gain_low_percent: float
    gain_high_percent: float
    probability: float
    if_promising: str
    if_negative: str

    @field_validator("probability")
    @classmethod
    def _is_probability(cls, value: float) -> float:
        if not 0 <= value <= 1:
            raise ValueError("a probability is from 0 to 1")
        return value

    @model_validator(mode="after")
    def _is_interval(self) -> ProposedCard:
        if self.gain_low_percent > self.gain_high_percent:
            raise ValueError("gain_low_percent is above gain_high_percent")
        return self


class PlannerAnswer(_Wire):
    note: str
    cards: list[ProposedCard]


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """The drafts that an answer stands for, and why any other card of it is none."""

    drafts: tuple[CardDraft, ...]
    objections: tuple[str, ...]


def map_answer(answer: PlannerAnswer, packet: EvidencePacket, prompt: RenderedPrompt, tokens: int) -> Mapped:
    """`tokens` is what the whole answer cost; each of its drafts carries it."""
    drafts: dict[tuple[str, str], CardDraft] = {}
    objections = []
    for place, card in enumerate(answer.cards[:MAX_CARDS], start=1):
        knob = _find_knob(card.knob, packet)
        if knob is None:
            paths = ", ".join(k.path for k in packet.knobs)
            objections.append(f"card {place}: {_short(card.knob)!r} is not a knob; the knobs are {paths}")
            continue
        draft = _draft(card, knob, prompt, tokens)
        drafts.setdefault((knob.path, repr(draft.change.to_value)), draft)
    return Mapped(drafts=tuple(drafts.values()), objections=tuple(objections))


def _draft(card: ProposedCard, knob: KnobPart, prompt: RenderedPrompt, tokens: int) -> CardDraft:
    path = Path.parse(knob.path)
    return CardDraft(
        change=Change(
            role=path.role,
            kind=path.kind,
            name=path.name,
            from_value=knob.current,
            to_value=_read_value(card.to_value, knob, prompt.choices.get(knob.path, {})),
        ),
        wall=card.wall,
        mechanism=_short(card.mechanism, 600),
        evidence=tuple(
            EvidenceRef(id=_short(figure.id, 100), value=figure.value) for figure in card.evidence[:MAX_EVIDENCE]
        ),
        prediction=Prediction(
            low=card.gain_low_percent / 100, high=card.gain_high_percent / 100, probability=card.probability
        ),
        if_promising=_short(card.if_promising, 300),
        if_negative=_short(card.if_negative, 300),
        source=Source.LLM,
        prompt_digest=prompt.digest,
        tokens=tokens,
    )


def _find_knob(text: str, packet: EvidencePacket) -> KnobPart | None:
    """By its path; or by a bare name that only one knob has, however it is dashed."""
    wanted = text.strip().strip("`\"'")
    for knob in packet.knobs:
        if knob.path == wanted:
            return knob
    bare = wanted.lstrip("-").replace("_", "-").lower()
    named = [knob for knob in packet.knobs if knob.name.replace("_", "-").lower() == bare]
    return named[0] if len(named) == 1 else None


def _read_value(text: str, knob: KnobPart, choices: Mapping[str, Value]) -> Value:
    """The value that the text stands for. One that is not listed is read in the knob's type, for admission to judge."""
    wanted = text.strip().strip("`\"'")
    if wanted in choices:
        return choices[wanted]
    for value in choices.values():
        if _means(wanted, value):
            return value
    return _unlisted(wanted, knob)


def _means(text: str, value: Value) -> bool:
    """Another spelling of the same value: 2.0 for 2, True for true, None for unset."""
    match value:
        case None:
            return text.lower() in ("none", "null", "unset", "absent")
        case bool():
            return text.lower() == value_text(value)
        case int() | float():
            number = _number(text)
            return number is not None and number == value
        case str():
            return False


def _unlisted(text: str, knob: KnobPart) -> Value:
    kinds = {type(value) for value in knob.values if value is not None}
    number = _number(text)
    if number is None or bool in kinds or str in kinds:
        return _short(text, 100)
    return int(number) if kinds == {int} and number.is_integer() else number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e15 else None  # neither NaN nor infinite


def _short(text: str, limit: int = 80) -> str:
    return cut(clean_line(text[: 4 * limit]), limit)
