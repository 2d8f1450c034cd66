"""The few fields that we read of a chat completion, whoever sent it. Everything else is ignored.

The SDK's own types are not validated on arrival, and servers differ: arguments as an object, content in parts,
usage missing or negative. What does not fit here is no completion.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _text(value: object) -> object:
    """Content in parts becomes one text; an object of arguments becomes its JSON."""
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value if isinstance(part, dict))
    return json.dumps(value) if isinstance(value, dict) else value


def _count(value: object) -> object:
    return value if isinstance(value, int) and value >= 0 else None


Text = Annotated[str | None, BeforeValidator(_text)]
Count = Annotated[int | None, BeforeValidator(_count)]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Function(_Read):
    arguments: Text = None


class _ToolCall(_Read):
    function: _Function = _Function()


class _Spoken(_Read):
    content: Text = None
    tool_calls: tuple[_ToolCall, ...] | None = None


class _Choice(_Read):
    message: _Spoken
    finish_reason: str | None = None


class _Usage(_Read):
    prompt_tokens: Count = None
    completion_tokens: Count = None


class Completion(_Read):
    choices: tuple[_Choice, ...] = Field(min_length=1)
    usage: _Usage | None = None

    @property
    def text(self) -> str:
        """The arguments of the called function, or what was said."""
        message = self.choices[0].message
        called = message.tool_calls[0].function.arguments if message.tool_calls else None
        return called or message.content or ""

    @property
    def is_cut(self) -> bool:
        return self.choices[0].finish_reason == "length"
