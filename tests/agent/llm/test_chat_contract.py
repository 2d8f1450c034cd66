"""What every chat model promises, on each implementation: scripted, recorded, and the real client over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.llm import ChatModel, ChatUnavailable, Message, RecordedModel, RecordingModel, ScriptedModel
from executor.clock import ManualClock
from tests.agent.llm import fake_endpoint as fake
from tests.agent.llm.fake_endpoint import GOOD, Exchange, SmallAnswer, serving
from tests.agent.llm.test_openai_chat import ANSWER, ASK, a_model

OTHER = (Message(role="user", content="Another question."),)
Make = Callable[[Path], AbstractContextManager[ChatModel]]


@contextmanager
def scripted(_: Path) -> Iterator[ChatModel]:
    yield ScriptedModel(lambda messages: GOOD if tuple(messages) == ASK else "no")


@contextmanager
def over_http(_: Path) -> Iterator[ChatModel]:
    def answer(exchange: Exchange) -> None:
        (fake.full if "Propose" in str(exchange.heard.body["messages"]) else fake.without_json)(exchange)

    with serving(answer) as endpoint:
        yield a_model(endpoint)


@contextmanager
def recorded(folder: Path) -> Iterator[ChatModel]:
    clock = ManualClock(datetime(2026, 12, 1, tzinfo=UTC))
    recording = RecordingModel(ScriptedModel([GOOD, "no"]), folder, clock)
    recording.complete(ASK, SmallAnswer)
    with pytest.raises(ChatUnavailable):
        recording.complete(OTHER, SmallAnswer)
    yield RecordedModel.read(folder)


MODELS = pytest.mark.parametrize("make", [scripted, over_http, recorded])


@MODELS
def test_answer_is_a_validated_document_with_its_cost_in_tokens(make: Make, tmp_path: Path) -> None:
    """The document, and positive token counts that add up."""
    with make(tmp_path) as model:
        reply = model.complete(ASK, SmallAnswer)
    assert reply.parsed == ANSWER
    assert reply.tokens == reply.tokens_in + reply.tokens_out > 0
    assert reply.seconds >= 0


@MODELS
def test_no_answer_is_chat_unavailable_with_the_tokens_spent(make: Make, tmp_path: Path) -> None:
    """Nothing else is ever raised, and what was spent is told."""
    with make(tmp_path) as model, pytest.raises(ChatUnavailable) as caught:
        model.complete(OTHER, SmallAnswer)
    assert caught.value.tokens > 0


def test_no_log_line_names_the_endpoint_or_the_prompt(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """The SDK and its transport log addresses and prompts; at the service's level none of it appears."""
    with caplog.at_level(logging.INFO), over_http(tmp_path) as model:
        model.complete(ASK, SmallAnswer)
    assert [record.getMessage() for record in caplog.records] == []
