"""The mechanism-rule proposer: from the binding walls and the knob table to one-change drafts. Works without any LLM.

A rule fires only where the evidence shows its wall and the figures that the mechanism needs. It steps one value at a
time, so that an effect can be credited, and it never repeats what was refuted on this configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.planner.knob_table import EFFECTS, KnobEffect, Toward, effects_of
from agent.planner.packet import EvidencePacket, KnobPart, Proposal, WallPart
from experiments.card import CardDraft, EvidenceRef, Prediction, Source, Wall
from experiments.knob import Cost
from experiments.serving_config import Change, Kind, Role, Value

MAX_DRAFTS = 3
ONE_STEP = 0.7
# What a run of each cost class takes relative to a hot one: launch, load of weights, warm-up.
_EFFORT = {Cost.HOT: 1.0, Cost.RESTART: 2.5, Cost.REBUILD: 10.0}


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    knob: KnobPart
    effect: KnobEffect
    wall: WallPart
    to_value: Value
    probability: float

    @property
    def worth(self) -> float:
        """Expected gain per effort: the order in which candidates are tried."""
        low, high = self.effect.gain
        return self.probability * max((low + high) / 2, 0.001) / _EFFORT[Cost(self.knob.cost)]


class RuleProposer:
    """Deterministic: one packet, one answer."""

    source = Source.RULES

    def propose(self, packet: EvidencePacket) -> Proposal:
        found = sorted(_candidates(packet), key=lambda c: (-c.worth, c.knob.path))
        drafts = tuple(_draft(c, packet) for c in found[:MAX_DRAFTS])
        walls = ", ".join(f"{w.wall} ({w.sentence})" for w in packet.walls)
        return Proposal(drafts=drafts, note=f"walls: {walls}")


def _candidates(packet: EvidencePacket) -> Iterable[_Candidate]:
    for wall in packet.walls:
        for effect in EFFECTS:
            if effect.wall is not wall.wall:
                continue
            for knob in packet.knobs:
                if knob.name == effect.name and knob.cost in packet.budget.allowed_costs:
                    yield from _steps(packet, wall, effect, knob)


def _steps(packet: EvidencePacket, wall: WallPart, effect: KnobEffect, knob: KnobPart) -> Iterable[_Candidate]:
    if not _is_shown(packet, effect) or _gives_away(packet, wall):
        return
    sign = packet.figures.get(effect.signs[0]) if effect.signs else None
    for to_value in neighbours(knob, effect.toward):
        if to_value in knob.tried:
            continue
        yield _Candidate(
            knob=knob,
            effect=effect,
            wall=wall,
            to_value=to_value,
            probability=_probability(packet, wall, knob, sign),
        )


def expected_of_mechanism(packet: EvidencePacket, knob: KnobPart, value: Value) -> float:
    """The usual gain of setting this knob so, by a mechanism whose wall and signs the evidence shows.

    Below 0 where a mechanism says that this is the wrong way; 0 where none says anything.
    """
    found = [
        _usual_gain(packet, wall, effect, knob) * way * _reach(knob, value)
        for wall in packet.walls
        for effect in effects_of(knob.name)
        if effect.wall is wall.wall and _is_shown(packet, effect) and not _gives_away(packet, wall)
        if (way := _way(effect.toward, knob, value)) != 0
    ]
    return max(found, key=abs, default=0.0)


def _usual_gain(packet: EvidencePacket, wall: WallPart, effect: KnobEffect, knob: KnobPart) -> float:
    low, high = effect.gain
    return wall.strength * max((low + high) / 2, 0.0) * 0.4 ** _refuted(packet, knob)


def _reach(knob: KnobPart, value: Value) -> float:
    """A mechanism shows more of itself in two steps of an ordered knob than in one."""
    return ONE_STEP if value in neighbours(knob) and len(knob.values) > 2 else 1.0


def _way(toward: Toward, knob: KnobPart, value: Value) -> int:
    if toward is Toward.EITHER:
        return 1
    if isinstance(value, int | float) and isinstance(knob.current, int | float):
        return 1 if (value > knob.current) is (toward is Toward.MORE) else -1
    return 0


def neighbours(knob: KnobPart, toward: Toward = Toward.EITHER) -> tuple[Value, ...]:
    """The next declared values in the asked direction; of a choice without order, all others."""
    values = [v for v in knob.values if v is not None]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return tuple(v for v in knob.values if v != knob.current)
    if not isinstance(knob.current, int | float):
        return tuple(values)
    numbers = sorted(v for v in values if isinstance(v, int | float))
    more = [v for v in numbers if v > knob.current][:1]
    less = [v for v in numbers if v < knob.current][-1:]
    chosen = {Toward.MORE: more, Toward.LESS: less, Toward.EITHER: [*more, *less]}[toward]
    return tuple(chosen)


def _is_shown(packet: EvidencePacket, effect: KnobEffect) -> bool:
    """The figures say that the mechanism has something to gain. One that was not observed says nothing."""
    sign = packet.figures.get(effect.signs[0]) if effect.signs else None
    return not effect.signs or (sign is not None and effect.least_sign <= sign <= effect.most_sign)


def _gives_away(packet: EvidencePacket, wall: WallPart) -> bool:
    """The constraint holds; giving throughput away for it is a trade-off that only a person asks for."""
    return wall.wall is Wall.SLO and packet.objective.direction == "maximize"


def _refuted(packet: EvidencePacket, knob: KnobPart) -> int:
    return sum(1 for o in packet.outcomes if o.path == knob.path and o.route == "valid_negative" and o.in_scope)


def _probability(packet: EvidencePacket, wall: WallPart, knob: KnobPart, sign: float | None) -> float:
    """A standing wall and a strong sign make a gain likelier; refuted neighbours make it less likely."""
    base = 0.25 + 0.35 * wall.strength + (0.25 * min(sign * 2, 1.0) if sign is not None and sign <= 1 else 0.0)
    return round(min(base, 0.9) * 0.4 ** _refuted(packet, knob), 3)


def _draft(candidate: _Candidate, packet: EvidencePacket) -> CardDraft:
    knob, effect, wall = candidate.knob, candidate.effect, candidate.wall
    cited = dict.fromkeys((*wall.figures, *effect.signs))
    evidence = tuple(
        EvidenceRef(id=name, value=value) for name in cited if (value := packet.figures.get(name)) is not None
    )
    return CardDraft(
        change=Change(
            role=Role(knob.role),
            kind=Kind(knob.kind),
            name=knob.name,
            from_value=knob.current,
            to_value=candidate.to_value,
        ),
        wall=wall.wall,
        mechanism=f"{wall.sentence[0].upper()}{wall.sentence[1:]}. {effect.mechanism}",
        evidence=evidence,
        prediction=Prediction(low=effect.gain[0], high=effect.gain[1], probability=candidate.probability),
        if_promising=f"confirm {knob.name} {candidate.to_value} at the formal load and keep it if the gain holds",
        if_negative=f"{knob.name} {candidate.to_value} does not relieve {wall.wall} here; look for another mechanism",
        source=Source.RULES,
    )
