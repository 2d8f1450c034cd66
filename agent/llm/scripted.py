"""A chat model without an endpoint: it answers from a list, or from a function of what it is told.

It ships with the product: tests, the planner benchmark and the demonstration use it. Its answers pass the same
validation as those of a real endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pydantic import BaseModel, ValidationError

from agent.llm.chat import Answer, ChatUnavailable, Message, Reply, Rung, estimate_tokens
from agent.llm.rungs import NoDocument, parse_answer

Scripted = BaseModel | dict[str, object] | str | ChatUnavailable
Script = Callable[[Sequence[Message]], Scripted]


class ScriptedModel:
    """Each item of a list answers one call; after the last one the model is unavailable."""

    def __init__(self, script: Script | Sequence[Scripted]) -> None:
        self._script = script if callable(script) else _from_list(script)
        self.heard: list[tuple[Message, ...]] = []

    def complete(self, messages: Sequence[Message], schema_model: type[Answer]) -> Reply[Answer]:
        self.heard.append(tuple(messages))
        answer = self._script(messages)
        if isinstance(answer, ChatUnavailable):
            raise answer
        text = _text(answer)
        tokens_in = sum(estimate_tokens(message.content) for message in messages)
        tokens_out = estimate_tokens(text)
        try:
            parsed = parse_answer(text, schema_model)
        except (NoDocument, ValidationError) as error:
            raise ChatUnavailable("the scripted answer does not fit the schema", tokens_in + tokens_out) from error
        return Reply(
            parsed=parsed,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost=None,
            rung=Rung.NONE,
            model="scripted",
            seconds=0.0,
            usage_reported=False,
        )


def _text(answer: BaseModel | dict[str, object] | str) -> str:
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    return answer if isinstance(answer, str) else json.dumps(answer)


def _from_list(answers: Sequence[Scripted]) -> Script:
    left = list(answers)

    def next_answer(_: Sequence[Message]) -> Scripted:
        return left.pop(0) if left else ChatUnavailable("the script has no further answer")

    return next_answer
