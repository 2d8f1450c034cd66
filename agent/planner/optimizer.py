"""The optimizer as a proposer: a surrogate of the service over the declared space, learned from every run so far.

It needs no mechanism: it goes where the measured effects, the limits and what was never tried promise most for the
effort of one card. Deterministic per packet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.planner.gaussian_process import Axis
from agent.planner.moves import Move, bundle_moves, change_of, cost_of, single_moves
from agent.planner.packet import EvidencePacket, OutcomePart, Proposal
from agent.planner.rules import expected_of_mechanism
from agent.planner.surrogate import Outlook, Surrogate, Values
from experiments.card import CardDraft, EvidenceRef, Prediction, Source
from experiments.knob import Cost
from experiments.serving_config import Change, Value, digest

MAX_DRAFTS = 3
# What a run of each cost class takes relative to a hot one: launch, load of weights, warm-up.
EFFORT = {Cost.HOT: 1.0, Cost.RESTART: 2.5, Cost.REBUILD: 10.0}
FIRST_TURN = 1.3  # of a knob that was never turned
STRUCTURE = 3.0  # of a layout, a type or a switch that was never run
LEAST_WORTH = 0.002
FAIR_CHANCE = 0.6
WRONG_WAY = 0.3  # of what a move promises that a mechanism speaks against
BUNDLE_WORTH = 0.7  # a bundle credits no part, so it has to promise that much more than a single change


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A move and what is expected of it."""

    move: Move
    outlook: Outlook
    weight: float
    mechanism: float  # the usual gain of a mechanism that speaks for it

    @property
    def worth(self) -> float:
        likely = self.outlook.keeps_limits * self.outlook.starts
        gain = self.outlook.improvement * (WRONG_WAY if self.mechanism < 0 else 1.0) + max(self.mechanism, 0.0)
        return self.weight * gain * likely / EFFORT[cost_of(self.move)]

    @property
    def may_be_bundle(self) -> bool:
        """Two changes at once need a fair chance to run within the limits and to gain something."""
        return min(self.outlook.keeps_limits, self.outlook.starts) >= FAIR_CHANCE and self.outlook.gain_high > 0.02

    @property
    def hope(self) -> float:
        """Orders what promises nothing: how good it would be if all went well, against what may go wrong."""
        likely = self.outlook.keeps_limits * self.outlook.starts
        return self.outlook.gain_high + 0.1 * math.log(max(likely, 1e-9))


class OptimizerProposer:
    """Needs no wall and no mechanism."""

    source = Source.OPTIMIZER

    def propose(self, packet: EvidencePacket) -> Proposal:
        surrogate = Surrogate(packet)
        if not surrogate.knows_enough or packet.figures.get("objective.value") is None:
            return Proposal(drafts=(), note="the incumbent was not measured")
        ranked = rank(packet, surrogate)
        if not ranked:
            return Proposal(drafts=(), note="every allowed value was tried on this configuration")
        drafts = tuple(_draft(item, packet) for item in ranked[:MAX_DRAFTS])
        return Proposal(drafts=drafts, note=f"{len(ranked)} moves are left")


def rank(packet: EvidencePacket, surrogate: Surrogate) -> list[Ranked]:
    """Best first. Between moves of which nothing tells more a lot decides, the same for one study."""
    places = {knob.path: place for place, knob in enumerate(packet.knobs)}
    bundles = bundle_moves(packet, lambda s: surrogate.gives_room(places[s.knob.path], s.value))
    moves = [*single_moves(packet), *bundles]
    outlooks = surrogate.outlooks([_values(packet, move) for move in moves])
    seen = seen_values(packet)
    ranked = [
        Ranked(move=move, outlook=outlook, weight=_weight(move, seen), mechanism=_mechanism(packet, move, seen))
        for move, outlook in zip(moves, outlooks, strict=True)
    ]
    ranked = [r for r in ranked if len(r.move) == 1 or r.may_be_bundle]
    return sorted(ranked, key=lambda r: (-r.worth if r.worth > LEAST_WORTH else 0.0, -round(r.hope, 6), _lot(packet, r.move)))


def seen_values(packet: EvidencePacket) -> dict[str, set[Value]]:
    """The values of each knob that were run, on any configuration."""
    return {knob.path: {o.values[place] for o in packet.observations} for place, knob in enumerate(packet.knobs)}


def _weight(move: Move, seen: dict[str, set[Value]]) -> float:
    """Breadth first, and structure before sizes: a size is fitted to a layout, and can keep a layout from starting."""
    if len(move) > 1:
        return BUNDLE_WORTH
    knob, value = move[0].knob, move[0].value
    if Axis(knob.values).is_ordered:
        return FIRST_TURN if len(seen[knob.path]) < 2 else 1.0
    return STRUCTURE if value not in seen[knob.path] else 1.0


def _mechanism(packet: EvidencePacket, move: Move, seen: dict[str, set[Value]]) -> float:
    """What is known of a knob counts until it was turned here: then the runs know better."""
    if len(move) > 1:
        return 0.0
    knob, value = move[0].knob, move[0].value
    expected = expected_of_mechanism(packet, knob, value)
    return min(expected, 0.0) if len(seen[knob.path]) > 1 else expected


def _values(packet: EvidencePacket, move: Move) -> Values:
    changed = {setting.knob.path: setting.value for setting in move}
    return tuple(changed.get(knob.path, knob.current) for knob in packet.knobs)


def _lot(packet: EvidencePacket, move: Move) -> str:
    return digest([packet.study_id, *(setting.key for setting in move)])


def _draft(ranked: Ranked, packet: EvidencePacket) -> CardDraft:
    outlook, change = ranked.outlook, change_of(ranked.move)
    names = " with ".join(f"{setting.knob.name} = {setting.value}" for setting in ranked.move)
    return CardDraft(
        change=change,
        wall=packet.walls[0].wall,
        mechanism=f"No mechanism is claimed: {names} is where the measured effects and the gaps "
        "in what was tried point the optimizer.",
        evidence=_evidence(packet, change),
        prediction=Prediction(low=round(outlook.gain_low, 4), high=round(outlook.gain_high, 4), probability=0.15),
        if_promising=f"confirm {names} at the formal load",
        if_negative=f"{names} stays closed on this configuration",
        source=Source.OPTIMIZER,
    )


def _evidence(packet: EvidencePacket, change: Change) -> tuple[EvidenceRef, ...]:
    """The objective and the wall; for a change that was refuted elsewhere also what has changed since."""
    news = [name for o in packet.outcomes if o.suspect and _is_same(o, change) for name in o.new_evidence]
    names = dict.fromkeys(("objective.value", *packet.walls[0].figures, *news))
    return tuple(EvidenceRef(id=name, value=value) for name in names if (value := packet.figures.get(name)) is not None)


def _is_same(outcome: OutcomePart, change: Change) -> bool:
    parts = {(str(part.path), part.to_value) for part in change.parts}
    return parts == {(outcome.path, outcome.to_value), *([outcome.also] if outcome.also is not None else [])}
