"""The optimizer as a proposer: one untried change of the declared space, reproducibly."""

from __future__ import annotations

from agent.planner.optimizer import OptimizerProposer
from agent.planner.packet import EvidencePacket
from tests.agent.planner.test_rules import packet

__all__ = ["packet"]


def test_each_draft_is_one_untried_allowed_value(packet: EvidencePacket) -> None:
    """TPE draws whole configurations; what is proposed is a single declared change."""
    knobs = {knob.path: knob for knob in packet.knobs}

    drafts = OptimizerProposer().propose(packet).drafts

    assert drafts
    for draft in drafts:
        knob = knobs[str(draft.change.path)]
        assert draft.change.to_value in knob.values
        assert draft.change.to_value not in (*knob.tried, knob.current)


def test_one_packet_gives_one_answer(packet: EvidencePacket) -> None:
    """The sampler is seeded by the packet's digest."""
    assert OptimizerProposer().propose(packet) == OptimizerProposer().propose(packet)


def test_an_exhausted_space_gives_no_draft(packet: EvidencePacket) -> None:
    """Where every value was tried, the answer is none and not a repetition."""
    knobs = tuple(knob.model_copy(update={"tried": knob.values}) for knob in packet.knobs)

    assert OptimizerProposer().propose(packet.model_copy(update={"knobs": knobs})).drafts == ()


def test_without_a_measured_objective_nothing_is_proposed(packet: EvidencePacket) -> None:
    """An optimizer without a single observation has nothing to go by."""
    figures = {**packet.figures, "objective.value": None}

    assert OptimizerProposer().propose(packet.model_copy(update={"figures": figures})).drafts == ()
