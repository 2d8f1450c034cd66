"""The LLM proposer in the proposer chain: admitted, repaired, or passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.llm import ChatUnavailable, Message, ScriptedModel
from agent.llm.scripted import Script, Scripted
from agent.planner.chain import Choice, choose_card
from agent.planner.llm_proposer import LlmProposer
from agent.planner.optimizer import OptimizerProposer
from agent.planner.prompt import read_document
from agent.planner.rules import RuleProposer
from experiments.card import Source
from experiments.goal import PlannerRule
from experiments.ledger import CardRejected, ProposalMade
from experiments.study import Study
from tests.agent.llm.packets import CARD, a_late_study, a_packet, a_study, an_answer, packet_of
from tests.factories import EVENING


def with_share(study: Study, share: float) -> Study:
    """The study under a goal in which the model leads on this share of the cards."""
    rule = PlannerRule(llm_share=share, control_every=None)
    goal = study.goal.model_copy(update={"planner": rule})
    return replace(study, opened=study.opened.model_copy(update={"goal": goal}))


def chosen(script: Script | Sequence[Scripted] | None, *, late: bool = False) -> tuple[Choice, list[list[Message]]]:
    """The choice, and what the model heard."""
    study = with_share(a_late_study() if late else a_study(), 1.0)
    model = None if script is None else ScriptedModel(script)
    choice = choose_card(
        study,
        packet_of(study),
        suggesters=(RuleProposer(), OptimizerProposer()),
        planner=None if model is None else LlmProposer(model),
        objections=lambda _: (),
        at=EVENING,
    )
    return choice, [] if model is None else [list(messages) for messages in model.heard]


def test_sensible_answer_becomes_the_card() -> None:
    """The model is told what the other proposers suggest, and its card is taken."""
    choice, heard = chosen([an_answer(CARD)])
    assert choice.card is not None
    assert Source.LLM is choice.card.draft.source
    suggestions = read_document(heard[0])["suggestions"]
    assert isinstance(suggestions, list)
    assert "rules" in {suggestion["source"] for suggestion in suggestions}


def test_refused_answer_is_repaired_with_the_objections() -> None:
    """The second prompt quotes admission's codes; the corrected card is taken."""
    wrong = {**CARD, "evidence": [{"id": "prefill.waiting.mean", "value": 99.0}]}
    choice, heard = chosen([an_answer(wrong), an_answer(CARD)])
    assert choice.card is not None
    assert Source.LLM is choice.card.draft.source
    assert "evidence_mismatch: prefill.waiting.mean is 11.2, the draft says 99" in heard[1][1].content
    assert sum(isinstance(entry, CardRejected) for entry in choice.entries) == 1


def test_model_that_never_learns_costs_three_answers() -> None:
    """Two repair rounds, then the best card of the others."""
    wrong = {**CARD, "to_value": "9"}
    choice, heard = chosen(lambda _: an_answer(wrong))
    assert choice.card is not None
    assert Source.LLM is not choice.card.draft.source
    assert len(heard) == 3


@pytest.mark.parametrize(
    "answer",
    [ChatUnavailable("the LLM endpoint is away: status 503", 12), "no JSON here", {"note": "x"}, an_answer()],
    ids=["down", "prose", "half an answer", "nothing to propose"],
)
def test_useless_model_changes_nothing(answer: Scripted) -> None:
    """The loop goes on with the card that it would have run without any model."""
    without, _ = chosen(None)
    choice, _ = chosen(lambda _: answer)
    assert without.card is not None
    assert choice.card is not None
    assert without.card.draft == choice.card.draft


def test_failure_is_recorded_with_its_tokens() -> None:
    """The ledger says why the model gave no card and what that cost."""
    choice, _ = chosen([ChatUnavailable("the LLM endpoint is away: status 503", 12)])
    (failed,) = [entry for entry in choice.entries if isinstance(entry, ProposalMade)]
    assert (failed.source, failed.failure, failed.tokens) == (Source.LLM, "the LLM endpoint is away: status 503", 12)


def test_refuted_change_is_not_run_again_however_it_is_argued() -> None:
    """A change that was infeasible on this configuration is refused; the reason does not go back as log text."""
    again = {
        **CARD,
        "knob": "decode.flag.mem-fraction-static",
        "to_value": "0.95",
        "mechanism": "The earlier failure was an accident; trust me and run it.",
    }
    choice, heard = chosen(lambda _: an_answer(again), late=True)
    assert choice.card is None or Source.LLM is not choice.card.draft.source
    assert "refuted: decode.flag.mem-fraction-static = 0.95 was refuted on this configuration" in heard[1][1].content
    assert "ran out of device memory" not in heard[1][1].content


def test_two_changes_at_once_cannot_be_said() -> None:
    """A tempting bundle has no place in an answer: what is left of it is one change, or nothing."""
    bundle = {**CARD, "also": {"knob": "decode.flag.max-running-requests", "to_value": "160"}}
    choice, _ = chosen([an_answer(bundle)])
    assert choice.card is not None
    assert str(choice.card.draft.change) == "prefill prefill-max-requests 1 → 2"
    packet = a_packet()
    assert packet.knobs[0].current == choice.card.parent.settings[packet.knobs[0].path]
