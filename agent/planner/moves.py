"""The moves that are open on the incumbent: every untried single change, and the pairs that an escape card may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, islice

from agent.planner.gaussian_process import Axis
from agent.planner.packet import EvidencePacket, KnobPart
from experiments.knob import Cost
from experiments.serving_config import Change, Kind, Role, Value
from experiments.trial import Reason

REACH = 0.2  # of a numeric knob's range
STEPS = 2
MAX_BUNDLES = 4000


@dataclass(frozen=True)
class Setting:
    """One knob at one value."""

    knob: KnobPart
    value: Value

    @property
    def key(self) -> tuple[str, Value]:
        return self.knob.path, self.value

    @property
    def change(self) -> Change:
        return Change(
            role=Role(self.knob.role),
            kind=Kind(self.knob.kind),
            name=self.knob.name,
            from_value=self.knob.current,
            to_value=self.value,
        )


Move = tuple[Setting, ...]
"""One setting, or the two of a bundle."""


def single_moves(packet: EvidencePacket) -> list[Move]:
    return [
        (Setting(knob, value),) for knob in allowed_knobs(packet) for value in untried(knob) if is_near(knob, value)
    ]


GivesRoom = Callable[[Setting], bool]


def bundle_moves(packet: EvidencePacket, gives_room: GivesRoom) -> list[Move]:
    """Pairs of parts of which a limit stopped one on this configuration, or of which both were tried alone.

    What ran out of memory is only paired with what is known to give room on the same side.
    """
    here = [o for o in packet.outcomes if o.in_scope]
    full = {(o.path, o.to_value) for o in here if o.also is None and o.reason == Reason.INFEASIBLE}
    over = {(o.path, o.to_value) for o in here if o.also is None and o.reason == Reason.SLO_VIOLATED}
    alone = {(o.path, o.to_value) for o in packet.outcomes if o.also is None} | _left_behind(packet)
    done = {frozenset({(o.path, o.to_value), o.also}) for o in here if o.also is not None}
    settings = [
        Setting(knob, value) for knob in allowed_knobs(packet) for value in knob.values if value != knob.current
    ]

    def may_pair(first: Setting, second: Setting) -> bool:
        keys = {first.key, second.key}
        if first.knob.path == second.knob.path or frozenset(keys) in done:
            return False
        if keys & full:
            other = second if first.key in full else first
            return first.knob.role == second.knob.role and other.key not in full and gives_room(other)
        return bool(keys & over) or keys <= alone

    pairs = (pair for pair in combinations(settings, 2) if may_pair(*pair))
    return list(islice(pairs, MAX_BUNDLES))


def _left_behind(packet: EvidencePacket) -> set[tuple[str, Value]]:
    """Settings of earlier incumbents."""
    return {
        (knob.path, value)
        for place, knob in enumerate(packet.knobs)
        for value in knob.tried
        if any(o.values[place] == value for o in packet.observations)
    }


def allowed_knobs(packet: EvidencePacket) -> Iterable[KnobPart]:
    return [knob for knob in packet.knobs if knob.cost in packet.budget.allowed_costs]


def untried(knob: KnobPart) -> list[Value]:
    return [v for v in knob.values if v != knob.current and (v not in knob.tried or v in knob.undecided)]


def is_near(knob: KnobPart, value: Value) -> bool:
    """A numeric knob moves by two values or a fifth of its range at most: further out nothing is known."""
    axis = Axis(knob.values)
    if not axis.is_ordered or knob.current not in knob.values:
        return True
    order = sorted(knob.values, key=axis.place)
    steps = abs(order.index(value) - order.index(knob.current))
    return steps <= STEPS or abs(axis.place(value) - axis.place(knob.current)) <= REACH


def cost_of(move: Move) -> Cost:
    return max((Cost(setting.knob.cost) for setting in move), key=list(Cost).index)


def change_of(move: Move) -> Change:
    first, *rest = (setting.change for setting in move)
    return first.model_copy(update={"also": rest[0]}) if rest else first
