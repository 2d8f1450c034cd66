"""Which knobs only show an effect together, and what evidence says that they would: the mechanism of an escape card.

Where two limits stand at the same place, moving either one alone shows nothing. Whether both may stand on one card is
not decided here: that is the rule of escape cards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.planner.knob_table import MEMORY_NEEDS, Toward
from agent.planner.moves import Move, Setting, bundle_moves
from agent.planner.packet import EvidencePacket, KnobPart, WallPart
from experiments.card import Wall
from experiments.serving_config import Value


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """Two knobs by bare name with the direction of each. The first sign has to be at least `least_sign`."""

    knobs: tuple[tuple[str, Toward], tuple[str, Toward]]
    wall: Wall
    mechanism: str
    signs: tuple[str, ...]
    least_sign: float = 0.0
    gain: tuple[float, float]


COUPLINGS: tuple[Coupling, ...] = (
    Coupling(
        knobs=(("concurrency", Toward.MORE), ("max-running-requests", Toward.MORE)),
        wall=Wall.DECODE_BATCH,
        mechanism="The client's cap and the engine's slots bound the same batch: more requests in flight only wait for "
        "a slot, and more slots stay empty. Both together make the batch larger.",
        signs=("decode.running_share_of_cap", "client.concurrency_mean"),
        least_sign=0.85,
        gain=(0.0, 0.40),
    ),
    Coupling(
        knobs=(("concurrency", Toward.MORE), ("rate", Toward.MORE)),
        wall=Wall.CLIENT_SUPPLY,
        mechanism="A request is sent when both the rate and the cap in flight allow it, so the tighter one hides what "
        "the other would give.",
        signs=("client.concurrency_mean", "client.request_per_s"),
        gain=(0.0, 0.20),
    ),
    Coupling(
        knobs=(("chunked-prefill-size", Toward.MORE), ("mem-fraction-static", Toward.LESS)),
        wall=Wall.PREFILL_SUPPLY,
        mechanism="A larger chunk needs more activation memory than the KV pool leaves; a smaller pool makes room "
        "for it.",
        signs=("prefill.batches",),
        gain=(-0.05, 0.30),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Coupled:
    """A bundle that a coupling speaks for, with the wall that shows it."""

    move: Move
    coupling: Coupling
    wall: WallPart

    @property
    def expected(self) -> float:
        low, high = self.coupling.gain
        return self.wall.strength * (low + high) / 2

    @property
    def mechanism(self) -> str:
        return self.coupling.mechanism

    @property
    def signs(self) -> tuple[str, ...]:
        return self.coupling.signs


def coupled_moves(packet: EvidencePacket) -> Iterable[Coupled]:
    """Every bundle that may stand on a card and that a coupling speaks for, one step of each knob."""
    moves: list[Move] | None = None
    for wall in packet.walls:
        for coupling in COUPLINGS:
            if coupling.wall is wall.wall and _is_shown(packet, coupling):
                moves = bundle_moves(packet, _gives_room) if moves is None else moves
                yield from (Coupled(move=m, coupling=coupling, wall=wall) for m in moves if _is_of(coupling, m))


def coupled_of(packet: EvidencePacket, move: Move) -> Coupled | None:
    """The coupling that the evidence shows and that says most of a bundle; None where none speaks for it."""
    found = [
        Coupled(move=move, coupling=coupling, wall=wall)
        for wall in packet.walls
        for coupling in COUPLINGS
        if coupling.wall is wall.wall and _is_shown(packet, coupling) and _is_of(coupling, move)
    ]
    return max(found, key=lambda coupled: coupled.expected, default=None)


def _is_shown(packet: EvidencePacket, coupling: Coupling) -> bool:
    sign = packet.figures.get(coupling.signs[0])
    return sign is not None and sign >= coupling.least_sign


def _is_of(coupling: Coupling, move: Move) -> bool:
    wanted = dict(coupling.knobs)
    return {s.knob.name for s in move} == set(wanted) and all(_goes(wanted[s.knob.name], s) for s in move)


def _goes(toward: Toward, setting: Setting) -> bool:
    step = _step(setting.knob, setting.value)
    return step > 0 if toward is Toward.MORE else step < 0


def _gives_room(setting: Setting) -> bool:
    return MEMORY_NEEDS.get(setting.knob.name, 0) * _step(setting.knob, setting.value) < 0


def _step(knob: KnobPart, value: Value) -> float:
    """By how much the knob is turned; 0 where that is no number."""
    if isinstance(value, int | float) and isinstance(knob.current, int | float):
        return value - knob.current
    return 0.0
