"""The rendered prompt: what it holds, what it can never hold, and how it stays within its length."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from agent.planner import prompt as prompt_module
from agent.planner.packet import EvidencePacket
from agent.planner.prompt import PromptTooLong, RenderedPrompt, prompt_digest, read_document, render
from experiments.card import Wall
from tests.agent.llm.packets import a_late_study, a_packet, an_outcome, packet_of
from tests.factories import a_draft

CHARS = 48_000


def user_text(prompt: RenderedPrompt) -> str:
    return prompt.messages[1].content


def test_document_tells_the_packet() -> None:
    """Objective, noise, walls, figures, knobs, suggestions and budget are there, under their own names."""
    packet = a_packet(suggestions=(a_draft("prefill.flag.prefill-max-requests", 1, 2),))
    document = read_document(render(packet, CHARS).messages)
    figures = {row["id"]: row["value"] for row in document["figures"]}
    assert figures["prefill.waiting.mean"] == 11.2
    assert "decode.prealloc.mean" in document["not_observed"]
    assert set(packet.figures) == {*figures, *document["not_observed"]}
    assert [wall["wall"] for wall in document["walls"]] == ["prefill_supply"]
    knob = document["knobs"][0]
    assert (
        knob["path"],
        knob["current"],
        knob["values"],
    ) == ("prefill.flag.prefill-max-requests", "1", ["1", "2", "3", "4"])
    assert tuple(document["suggestions"][0][name] for name in ("source", "to_value", "gain_percent")) == (
        "rules",
        "2",
        [5.0, 35.0],
    )
    assert packet.budget.trials_left == document["budget"]["trials_left"]


def test_missing_figure_is_never_a_number() -> None:
    """What was not observed is listed apart, and an outcome without a gain says so."""
    document = read_document(render(packet_of(a_late_study()), CHARS).messages)
    infeasible = next(row for row in document["outcomes"] if row["reason"] == "infeasible")
    assert infeasible["gain_percent"] == "NOT_OBSERVED"
    assert all(isinstance(row["value"], int | float) for row in document["figures"])


def test_a_suspect_negative_comes_with_what_has_changed_since() -> None:
    """The figures that a retest has to cite are told by id; where nothing changed there is no such field."""
    suspect = an_outcome(1).model_copy(update={"new_evidence": ("prefill.waiting.mean", "prefill.chunk_fill")})
    rows = read_document(render(a_packet(outcomes=(suspect, an_outcome(2))), CHARS).messages)["outcomes"]
    assert rows[0]["scope"] == "suspect"
    assert rows[0]["changed_since"] == ["prefill.waiting.mean", "prefill.chunk_fill"]
    assert "changed_since" not in rows[1]


def test_the_other_part_of_a_bundle_is_told() -> None:
    """In outcomes and suggestions alike: what two changes did together is not shown as the doing of one."""
    pair = an_outcome(1).model_copy(update={"also": ("prefill.flag.prefill-max-requests", 2)})
    draft = a_draft("prefill.flag.prefill-max-requests", 1, 2)
    other = a_draft("decode.flag.max-running-requests", 128, 160).change
    bundle = draft.model_copy(update={"change": draft.change.model_copy(update={"also": other})})
    packet = a_packet(outcomes=(pair, an_outcome(2)), suggestions=(bundle, draft))
    document = read_document(render(packet, CHARS).messages)
    assert document["outcomes"][0]["with"] == {"knob": "prefill.flag.prefill-max-requests", "to_value": "2"}
    assert document["suggestions"][0]["with"] == {"knob": "decode.flag.max-running-requests", "to_value": "160"}
    assert "with" not in document["outcomes"][1]
    assert "with" not in document["suggestions"][1]


def test_same_packet_gives_the_same_prompt() -> None:
    """Rendering is pure; the digest is that of every word of it and of the template's version."""
    first, second = render(a_packet(), CHARS), render(a_packet(), CHARS)
    assert first == second
    assert prompt_digest(first.messages) == first.digest
    changed = render(a_packet(steering=("prefill first",)), CHARS)
    assert changed.digest != first.digest


def test_template_version_is_part_of_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words from another version of the file are another prompt."""
    before = render(a_packet(), CHARS).digest
    monkeypatch.setattr(prompt_module, "version", lambda name: f"other {name}")
    assert render(a_packet(), CHARS).digest != before


def test_template_refuses_an_unknown_variable() -> None:
    """A misspelt variable in a prompt file is an error, not an empty word."""
    with pytest.raises(UndefinedError):
        prompt_module._ENVIRONMENT.from_string("{{ max_crads }}").render(max_cards=3)


def test_rules_name_every_field_of_the_answer() -> None:
    """The system message describes each field of the wire model and every wall."""
    from agent.planner.llm_answer import CitedFigure, ProposedCard

    rules = render(a_packet(), CHARS).messages[0].content
    named = (*ProposedCard.model_fields, *CitedFigure.model_fields, "note", "cards", *Wall)
    assert [name for name in named if f"`{name}`" not in rules and str(name) not in rules] == []


def test_objections_bring_the_repair_page() -> None:
    """In a repair round the objections stand in a fence of their own, as JSON strings."""
    objection = "out_of_bounds: prefill.flag.prefill-max-requests: 9 is not in [1, 2, 3, 4]"
    text = user_text(render(a_packet(objections=(objection,)), CHARS))
    assert json.dumps(objection) in text
    assert "was not accepted" in text
    assert "was not accepted" not in user_text(render(a_packet(), CHARS))


def test_long_history_drops_the_oldest_out_of_scope_first() -> None:
    """Outcomes go by age, those of other configurations before those of this one; the number is told."""
    outcomes = tuple(an_outcome(number, in_scope=number % 2 == 0) for number in range(1, 401))
    packet = a_packet(outcomes=outcomes)
    whole = render(packet, 10**6)
    cut = render(packet, whole.chars - 20_000)
    kept = [row["to_value"] for row in read_document(cut.messages)["outcomes"]]
    gone = [o for o in outcomes if str(o.to_value) not in kept]
    assert cut.left_out == len(gone) == read_document(cut.messages)["outcomes_left_out"]
    assert not any(o.in_scope for o in gone)
    assert gone == [o for o in outcomes if not o.in_scope][: len(gone)]
    assert cut.chars <= whole.chars - 20_000


def test_no_more_is_dropped_than_needed() -> None:
    """One outcome more would not have fitted."""
    outcomes = tuple(an_outcome(number) for number in range(100, 300))
    packet = a_packet(outcomes=outcomes)
    limit = render(packet, 10**6).chars - 5_000
    cut = render(packet, limit)
    row = len(json.dumps(read_document(cut.messages)["outcomes"][0])) + 4
    assert limit - row - 4 < cut.chars <= limit


def test_packet_that_cannot_fit_is_refused() -> None:
    """Figures and knobs are never cut: a prompt without them would be another question."""
    with pytest.raises(PromptTooLong):
        render(a_packet(outcomes=(an_outcome(1),)), 5_000)


def test_long_night_renders_quickly() -> None:
    """Ten thousand outcomes take well under a second, because the excess is computed and not searched for."""
    outcomes = tuple(an_outcome(number % 500, in_scope=number % 3 == 0) for number in range(10_000))
    assert render(a_packet(outcomes=outcomes), CHARS).left_out > 9_000


def test_many_values_are_thinned_with_both_ends() -> None:
    """A knob of 500 values shows a spread of them and says how many are left out; all remain answerable."""
    packet = a_packet()
    knob = packet.knobs[1].model_copy(update={"values": tuple(range(1, 501))})
    prompt = render(packet.model_copy(update={"knobs": (knob,)}), CHARS)
    row = read_document(prompt.messages)["knobs"][0]
    assert (
        row["values"][0],
        row["values"][-1],
        len(row["values"]),
        row["values_left_out"],
    ) == ("1", "500", 24, 476)
    assert prompt.choices[knob.path]["123"] == 123


def test_private_values_stand_behind_a_number() -> None:
    """A knob's value that names a path or a registry is offered as an option, and read back as itself."""
    packet = a_packet()
    knob = packet.knobs[4].model_copy(
        update={"values": ("default", "/data/layouts/p-16k.json", "hub.corp.example/sglang:9"), "current": "default"}
    )
    objection = "out_of_bounds: /data/layouts/p-16k.json is not what you think; hub.corp.example/sglang:9 neither"
    prompt = render(packet.model_copy(update={"knobs": (knob,), "objections": (objection,)}), CHARS)
    assert read_document(prompt.messages)["knobs"][0]["values"] == ["default", "option-2", "option-3"]
    assert prompt.choices[knob.path]["option-2"] == "/data/layouts/p-16k.json"
    assert "option-2 is not what you think; option-3 neither" in user_text(prompt)


def test_values_of_different_type_are_told_apart() -> None:
    """true is not 1: each value of a knob has a text of its own."""
    packet = a_packet()
    knob = packet.knobs[0].model_copy(update={"values": (True, False, None), "current": None})
    choices = render(packet.model_copy(update={"knobs": (knob,)}), CHARS).choices[knob.path]
    assert choices == {"true": True, "false": False, "unset": None}


TEXTS = st.text(min_size=0, max_size=400)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_no_text_leaves_its_string(text: str) -> None:
    """Whatever a text holds, the prompt keeps its shape: the same keys, and fences only where we put them."""
    draft = a_draft("prefill.flag.prefill-max-requests", 1, 2, mechanism=text)
    packet = a_packet(steering=(text,), suggestions=(draft,), objections=(text,))
    prompt = render(packet, CHARS)
    document = read_document(prompt.messages)
    assert list(read_document(render(a_packet(), CHARS).messages)) == list(document)
    assert len(document["steering"]) == 1
    fence = user_text(prompt).splitlines()[1]
    assert sum(line == fence for line in user_text(prompt).splitlines()) == 4
    assert len(document["steering"][0]) <= 300
    assert prompt.chars < render(a_packet(), CHARS).chars + 3_000


def test_steering_is_capped_in_number() -> None:
    """The operator's newest ten lines are told."""
    packet: EvidencePacket = a_packet(steering=tuple(f"wish {number}" for number in range(30)))
    assert [f"wish {n}" for n in range(20, 30)] == read_document(render(packet, CHARS).messages)["steering"]
