"""The optimizer as a proposer: a surrogate of the service over the declared space, learned from every run so far.

It needs no mechanism: it goes where the measured effects, the limits and what was never tried promise most for the
effort of one card. Where a mechanism made it expect more, the draft says which. Deterministic per packet.
"""

from __future__ import annotations

import math

from agent.planner.couplings import Coupled, coupled_of
from agent.planner.moves import Move, change_of
from agent.planner.packet import EvidencePacket, OutcomePart, Proposal
from agent.planner.ranking import Ranked, Ranking
from agent.planner.rules import Spoken, spoken_of
from experiments.card import CardDraft, EvidenceRef, Prediction, Source
from experiments.serving_config import Change

MAX_DRAFTS = 3


class OptimizerProposer:
    """Needs no wall and no mechanism."""

    source = Source.OPTIMIZER

    def propose(self, packet: EvidencePacket) -> Proposal:
        ranking = Ranking(packet)
        if not ranking.knows_enough or packet.figures.get("objective.value") is None:
            return Proposal(drafts=(), note="the incumbent was not measured")
        moves = ranking.open_moves()
        if not moves:
            return Proposal(drafts=(), note="every allowed value was tried on this configuration")
        drafts = tuple(_draft(ranked, packet) for ranked in moves[:MAX_DRAFTS])
        return Proposal(drafts=drafts, note=f"{len(moves)} moves are left")


def _draft(ranked: Ranked, packet: EvidencePacket) -> CardDraft:
    outlook, change = ranked.outlook, change_of(ranked.move)
    names, spoken = text_of(ranked.move), _spoken_for(ranked, packet)
    return CardDraft(
        change=change,
        wall=packet.walls[0].wall if spoken is None else spoken.wall.wall,
        mechanism=no_mechanism(names) if spoken is None else _step_of(spoken, names),
        evidence=evidence_of(packet, change, () if spoken is None else (*spoken.wall.figures, *spoken.signs)),
        prediction=Prediction(
            low=round(math.expm1(outlook.gain_low), 4),
            high=round(math.expm1(outlook.gain_high), 4),
            probability=ranked.probability,
        ),
        if_promising=f"confirm {names} at the formal load",
        if_negative=f"{names} stays closed on this configuration",
        source=Source.OPTIMIZER,
    )


def _spoken_for(ranked: Ranked, packet: EvidencePacket) -> Spoken | Coupled | None:
    """The mechanism that made the optimizer expect more of a move, where one did."""
    if ranked.mechanism <= 0:
        return None
    if len(ranked.move) > 1:
        return coupled_of(packet, ranked.move)
    return spoken_of(packet, ranked.move[0].knob, ranked.move[0].value)


def _step_of(spoken: Spoken | Coupled, names: str) -> str:
    sentence = spoken.wall.sentence
    return f"{sentence[0].upper()}{sentence[1:]}. {spoken.mechanism} The optimizer chose the step to {names}."


def no_mechanism(names: str) -> str:
    return (
        f"No mechanism is claimed: {names} is where the measured effects and the gaps in what was tried point the "
        "optimizer."
    )


def text_of(move: Move) -> str:
    return " with ".join(
        f"{setting.knob.name} = {'unset' if setting.value is None else setting.value}" for setting in move
    )


def evidence_of(packet: EvidencePacket, change: Change, signs: tuple[str, ...] = ()) -> tuple[EvidenceRef, ...]:
    """The objective, the wall and its signs; for a change that was refuted elsewhere also what has changed since."""
    news = [name for o in packet.outcomes if o.suspect and _is_same(o, change) for name in o.new_evidence]
    names = dict.fromkeys(("objective.value", *packet.walls[0].figures, *signs, *news))
    return tuple(EvidenceRef(id=name, value=value) for name in names if (value := packet.figures.get(name)) is not None)


def _is_same(outcome: OutcomePart, change: Change) -> bool:
    parts = {(str(part.path), part.to_value) for part in change.parts}
    return parts == {(outcome.path, outcome.to_value), *([outcome.also] if outcome.also is not None else [])}
