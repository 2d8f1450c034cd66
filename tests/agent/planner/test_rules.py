"""The mechanism-rule proposer: it fires on evidence, steps one value at a time, and stays quiet otherwise."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agent.planner.evidence import assemble_packet
from agent.planner.knob_table import Toward
from agent.planner.packet import EvidencePacket, KnobPart, WallPart
from agent.planner.rules import RuleProposer, neighbours
from experiments.card import Wall
from experiments.serving_config import Value
from experiments.study import fold
from tests.agent.planner.test_evidence_packet import baseline_entries
from tests.factories import EVENING


@pytest.fixture
def packet() -> EvidencePacket:
    return assemble_packet(fold(baseline_entries()), EVENING + timedelta(hours=1), allowed_costs=("hot", "restart"))


def with_figures(packet: EvidencePacket, **changes: float | None) -> EvidencePacket:
    figures = {**packet.figures, **{name.replace("__", "."): value for name, value in changes.items()}}
    return packet.model_copy(update={"figures": figures})


def test_lone_tails_under_a_prefill_wall_lead_to_one_more_request_per_batch(packet: EvidencePacket) -> None:
    """The mechanism is found from its figures, and the step is the next declared value."""
    best = RuleProposer().propose(packet).drafts[0]

    assert (best.change.name, best.change.from_value, best.change.to_value) == ("prefill-max-requests", 1, 2)
    assert {ref.id for ref in best.evidence} >= {"prefill.waiting.share_positive", "prefill.lone_tail_share"}


def test_without_lone_tails_the_batch_cap_is_not_proposed(packet: EvidencePacket) -> None:
    """A mechanism that the evidence does not show is not claimed."""
    drafts = RuleProposer().propose(with_figures(packet, prefill__lone_tail_share=0.0)).drafts

    assert all(draft.change.name != "prefill-max-requests" for draft in drafts)


def test_an_unobserved_sign_fires_no_rule(packet: EvidencePacket) -> None:
    """NOT_OBSERVED is not a small number."""
    drafts = RuleProposer().propose(with_figures(packet, prefill__lone_tail_share=None)).drafts

    assert all(draft.change.name != "prefill-max-requests" for draft in drafts)


def test_every_cited_value_is_the_packets_own(packet: EvidencePacket) -> None:
    """Rules cannot cite what was not measured."""
    for draft in RuleProposer().propose(packet).drafts:
        for ref in draft.evidence:
            assert packet.figures[ref.id] == ref.value


def test_a_cost_class_that_is_not_allowed_is_not_proposed(packet: EvidencePacket) -> None:
    """What could not start is not worth a card."""
    budget = packet.budget.model_copy(update={"allowed_costs": ("hot",)})

    drafts = RuleProposer().propose(packet.model_copy(update={"budget": budget})).drafts

    assert all(draft.change.name != "prefill-max-requests" for draft in drafts)


def test_the_proposer_is_deterministic(packet: EvidencePacket) -> None:
    """One packet, one answer."""
    assert RuleProposer().propose(packet) == RuleProposer().propose(packet)


def slo(packet: EvidencePacket, share: float) -> EvidencePacket:
    """A load as a knob, and a wall that says how near the latency is to its limit."""
    wall = WallPart(wall=Wall.SLO, strength=0.8, figures=("slo.tpot_mean.share_of_limit",), sentence="TPOT is near")
    knob = KnobPart(
        path="client.client.concurrency",
        role="client",
        kind="client",
        name="concurrency",
        current=128,
        values=(64, 96, 128),
        cost="hot",
        alters_numerics=False,
        relieves=(),
        mechanism="",
        tried=(),
    )
    figures = {**packet.figures, "slo.tpot_mean.share_of_limit": share, "client.tpot_mean_ms": 20.0 * share}
    return packet.model_copy(update={"walls": (wall,), "knobs": (knob,), "figures": figures})


def test_a_broken_limit_leads_to_fewer_requests_in_flight(packet: EvidencePacket) -> None:
    """The cheap move first: the load is hot, and every latency falls with it."""
    [draft] = RuleProposer().propose(slo(packet, 1.1)).drafts

    assert (draft.change.name, draft.change.to_value, draft.wall) == ("concurrency", 96, Wall.SLO)


def test_a_limit_that_holds_is_no_reason_to_give_throughput_away(packet: EvidencePacket) -> None:
    """Latency for throughput is a trade-off that a person asks for."""
    assert RuleProposer().propose(slo(packet, 0.97)).drafts == ()


def test_one_change_is_one_draft_however_many_mechanisms_speak_for_it(packet: EvidencePacket) -> None:
    """Full slots and a queue before them are two signs of one step."""
    wall = WallPart(wall=Wall.DECODE_BATCH, strength=0.9, figures=(), sentence="decode is full")
    figures = {**packet.figures, "decode.running_share_of_cap": 0.97, "decode.prealloc.share_positive": 0.8}

    drafts = RuleProposer().propose(packet.model_copy(update={"walls": (wall,), "figures": figures})).drafts

    assert [d.change.name for d in drafts].count("max-running-requests") == 1


@pytest.mark.parametrize(
    ("values", "current", "toward", "expected"),
    [
        ((1, 2, 3, 4), 2, Toward.MORE, (3,)),
        ((1, 2, 3, 4), 2, Toward.LESS, (1,)),
        ((1, 2, 3, 4), 2, Toward.EITHER, (3, 1)),
        ((1, 2, 3, 4), 4, Toward.MORE, ()),
        (("static", "dynamic"), "static", Toward.EITHER, ("dynamic",)),
        ((8, 16), None, Toward.MORE, (8, 16)),
    ],
)
def test_neighbours_are_the_next_declared_values(
    values: tuple[Value, ...], current: Value, toward: Toward, expected: tuple[Value, ...]
) -> None:
    """A step is one declared value, never a jump, so that an effect can be credited."""
    knob = KnobPart(
        path="prefill.flag.x",
        role="prefill",
        kind="flag",
        name="x",
        current=current,
        values=values,
        cost="restart",
        alters_numerics=False,
        relieves=(),
        mechanism="",
        tried=(),
    )

    assert neighbours(knob, toward) == expected


@pytest.mark.parametrize(("share", "proposed"), [(0.8, True), (0.98, False)])
def test_ranks_that_run_dry_at_times_lead_to_more_requests_in_flight(
    packet: EvidencePacket, share: float, proposed: bool
) -> None:
    """A prefill queue that is there in most samples but not in all; where it always stands, more only waits longer."""
    knob = slo(packet, 0.5).knobs[0].model_copy(update={"current": 96})
    wall = WallPart(wall=Wall.PREFILL_SUPPLY, strength=share, figures=(), sentence="requests wait for prefill")
    figures = {**packet.figures, "prefill.waiting.share_positive": share}
    space = packet.model_copy(update={"walls": (wall,), "knobs": (knob,), "figures": figures})

    drafts = RuleProposer().propose(space).drafts

    assert [(d.change.name, d.change.to_value) for d in drafts] == ([("concurrency", 128)] if proposed else [])
