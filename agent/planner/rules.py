"""The mechanism-rule proposer: from the binding walls and the knob table to one-change drafts. Works without any LLM.

A rule fires only where the evidence shows its wall and the figures that the mechanism needs. It steps one value at a
time, so that an effect can be credited, and it never repeats what was refuted on this configuration. Two knobs at once
are for a coupling that the evidence shows, where an escape card may hold both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.planner.couplings import Coupled, coupled_moves
from agent.planner.gaussian_process import Axis
from agent.planner.knob_table import EFFECTS, KnobEffect, Toward, effects_of
from agent.planner.moves import Move, Setting, change_of, cost_of
from agent.planner.packet import EvidencePacket, KnobPart, Proposal, WallPart
from experiments.card import CardDraft, EvidenceRef, Prediction, Source, Wall
from experiments.knob import Cost
from experiments.serving_config import Value

MAX_DRAFTS = 3
IN_FULL = 0.5
# What a run of each cost class takes relative to a hot one: launch, load of weights, warm-up.
_EFFORT = {Cost.HOT: 1.0, Cost.RESTART: 2.5, Cost.REBUILD: 10.0}


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """One move with the mechanism that speaks for it."""

    move: Move
    wall: WallPart
    mechanism: str
    signs: tuple[str, ...]
    gain: tuple[float, float]
    probability: float

    @property
    def names(self) -> str:
        return " with ".join(f"{setting.knob.name} {setting.value}" for setting in self.move)

    @property
    def worth(self) -> float:
        """Expected gain per effort: the order in which candidates are tried."""
        return self.probability * max(sum(self.gain) / 2, 0.001) / _EFFORT[cost_of(self.move)]


class RuleProposer:
    """Deterministic: one packet, one answer."""

    source = Source.RULES

    def propose(self, packet: EvidencePacket) -> Proposal:
        found = sorted(_candidates(packet), key=lambda c: (-c.worth, c.names))
        first = {frozenset(setting.key for setting in c.move): c for c in reversed(found)}  # one draft per change
        drafts = tuple(_draft(c, packet) for c in found if c in first.values())
        walls = ", ".join(f"{w.wall} ({w.sentence})" for w in packet.walls)
        return Proposal(drafts=drafts[:MAX_DRAFTS], note=f"walls: {walls}")


def _candidates(packet: EvidencePacket) -> Iterable[_Candidate]:
    for wall in packet.walls:
        for effect in EFFECTS:
            if effect.wall is not wall.wall:
                continue
            for knob in packet.knobs:
                if knob.name == effect.name and knob.cost in packet.budget.allowed_costs:
                    yield from _steps(packet, wall, effect, knob)
    yield from (_together(packet, coupled) for coupled in coupled_moves(packet) if _is_one_step(coupled.move))


def _steps(packet: EvidencePacket, wall: WallPart, effect: KnobEffect, knob: KnobPart) -> Iterable[_Candidate]:
    if not _is_shown(packet, effect) or _gives_away(packet, wall):
        return
    sign = packet.figures.get(effect.signs[0]) if effect.signs else None
    for to_value in neighbours(knob, effect.toward):
        if to_value in knob.tried:
            continue
        yield _Candidate(
            move=(Setting(knob, to_value),),
            wall=wall,
            mechanism=effect.mechanism,
            signs=effect.signs,
            gain=effect.gain,
            probability=_probability(wall, _refuted(packet, knob), sign),
        )


def _together(packet: EvidencePacket, coupled: Coupled) -> _Candidate:
    """That each part alone showed nothing is what the coupling says, and does not count against both."""
    coupling = coupled.coupling
    return _Candidate(
        move=coupled.move,
        wall=coupled.wall,
        mechanism=coupling.mechanism,
        signs=coupling.signs,
        gain=coupling.gain,
        probability=_probability(coupled.wall, 0, packet.figures.get(coupling.signs[0])),
    )


def _is_one_step(move: Move) -> bool:
    return all(setting.value in neighbours(setting.knob) for setting in move)


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """A mechanism that the evidence shows and that says something of a setting."""

    wall: WallPart
    effect: KnobEffect
    gain: float  # the usual one of this setting; below 0 if it is the wrong way

    @property
    def mechanism(self) -> str:
        return self.effect.mechanism

    @property
    def signs(self) -> tuple[str, ...]:
        return self.effect.signs


def spoken_of(packet: EvidencePacket, knob: KnobPart, value: Value) -> Spoken | None:
    """The mechanism that says most of setting this knob so; None where none says anything."""
    found = [
        Spoken(wall=wall, effect=effect, gain=_usual_gain(packet, wall, effect, knob) * way * _reach(knob, value))
        for wall in packet.walls
        for effect in effects_of(knob.name)
        if effect.wall is wall.wall and _is_shown(packet, effect) and not _gives_away(packet, wall)
        if (way := _way(effect.toward, knob, value)) != 0
    ]
    return max(found, key=lambda spoken: abs(spoken.gain), default=None)


def _usual_gain(packet: EvidencePacket, wall: WallPart, effect: KnobEffect, knob: KnobPart) -> float:
    low, high = effect.gain
    return wall.strength * max((low + high) / 2, 0.0) * 0.4 ** _refuted(packet, knob)


def _reach(knob: KnobPart, value: Value) -> float:
    """A mechanism shows itself in full over half of an ordered knob's range, and less in a smaller step."""
    axis = Axis(knob.values)
    if not axis.is_ordered or knob.current not in knob.values:
        return 1.0
    return min(abs(axis.place(value) - axis.place(knob.current)) / IN_FULL, 1.0)


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
    """Where the limit holds, giving throughput away for it is a trade-off that only a person asks for."""
    if wall.wall is not Wall.SLO or packet.objective.direction != "maximize":
        return False
    return all((packet.figures.get(name) or 0.0) <= 1.0 for name in wall.figures)


def _refuted(packet: EvidencePacket, knob: KnobPart) -> int:
    return sum(1 for o in packet.outcomes if o.path == knob.path and o.route == "valid_negative" and o.in_scope)


def _probability(wall: WallPart, refuted: int, sign: float | None) -> float:
    """A standing wall and a strong sign make a gain likelier; refuted neighbours make it less likely."""
    base = 0.25 + 0.35 * wall.strength + (0.25 * min(sign * 2, 1.0) if sign is not None and sign <= 1 else 0.0)
    return round(min(base, 0.9) * 0.4**refuted, 3)


def _draft(candidate: _Candidate, packet: EvidencePacket) -> CardDraft:
    wall, names = candidate.wall, candidate.names
    cited = dict.fromkeys((*wall.figures, *candidate.signs))
    evidence = tuple(
        EvidenceRef(id=name, value=value) for name in cited if (value := packet.figures.get(name)) is not None
    )
    return CardDraft(
        change=change_of(candidate.move),
        wall=wall.wall,
        mechanism=f"{wall.sentence[0].upper()}{wall.sentence[1:]}. {candidate.mechanism}",
        evidence=evidence,
        prediction=Prediction(low=candidate.gain[0], high=candidate.gain[1], probability=candidate.probability),
        if_promising=f"confirm {names} at the formal load and keep it if the gain holds",
        if_negative=f"{names} does not relieve {wall.wall} here; look for another mechanism",
        source=Source.RULES,
    )
