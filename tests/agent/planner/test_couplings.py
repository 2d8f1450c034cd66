"""Two knobs of one limit: the pair is proposed by its mechanism, and only once each part showed nothing alone."""

from __future__ import annotations

import pytest

from agent.planner.couplings import COUPLINGS
from agent.planner.knob_table import EFFECTS
from agent.planner.optimizer import OptimizerProposer
from agent.planner.packet import EvidencePacket, KnobPart, ObservationPart, OutcomePart, Side, WallPart
from agent.planner.ranking import Ranking
from agent.planner.rules import RuleProposer
from experiments.card import CardDraft, Source, Wall
from experiments.serving_config import Value
from tests.agent.planner.test_rules import packet

__all__ = ["packet"]

FULL = {"decode.running_share_of_cap": 0.95, "client.concurrency_mean": 35.0, "objective.value": 200.0}


def a_knob(role: str, name: str, current: Value, values: tuple[Value, ...], tried: tuple[Value, ...]) -> KnobPart:
    kind = "client" if role == "client" else "flag"
    return KnobPart(
        path=f"{role}.{kind}.{name}",
        role=role,
        kind=kind,
        name=name,
        current=current,
        values=values,
        cost="hot" if role == "client" else "restart",
        alters_numerics=False,
        relieves=(),
        mechanism="",
        tried=tried,
    )


def closed(path: str, value: Value) -> OutcomePart:
    return OutcomePart(
        card="c",
        change="",
        path=path,
        to_value=value,
        route="valid_negative",
        reason="no_significant_gain",
        gain=0.0,
        source="rules",
        in_scope=True,
        suspect=False,
    )


def a_full_service(packet: EvidencePacket, *, closed_parts: int, figures: dict[str, float | None] = FULL):
    """Every slot is in use by a client at its cap; so many of the two parts were refuted alone."""
    outcomes = (closed("client.client.concurrency", 48), closed("decode.flag.max-running-requests", 64))[:closed_parts]
    wall = WallPart(
        wall=Wall.DECODE_BATCH, strength=0.95, figures=("decode.running_share_of_cap",), sentence="all slots are full"
    )
    knobs = (
        a_knob("client", "concurrency", 36, (24, 36, 48, 72), (48,) if closed_parts > 0 else ()),
        a_knob("decode", "max-running-requests", 32, (32, 64, 128), (64,) if closed_parts > 1 else ()),
    )
    return packet.model_copy(
        update={"walls": (wall,), "knobs": knobs, "outcomes": outcomes, "observations": (), "figures": figures}
    )


def pairs(drafts: tuple[CardDraft, ...]) -> list[set[tuple[str, Value]]]:
    return [{(p.name, p.to_value) for p in d.change.parts} for d in drafts if d.change.also is not None]


def test_the_cap_in_flight_and_the_slots_are_raised_together_once_neither_helped_alone(packet: EvidencePacket) -> None:
    """The draft names the mechanism, cites its signs, and turns each knob by one declared value."""
    [draft] = [d for d in RuleProposer().propose(a_full_service(packet, closed_parts=2)).drafts if d.change.also]

    assert {(p.name, p.to_value) for p in draft.change.parts} == {("concurrency", 48), ("max-running-requests", 64)}
    assert draft.source is Source.RULES
    assert {ref.id: ref.value for ref in draft.evidence} == {
        "decode.running_share_of_cap": 0.95,
        "client.concurrency_mean": 35.0,
    }


@pytest.mark.parametrize("closed_parts", [0, 1])
def test_a_pair_of_which_a_part_was_not_tried_is_not_proposed(packet: EvidencePacket, closed_parts: int) -> None:
    """A tempting pair waits: one change at a time comes first."""
    assert pairs(RuleProposer().propose(a_full_service(packet, closed_parts=closed_parts)).drafts) == []


@pytest.mark.parametrize("share", [0.5, None])
def test_without_its_sign_a_coupling_speaks_for_nothing(packet: EvidencePacket, share: float | None) -> None:
    """Slots that are free, or were not observed, are no reason for more of both."""
    figures = {**FULL, "decode.running_share_of_cap": share}

    assert pairs(RuleProposer().propose(a_full_service(packet, closed_parts=2, figures=figures)).drafts) == []


def test_a_pair_that_was_run_is_not_proposed_again(packet: EvidencePacket) -> None:
    """What the combination came to is known."""
    space = a_full_service(packet, closed_parts=2)
    done = closed("client.client.concurrency", 48).model_copy(update={"also": ("decode.flag.max-running-requests", 64)})

    assert pairs(RuleProposer().propose(space.model_copy(update={"outcomes": (*space.outcomes, done)})).drafts) == []


def test_the_ranking_counts_what_a_coupling_promises(packet: EvidencePacket) -> None:
    """Of the same pair more is expected where the evidence shows the coupling."""
    shown, hidden = (
        next(d for d in RuleProposer().propose(a_full_service(packet, closed_parts=2)).drafts if d.change.also),
        a_full_service(packet, closed_parts=2, figures={**FULL, "decode.running_share_of_cap": 0.5}),
    )
    with_sign, without = (Ranking(p).of_draft(shown) for p in (a_full_service(packet, closed_parts=2), hidden))

    assert with_sign is not None
    assert without is not None
    assert with_sign.mechanism == pytest.approx(0.19)
    assert without.mechanism == 0.0


def test_every_coupling_is_of_knobs_that_the_table_knows() -> None:
    """A pair is no way around the knob table, but for the memory that one knob gives to another."""
    known = {effect.name for effect in EFFECTS}

    assert {name for coupling in COUPLINGS for name, _ in coupling.knobs} <= known


def test_a_pair_that_the_optimizer_chose_says_which_coupling_speaks_for_it(packet: EvidencePacket) -> None:
    """Steps of any size: the draft of the pair names the mechanism and cites its signs."""
    space = a_full_service(packet, closed_parts=2)
    here = ObservationPart(
        values=(36, 32),
        runs=3,
        objective=200.0,
        limits=tuple(0.5 for _ in space.objective.constraints),
        side=Side.DECODE,
        infeasible=False,
    )

    drafts = OptimizerProposer().propose(space.model_copy(update={"observations": (here,)})).drafts

    [pair] = [d for d in drafts if d.change.also is not None][:1]
    assert "bound the same batch" in pair.mechanism
    assert {"decode.running_share_of_cap", "client.concurrency_mean"} <= {ref.id for ref in pair.evidence}
