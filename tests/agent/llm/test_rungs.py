"""Finding one document in whatever a model says."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.llm.rungs import NoDocument, parse_answer, without_thoughts
from tests.agent.llm.fake_endpoint import GOOD, SmallAnswer

ANSWER = SmallAnswer(knob="prefill-max-requests", value=2)
DOCUMENT = json.dumps(GOOD)


@pytest.mark.parametrize(
    "text",
    [
        DOCUMENT,
        f"\n\n  {DOCUMENT}\n",
        f"```json\n{DOCUMENT}\n```",
        f"```\n{DOCUMENT}\n```",
        f"Sure!\n```json\n{DOCUMENT}\n```\nAnything else?",
        f"<think>{{maybe}} {{'a': 1}}</think>{DOCUMENT}",
        f"thoughts of a template that opened them unseen {{}} </think>\n{DOCUMENT}",
        f"<think>a</think> <think>b {{}}</think>{DOCUMENT}",
        f'The schema is {{"type": "object"}} and my answer is {DOCUMENT}.',
        f"{{broken {{ {DOCUMENT}",
        json.dumps({**GOOD, "confidence": "high"}),
        f"答案如下：{DOCUMENT}。",
        DOCUMENT.replace("{", "{\n\n").replace(",", " ,\t"),
    ],
)
def test_document_is_found(text: str) -> None:
    """Fences, thoughts, prose on either side, an echoed schema, extra fields."""
    assert parse_answer(text, SmallAnswer) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "no",
        "{",
        "[]]",
        f"<think>{DOCUMENT}",
        '{"knob": "a", "value": ',
        "null",
        '"text"',
        "{'knob': 'a', 'value': 1}",
        "\x00\ud800",
    ],
    ids=repr,
)
def test_text_without_an_object_is_none(text: str) -> None:
    """Half an object, an object in thoughts that never end, Python instead of JSON."""
    with pytest.raises(NoDocument):
        parse_answer(text, SmallAnswer)


@pytest.mark.parametrize(
    "text",
    ['{"knob": 1, "value": 1}', '{"knob": "a"}', '{"knob": "a", "value": 1e400}', '{"knob": "a", "value": NaN}', "[1]"],
)
def test_object_of_another_shape_says_what_is_wrong(text: str) -> None:
    """The validation error is there for the repair."""
    with pytest.raises(ValidationError):
        parse_answer(text, SmallAnswer)


@pytest.mark.parametrize(
    "text", ["{" * 200_000, '{"a":' * 100_000, "[" * 200_000, "```json\n" * 30_000, "<think>" * 40_000]
)
def test_hostile_text_is_read_in_bounded_time(text: str) -> None:
    """Deep nesting and endless openings cost less than a second and raise nothing else."""
    started = time.monotonic()
    with pytest.raises((NoDocument, ValidationError)):
        parse_answer(text, SmallAnswer)
    assert time.monotonic() - started < 2


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=500))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text raises anything but the two refusals."""
    with suppress(NoDocument, ValidationError):
        parse_answer(text, SmallAnswer)


@settings(max_examples=100, deadline=None)
@given(before=st.text(max_size=80).filter(lambda t: "{" not in t and "<" not in t), value=st.integers())
def test_answer_survives_any_prose_before_it(before: str, value: int) -> None:
    """What is said around the document does not change it."""
    document = SmallAnswer(knob=before[:20], value=value)
    assert parse_answer(before + document.model_dump_json() + before, SmallAnswer) == document


def test_thoughts_are_dropped_and_speech_is_kept() -> None:
    """Closed, unopened and unclosed thoughts."""
    assert without_thoughts("<think>a</think>b") == "b"
    assert without_thoughts("a</think>b") == "b"
    assert without_thoughts("a<think>b") == "a"
    assert without_thoughts("a") == "a"
    assert without_thoughts("<think>a") == ""
    assert without_thoughts("</think>b") == "b"
