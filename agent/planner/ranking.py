"""Rank moves by what they are expected to bring for the effort of one card. Pure and deterministic per packet.

What the runs so far let one expect comes from the surrogate; what is known of a knob counts until it was turned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent.planner.couplings import coupled_of
from agent.planner.gaussian_process import Axis
from agent.planner.moves import Move, Setting, bundle_moves, cost_of, single_moves
from agent.planner.packet import EvidencePacket
from agent.planner.rules import spoken_of
from agent.planner.surrogate import Outlook, Surrogate, Values
from experiments.card import CardDraft
from experiments.knob import Cost
from experiments.serving_config import digest

# What a run of each cost class takes relative to a hot one: launch, load of weights, warm-up.
EFFORT = {Cost.HOT: 1.0, Cost.RESTART: 2.5, Cost.REBUILD: 10.0}
FIRST_TURN = 1.3  # of a knob that was never turned
STRUCTURE = 3.0  # of a layout, a type or a switch that was never run
BUNDLE = 0.7  # of a bundle: it credits no part, so it has to promise that much more than a single change
WRONG_WAY = 0.3  # of what a move promises that a mechanism speaks against
LEAST_WORTH = 0.002  # below it nothing is promised, and what is left is ordered by hope
FAIR_CHANCE = 0.6  # that a bundle keeps the limits
CHANCE_TO_START = 0.3  # that it runs at all
BUNDLE_HOPE = 0.02


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A move and what is expected of it."""

    move: Move
    outlook: Outlook
    weight: float
    mechanism: float  # the usual gain of a mechanism that speaks for it, below 0 if one speaks against it
    lot: str  # decides between moves of which nothing tells more: the same for one study, another for the next

    @property
    def likely(self) -> float:
        """The probability that it runs within the limits."""
        return self.outlook.keeps_limits * self.outlook.starts

    @property
    def probability(self) -> float:
        """That it gains something and is within the limits: never certain, either way."""
        return round(min(max(self.outlook.gains * self.likely, 0.02), 0.95), 3)

    @property
    def worth(self) -> float:
        gain = self.outlook.improvement * (WRONG_WAY if self.mechanism < 0 else 1.0) + max(self.mechanism, 0.0)
        return self.weight * gain * self.likely / EFFORT[cost_of(self.move)]

    @property
    def hope(self) -> float:
        """How good it would be if all went well, against what may go wrong."""
        return self.outlook.gain_high + 0.1 * math.log(max(self.likely, 1e-9))

    @property
    def may_run(self) -> bool:
        """Two changes at once need a fair chance to run within the limits, and something to gain."""
        if len(self.move) == 1:
            return True
        outlook = self.outlook
        fair = outlook.keeps_limits >= FAIR_CHANCE and outlook.starts >= CHANCE_TO_START
        return fair and outlook.gain_high > BUNDLE_HOPE

    @property
    def order(self) -> tuple[float, float, str]:
        return (-self.worth if self.worth > LEAST_WORTH else 0.0, -round(self.hope, 6), self.lot)


class Ranking:
    """What one packet lets one expect of any move."""

    def __init__(self, packet: EvidencePacket) -> None:
        self._packet = packet
        self._surrogate = Surrogate(packet)
        self._seen = {
            knob.path: {o.values[place] for o in packet.observations} for place, knob in enumerate(packet.knobs)
        }
        self._places = {knob.path: place for place, knob in enumerate(packet.knobs)}

    @property
    def knows_enough(self) -> bool:
        return self._surrogate.knows_enough

    def open_moves(self) -> list[Ranked]:
        """Every move that may be proposed, best first."""
        moves = [*single_moves(self._packet), *bundle_moves(self._packet, self._gives_room)]
        return sorted((r for r in self.judge(moves) if r.may_run), key=lambda r: r.order)

    def judge(self, moves: Sequence[Move]) -> list[Ranked]:
        outlooks = self._surrogate.outlooks([self._values(move) for move in moves])
        return [self._ranked(move, outlook) for move, outlook in zip(moves, outlooks, strict=True)]

    def of_draft(self, draft: CardDraft) -> Ranked | None:
        """What is expected of a draft; None if it names no knob of the packet."""
        knobs = {knob.path: knob for knob in self._packet.knobs}
        parts = draft.change.parts
        if any(str(part.path) not in knobs for part in parts):
            return None
        return self.judge([tuple(Setting(knobs[str(part.path)], part.to_value) for part in parts)])[0]

    def _ranked(self, move: Move, outlook: Outlook) -> Ranked:
        lot = digest([self._packet.study_id, *(setting.key for setting in move)])
        return Ranked(move=move, outlook=outlook, weight=self._weight(move), mechanism=self._mechanism(move), lot=lot)

    def _gives_room(self, setting: Setting) -> bool:
        return self._surrogate.gives_room(self._places[setting.knob.path], setting.value)

    def _values(self, move: Move) -> Values:
        changed = {setting.knob.path: setting.value for setting in move}
        return tuple(changed.get(knob.path, knob.current) for knob in self._packet.knobs)

    def _weight(self, move: Move) -> float:
        """Breadth first, and structure before sizes: a size is fitted to a layout, and can keep one from starting."""
        weight = max(self._novelty(setting) for setting in move)
        return weight * BUNDLE if len(move) > 1 else weight

    def _novelty(self, setting: Setting) -> float:
        knob, seen = setting.knob, self._seen[setting.knob.path]
        if Axis(knob.values).is_ordered:
            return FIRST_TURN if len(seen) < 2 else 1.0
        return STRUCTURE if setting.value not in seen else 1.0

    def _mechanism(self, move: Move) -> float:
        """What is known of a knob counts until it was turned here: then the runs know better."""
        if len(move) > 1:
            coupled = coupled_of(self._packet, move)
            return 0.0 if coupled is None else coupled.expected
        knob, value = move[0].knob, move[0].value
        spoken = spoken_of(self._packet, knob, value)
        expected = 0.0 if spoken is None else spoken.gain
        return min(expected, 0.0) if len(self._seen[knob.path]) > 1 else expected
