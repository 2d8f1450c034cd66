"""The random control: one untried change, drawn by lot. What the other proposers are worth shows against it."""

from __future__ import annotations

from agent.planner.moves import Move, change_of, single_moves
from agent.planner.optimizer import evidence_of, text_of
from agent.planner.packet import EvidencePacket, Proposal
from experiments.card import CardDraft, Prediction, Source
from experiments.serving_config import digest

MAX_DRAFTS = 3


class ControlProposer:
    """Deterministic per packet: the lot is its digest."""

    source = Source.CONTROL

    def propose(self, packet: EvidencePacket) -> Proposal:
        lot = packet.digest
        moves = sorted(single_moves(packet), key=lambda move: digest([lot, move[0].key]))
        if packet.figures.get("objective.value") is None:
            return Proposal(drafts=(), note="the incumbent was not measured")
        return Proposal(drafts=tuple(_draft(move, packet) for move in moves[:MAX_DRAFTS]))


def _draft(move: Move, packet: EvidencePacket) -> CardDraft:
    change = change_of(move)
    return CardDraft(
        change=change,
        wall=packet.walls[0].wall,
        mechanism="Drawn by lot, as a control of what the other proposers are worth.",
        evidence=evidence_of(packet, change),
        prediction=Prediction(low=-0.20, high=0.20, probability=0.1),
        if_promising=f"confirm {text_of(move)} at the formal load",
        if_negative=f"{text_of(move)} stays closed on this configuration",
        source=Source.CONTROL,
    )
