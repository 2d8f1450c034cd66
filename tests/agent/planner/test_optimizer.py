"""Either optimizer as a proposer: one untried change of the declared space, reproducibly."""

from __future__ import annotations

from typing import get_args

import pytest

from agent.planner.observations import Side
from agent.planner.optimizers import OPTIMIZERS, optimizer_of
from agent.planner.packet import EvidencePacket, ObservationPart
from agent.planner.port import Proposer
from experiments.goal import PlannerRule
from experiments.serving_config import Value
from tests.agent.planner.test_rules import packet

__all__ = ["packet"]


@pytest.fixture(params=sorted(OPTIMIZERS))
def optimizer(request: pytest.FixtureRequest) -> Proposer:
    return optimizer_of(request.param)


def test_every_optimizer_of_a_goal_stands_behind_the_port() -> None:
    """What a goal may name, and no more."""
    assert set(get_args(PlannerRule.model_fields["optimizer"].annotation)) == set(OPTIMIZERS)


def test_each_draft_is_one_untried_allowed_value(packet: EvidencePacket, optimizer: Proposer) -> None:
    """TPE draws whole configurations; what is proposed is a single declared change."""
    knobs = {knob.path: knob for knob in packet.knobs}

    drafts = optimizer.propose(packet).drafts

    assert drafts
    for draft in drafts:
        knob = knobs[str(draft.change.path)]
        assert draft.change.to_value in knob.values
        assert draft.change.to_value not in (*knob.tried, knob.current)


def test_one_packet_gives_one_answer(packet: EvidencePacket, optimizer: Proposer) -> None:
    """What is drawn is drawn by the packet's digest."""
    assert optimizer.propose(packet) == optimizer.propose(packet)


def test_an_exhausted_space_gives_no_draft(packet: EvidencePacket, optimizer: Proposer) -> None:
    """Where every value was tried, the answer is none and not a repetition."""
    knobs = tuple(knob.model_copy(update={"tried": knob.values}) for knob in packet.knobs)

    assert optimizer.propose(packet.model_copy(update={"knobs": knobs})).drafts == ()


def test_without_a_measured_objective_nothing_is_proposed(packet: EvidencePacket, optimizer: Proposer) -> None:
    """An optimizer without a single observation has nothing to go by."""
    figures = {**packet.figures, "objective.value": None}

    assert optimizer.propose(packet.model_copy(update={"figures": figures})).drafts == ()


def test_tpe_draws_away_from_what_could_not_run(packet: EvidencePacket) -> None:
    """A configuration that could not run is a violated constraint: among many runs the ones beside it come last."""
    knob = next(knob for knob in packet.knobs if len(knob.values) > 2 and knob.cost == "restart")
    place = packet.knobs.index(knob)
    here = tuple(k.current for k in packet.knobs)
    bad, *good = [v for v in knob.values if v != knob.current]

    def observed(value: Value, *, infeasible: bool) -> ObservationPart:
        values = (*here[:place], value, *here[place + 1 :])
        objective = None if infeasible else 200.0
        limits = tuple(None if infeasible else 0.5 for _ in packet.objective.constraints)
        return ObservationPart(
            values=values, runs=1, objective=objective, limits=limits, side=Side.UNKNOWN, infeasible=infeasible
        )

    observations = (
        *packet.observations,
        *(observed(value, infeasible=False) for value in good for _ in range(4)),
        *(observed(bad, infeasible=True) for _ in range(4)),
    )
    told = packet.model_copy(update={"observations": observations})

    drafts = optimizer_of("tpe").propose(told).drafts

    assert (str(drafts[0].change.path), drafts[0].change.to_value) != (knob.path, bad)


def test_a_step_that_a_mechanism_speaks_for_says_which(packet: EvidencePacket) -> None:
    """The optimizer chooses how far; the draft names the mechanism that made it expect more, and cites its signs."""
    drafts = optimizer_of("surrogate").propose(packet).drafts

    spoken = [d for d in drafts if d.change.name == "prefill-max-requests"]
    assert spoken
    for draft in spoken:
        assert "lets the tail share that cost" in draft.mechanism
        assert "prefill.lone_tail_share" in {ref.id for ref in draft.evidence}
    assert all("No mechanism is claimed" in d.mechanism for d in drafts if d not in spoken)
