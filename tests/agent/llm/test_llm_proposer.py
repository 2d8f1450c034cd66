"""From a packet over a scripted model to drafts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.llm import ChatUnavailable, Message, ScriptedModel
from agent.planner.llm_answer import PlannerAnswer
from agent.planner.llm_proposer import LlmProposer
from agent.planner.port import ProposerUnavailable
from agent.planner.prompt import read_document, render
from experiments.admission import Code, Rejection, admit
from experiments.card import Card, CardDraft, Source, Wall
from tests.agent.llm.packets import CARD, a_packet, a_study, an_answer


def proposed(*cards: dict[str, object], **packet: object) -> tuple[CardDraft, ...]:
    return LlmProposer(ScriptedModel([an_answer(*cards)])).propose(a_packet(**packet)).drafts


def a_card(**changes: object) -> dict[str, object]:
    return {**CARD, **changes}


def test_answer_becomes_a_draft_that_admission_takes() -> None:
    """The whole way: prompt, answer, draft, card."""
    packet = a_packet()
    proposal = LlmProposer(ScriptedModel([an_answer(CARD)])).propose(packet)
    (draft,) = proposal.drafts
    card = admit(draft, a_study(), packet.figures)
    assert isinstance(card, Card)
    assert str(draft.change) == "prefill prefill-max-requests 1 → 2"
    assert (Source.LLM, Wall.PREFILL_SUPPLY, proposal.tokens) == (draft.source, draft.wall, draft.tokens)
    assert (draft.prediction.low, draft.prediction.high, draft.prediction.probability) == (0.05, 0.35, 0.7)
    assert render(packet, 48_000).digest == draft.prompt_digest
    assert proposal.note == "prefill binds"


def test_present_value_is_the_packets_not_the_models() -> None:
    """A model that claims another present value is not believed; there is no field for it."""
    (draft,) = proposed(a_card(from_value=7, current="9"))
    assert draft.change.from_value == 1


def test_cited_figures_are_kept_for_admission_to_check() -> None:
    """An invented id and a wrong value arrive as they were written, and are refused by code."""
    packet = a_packet()
    for evidence, code in (
        ({"id": "prefill.magic", "value": 1.0}, Code.EVIDENCE_UNKNOWN),
        ({"id": "prefill.waiting.mean", "value": 12.0}, Code.EVIDENCE_MISMATCH),
        ({"id": "decode.prealloc.mean", "value": 0.0}, Code.EVIDENCE_UNKNOWN),
    ):
        (draft,) = proposed(a_card(evidence=[evidence]))
        refused = admit(draft, a_study(), packet.figures)
        assert isinstance(refused, Rejection)
        assert (code,) == refused.codes


def test_figures_of_the_prompt_pass_admission_as_they_are_shown() -> None:
    """Rounding for the prompt stays within admission's tolerance, for every figure."""
    packet = a_packet()
    figures = read_document(render(packet, 48_000).messages)["figures"]
    assert isinstance(figures, list)
    (draft,) = proposed(a_card(evidence=figures[:20]))
    assert isinstance(admit(draft, a_study(), packet.figures), Card)


def test_three_cards_at_most_in_their_order_and_no_change_twice() -> None:
    """Ranked as answered; a repeated change and a fourth card are left out."""
    cards = [a_card(to_value=str(value)) for value in (3, 2, 3, 4)]
    assert [draft.change.to_value for draft in proposed(*cards)] == [3, 2]


@pytest.mark.parametrize("written", [2, 2.0, "2", " 2 ", "2.0", '"2"', "`2`"], ids=repr)
def test_values_are_read_however_they_are_written(written: object) -> None:
    """2, 2.0 and "2" are the listed value 2, with its type."""
    (draft,) = proposed(a_card(to_value=written))
    assert (2, int) == (draft.change.to_value, type(draft.change.to_value))


@pytest.mark.parametrize(
    ("path", "written", "value"),
    [
        ("decode.env.SGLANG_ENABLE_COMPACT", 1, "1"),
        ("decode.flag.mem-fraction-static", ".95", 0.95),
        ("client.client.concurrency", "100", 100),
        ("prefill.layout.expert-location", "scene-16k", "scene-16k"),
        ("prefill.flag.prefill-max-requests", "9", 9),
        ("prefill.flag.prefill-max-requests", "2.5", 2.5),
        ("prefill.flag.prefill-max-requests", "nan", "nan"),
        ("prefill.flag.prefill-max-requests", "1e999", "1e999"),
        ("prefill.flag.prefill-max-requests", "$(touch /tmp/x)", "$(touch /tmp/x)"),
    ],
)
def test_unlisted_value_is_left_to_admission(path: str, written: object, value: object) -> None:
    """A value between the listed ones of a range is read in the knob's type; nonsense stays nonsense."""
    (draft,) = proposed(a_card(knob=path, to_value=written))
    assert (value, type(value)) == (draft.change.to_value, type(draft.change.to_value))


@pytest.mark.parametrize(
    "name", ["--prefill-max-requests", "prefill_max_requests", "`prefill.flag.prefill-max-requests`"]
)
def test_knob_is_found_by_its_bare_name_where_only_one_has_it(name: str) -> None:
    """Models write flags as on a command line."""
    (draft,) = proposed(a_card(knob=name))
    assert str(draft.change.path) == "prefill.flag.prefill-max-requests"


def test_name_that_two_knobs_share_is_not_guessed() -> None:
    """A bare name of two roles is no knob."""
    packet = a_packet()
    twin = packet.knobs[0].model_copy(update={"path": "decode.flag.prefill-max-requests", "role": "decode"})
    answers = [an_answer(a_card(knob="prefill-max-requests"))] * 2
    with pytest.raises(ProposerUnavailable, match="names a knob"):
        LlmProposer(ScriptedModel(answers)).propose(packet.model_copy(update={"knobs": (*packet.knobs, twin)}))


def test_answer_without_a_knob_is_asked_again_with_the_knobs() -> None:
    """One round here, with what was wrong; the tokens of both answers count."""
    model = ScriptedModel([an_answer(a_card(knob="decode.flag.model-path")), an_answer(CARD)])
    proposal = LlmProposer(model).propose(a_packet())
    first, second = model.heard
    assert "is not a knob; the knobs are prefill.flag.prefill-max-requests" in second[1].content
    assert "is not a knob" not in first[1].content
    assert proposal.drafts[0].change.to_value == 2
    alone = LlmProposer(ScriptedModel([an_answer(CARD)])).propose(a_packet())
    assert proposal.tokens > 1.9 * alone.tokens


def test_one_bad_card_does_not_cost_the_others() -> None:
    """The card that names no knob is left out and the note says so."""
    model = ScriptedModel([an_answer(a_card(knob="nothing"), CARD)])
    proposal = LlmProposer(model).propose(a_packet())
    assert 1 == len(proposal.drafts) == len(model.heard)
    assert "'nothing' is not a knob" in proposal.note


def test_no_card_is_a_good_answer() -> None:
    """A model that sees nothing worth a run is not asked again."""
    model = ScriptedModel([an_answer(note="every step left is below the noise")])
    proposal = LlmProposer(model).propose(a_packet())
    assert (proposal.drafts, proposal.note, len(model.heard)) == ((), "every step left is below the noise", 1)


def test_unavailable_model_is_an_unavailable_proposer() -> None:
    """The reason and the tokens are handed on."""
    model = ScriptedModel([ChatUnavailable("the LLM endpoint is away: status 503", tokens=71)])
    with pytest.raises(ProposerUnavailable, match="status 503") as caught:
        LlmProposer(model).propose(a_packet())
    assert caught.value.tokens == 71


def test_empty_budget_makes_no_call() -> None:
    """A prompt that the token budget cannot pay is not sent: a model in a loop stops at the cap."""
    packet = a_packet()
    left, calls, told = 20_000, 0, ""
    model = ScriptedModel(lambda _: an_answer(CARD))
    proposer = LlmProposer(model)
    while calls < 100:
        budget = packet.budget.model_copy(update={"tokens_left": left})
        try:
            left -= proposer.propose(packet.model_copy(update={"budget": budget})).tokens
        except ProposerUnavailable as refusal:
            told = str(refusal)
            break
        calls += 1
    assert "the token budget holds" in told
    assert 0 <= left < 20_000
    assert 2 < calls == len(model.heard) < 10


def test_too_long_a_packet_says_which_setting_to_raise() -> None:
    """An operator can act on the message."""
    with pytest.raises(ProposerUnavailable, match="TUNELOOP_LLM_PROMPT_CHARS"):
        LlmProposer(ScriptedModel([]), max_chars=3_000).propose(a_packet())


@pytest.mark.parametrize(
    "changes",
    [
        {"probability": 1.7},
        {"probability": -0.1},
        {"gain_low_percent": 40},
        {"gain_low_percent": float("nan")},
        {"wall": "the moon"},
        {"evidence": {"prefill.waiting.mean": 11.2}},
        {"mechanism": None},
    ],
)
def test_answer_outside_the_schema_is_no_answer(changes: dict[str, object]) -> None:
    """Ranges and shapes are checked by us, whatever the endpoint promised."""
    with pytest.raises(ProposerUnavailable):
        proposed(a_card(**changes))


def test_texts_of_the_model_are_one_printable_line_of_bounded_length() -> None:
    """What goes on to ledger, terminal and table holds no escapes, no line breaks and no marks of direction."""
    hostile = "a\x1b[31mred\x00\n\u202eb\u200b" + "x" * 5000
    (draft,) = proposed(a_card(mechanism=hostile, if_promising=hostile, if_negative=hostile))
    for text, limit in ((draft.mechanism, 600), (draft.if_promising, 300), (draft.if_negative, 300)):
        assert text.startswith("ared bx")
        assert text.isprintable()
        assert limit == len(text)


def test_wire_schema_is_plain() -> None:
    """Scalars and lists only, everything required, nothing else allowed: strict modes take it."""
    import openai

    parameters = openai.pydantic_function_tool(PlannerAnswer)["function"]["parameters"]
    text = str(parameters)
    assert not [word for word in ("oneOf", "anyOf", "discriminator", "patternProperties", "default") if word in text]
    for part in (parameters, *parameters["$defs"].values()):
        if part.get("type") == "object":
            assert False is part["additionalProperties"]
            assert sorted(part["properties"]) == sorted(part["required"])


def test_scripted_model_answers_from_what_the_prompt_shows() -> None:
    """A scripted planner reads the document of the prompt, as a real one would."""

    def raise_the_first_knob(messages: Sequence[Message]) -> dict[str, object]:
        knobs = read_document(messages)["knobs"]
        assert isinstance(knobs, list)
        return an_answer(a_card(knob=knobs[0]["path"], to_value=knobs[0]["values"][-1]))

    (draft,) = LlmProposer(ScriptedModel(raise_the_first_knob)).propose(a_packet()).drafts
    assert draft.change.to_value == 4
