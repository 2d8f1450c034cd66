"""The moves that are open on the incumbent: every untried single change, and the pairs that an escape card may hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from agent.planner.gaussian_process import Axis
from agent.planner.packet import EvidencePacket, KnobPart
from experiments.escape import STOPPED_BY_A_LIMIT
from experiments.knob import Cost
from experiments.serving_config import Change, Kind, Role, Value

REACH = 1 / 3  # of a numeric knob's range
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
        (Setting(knob, value),)
        for knob in allowed_knobs(packet)
        for value in untried(knob)
        if is_near(knob, value)
    ]


def bundle_moves(packet: EvidencePacket) -> list[Move]:
    """Pairs of parts of which a limit stopped one on this configuration, or of which both were tried alone."""
    tried = {(o.path, o.to_value) for o in packet.outcomes if o.also is None}
    stopped = {(o.path, o.to_value) for o in packet.outcomes if _was_stopped(o)}
    settings = [
        Setting(knob, value) for knob in allowed_knobs(packet) for value in knob.values if value != knob.current
    ]
    left = {s.key for s in settings if s.value in s.knob.tried}
    alone = tried | left
    done = {frozenset({(o.path, o.to_value), o.also}) for o in packet.outcomes if o.also is not None and o.in_scope}
    pairs = (
        pair
        for pair in _pairs(settings, stopped, alone)
        if frozenset({pair[0].key, pair[1].key}) not in done
    )
    return [pair for _, pair in zip(range(MAX_BUNDLES), pairs, strict=False)]


def _was_stopped(outcome: object) -> bool:
    return outcome.in_scope and outcome.also is None and outcome.reason in STOPPED_BY_A_LIMIT  # type: ignore


def _pairs(
    settings: list[Setting], stopped: set[tuple[str, Value]], alone: set[tuple[str, Value]]
) -> Iterator[Move]:
    for first, second in combinations(settings, 2):
        if first.knob.path == second.knob.path:
            continue
        keys = {first.key, second.key}
        if keys & stopped or keys <= alone:
            yield first, second


def allowed_knobs(packet: EvidencePacket) -> Iterable[KnobPart]:
    return [knob for knob in packet.knobs if knob.cost in packet.budget.allowed_costs]


def untried(knob: KnobPart) -> list[Value]:
    return [v for v in knob.values if v != knob.current and v not in knob.tried]


def is_near(knob: KnobPart, value: Value) -> bool:
    """A numeric knob moves by a third of its range at most, or one value: further out nothing is known."""
    axis = Axis(knob.values)
    if not axis.is_ordered or knob.current not in knob.values:
        return True
    order = sorted(knob.values, key=axis.place)
    steps = abs(order.index(value) - order.index(knob.current))
    return steps <= 1 or abs(axis.place(value) - axis.place(knob.current)) <= REACH


def cost_of(move: Move) -> Cost:
    return max((Cost(setting.knob.cost) for setting in move), key=list(Cost).index)


def change_of(move: Move) -> Change:
    first, *rest = (setting.change for setting in move)
    return first.model_copy(update={"also": rest[0]}) if rest else first
