"""Whose turn it is: the model's share, earned by what came of its cards, and the control."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.planner.control import ControlProposer
from agent.planner.packet import EvidencePacket
from agent.planner.share import earned_share, is_control_turn, is_model_turn
from experiments.card import Card, Source
from experiments.classification import Classification
from experiments.goal import PlannerRule
from experiments.ledger import CardClosed
from experiments.study import Study, fold
from experiments.trial import Reason, Route
from tests.agent.planner.test_rules import packet
from tests.factories import EVENING, a_card, a_draft, an_opening

__all__ = ["packet"]


def studied(cards: str, **rule: object) -> Study:
    """`L` and `R` are cards of the model and of the rules that were kept, `l` and `r` that failed, `f` a fault."""
    study = fold([an_opening()])
    goal = study.goal.model_copy(update={"planner": PlannerRule.model_validate(rule)})
    study = replace(study, opened=study.opened.model_copy(update={"goal": goal}))
    for number, kind in enumerate(cards, start=1):
        source = Source.LLM if kind in "Llf" else Source.RULES
        card = a_card(a_draft("decode.flag.max-running-requests", 128, 200 + number, source=source), number=number)
        study.cards[card.digest] = card
        study.closed[card.digest] = closed(card, kind)
    return study


def closed(card: Card, kind: str) -> CardClosed:
    route, reason = {
        "f": (Route.ORCHESTRATION_FAULT, Reason.TRANSPORT),
        "l": (Route.VALID_NEGATIVE, Reason.SLOWER),
        "r": (Route.VALID_NEGATIVE, Reason.SLOWER),
    }.get(kind, (Route.PROMISING, Reason.GAIN))
    word = Classification(route=route, reason=reason, explanation="")
    return CardClosed(at=EVENING, card_digest=card.digest, classification=word, kept=kind.isupper())


def test_the_model_may_lead_the_first_card() -> None:
    """A share that is never asked for would never be earned."""
    assert is_model_turn(studied(""))


def test_the_model_leads_about_its_share_of_the_cards() -> None:
    """With as many keeps as the others, three cards in ten are its own."""
    cards = ""
    for _ in range(40):
        cards += "L" if is_model_turn(studied(cards)) else "R"

    assert 0.25 <= cards.count("L") / len(cards) <= 0.35


def test_a_model_whose_cards_fail_is_asked_less() -> None:
    """Its share falls with every failure that the others do not have."""
    assert earned_share(studied("lRRR")) > earned_share(studied("llRRRR")) > earned_share(studied("lllRRRR"))


def test_a_fault_of_the_pool_is_not_held_against_the_model() -> None:
    """What never ran says nothing about who proposed it."""
    assert earned_share(studied("ffR")) == earned_share(studied("R"))


@pytest.mark.parametrize(("share", "turn"), [(0.0, False), (1.0, True)])
def test_the_share_is_a_setting(share: float, turn: bool) -> None:
    """At 0 the model is never asked, at 1 always while it does no worse than the others."""
    assert is_model_turn(studied("LRL", llm_share=share)) is turn


def test_one_card_in_so_many_is_the_control() -> None:
    """The third, sixth, … with `control_every` 3; none without it."""
    turns = [is_control_turn(studied("R" * n, control_every=3)) for n in range(7)]

    assert turns == [False, False, True, False, False, True, False]
    assert not is_control_turn(studied("RR", control_every=None))


def test_the_control_draws_one_declared_untried_change(packet: EvidencePacket) -> None:
    """By lot, the same for the same packet, and it claims no mechanism."""
    drafts = ControlProposer().propose(packet).drafts

    assert drafts == ControlProposer().propose(packet).drafts
    assert {d.source for d in drafts} == {Source.CONTROL}
    knobs = {k.path: k for k in packet.knobs}
    assert all(d.change.to_value in knobs[str(d.change.path)].values for d in drafts)
