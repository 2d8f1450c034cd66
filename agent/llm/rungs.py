"""The four ways to ask an OpenAI-compatible endpoint for one JSON document, and how the document is found in a reply.

Pure. Whatever the rung, only pydantic says that an answer is one: endpoints accept a format and ignore it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from pydantic import ValidationError

from agent.llm.chat import Answer, Message, Rung

LADDER = (Rung.JSON_SCHEMA, Rung.TOOL, Rung.JSON_OBJECT, Rung.PROSE)

MAX_TEXT = 200_000
MAX_STARTS = 64
MAX_ERRORS = 12

_FENCE = re.compile(r"```[a-zA-Z0-9_-]*[ \t]*\n(.*?)```", re.DOTALL)


class NoDocument(ValueError):
    """The reply holds no JSON object at all."""


def compile_request(
    rung: Rung, messages: Sequence[Message], name: str, schema: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of chat.completions.create for this rung, without the model."""
    request: dict[str, object] = {"messages": [asdict(message) for message in messages]}
    match rung:
        case Rung.JSON_SCHEMA:
            form = {"name": name, "strict": True, "schema": schema}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        case Rung.TOOL:
            function = {"name": name, "description": "Gives the answer.", "strict": True, "parameters": schema}
            request["tools"] = [{"type": "function", "function": function}]
            request["tool_choice"] = {"type": "function", "function": {"name": name}}
        case Rung.JSON_OBJECT:
            request["messages"] = [asdict(message) for message in _with_schema(messages, schema)]
            request["response_format"] = {"type": "json_object"}
        case _:
            request["messages"] = [asdict(message) for message in _with_schema(messages, schema)]
    return request


def _with_schema(messages: Sequence[Message], schema: Mapping[str, object]) -> list[Message]:
    """The schema goes to the end of the last message: many chat templates refuse two user messages in a row."""
    last = messages[-1]
    text = f"{last.content}\n\nAnswer with one JSON object only. Its JSON schema:\n{json.dumps(schema)}"
    return [*messages[:-1], Message(role=last.role, content=text)]


def with_repair(messages: Sequence[Message], answer: str, error: ValidationError) -> list[Message]:
    """The conversation that asks for the same answer once more, with what was wrong about it."""
    lines = [
        f"- {'.'.join(str(part) for part in item['loc']) or 'document'}: {item['msg']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_ERRORS]
    ]
    complaint = "Your answer does not fit the schema:\n" + "\n".join(lines) + "\nSend the corrected JSON object only."
    return [
        *messages,
        Message(role="assistant", content=answer[:8000]),
        Message(role="user", content=complaint),
    ]


def parse_answer(text: str, schema_model: type[Answer]) -> Answer:
    """The first document of the reply that the schema accepts.

    Raises NoDocument, or the ValidationError of the last document that was tried.
    """
    refused: ValidationError | None = None
    for document in _documents(text[:MAX_TEXT]):
        try:
            return schema_model.model_validate_json(document)
        except ValidationError as error:
            refused = error
    if refused is not None:
        raise refused
    raise NoDocument("the reply holds no JSON object")


def _documents(text: str) -> Iterator[str]:
    """The whole text, then fenced blocks, then every outermost object in the text."""
    spoken = without_thoughts(text)
    for block in (text.strip(), spoken, *(found[1].strip() for found in _FENCE.finditer(spoken))):
        if block.startswith(("{", "[")) and _is_json(block):
            yield block
    yield from _embedded(spoken)


def without_thoughts(text: str) -> str:
    """Drops reasoning. A template may open it unseen, and a cut reply never closes it."""
    lead, closed, rest = text.rpartition("</think>")
    spoken = rest if closed else text
    return spoken.partition("<think>")[0].strip() if lead or not closed else spoken.strip()


def _embedded(text: str) -> Iterator[str]:
    decoder = json.JSONDecoder()
    at, starts = text.find("{"), 0
    while at >= 0 and starts < MAX_STARTS:
        starts += 1
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        yield text[at:end]
        at = text.find("{", end)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
