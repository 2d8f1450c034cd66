"""The port of every chat model, and what goes through it.

A model answers with one document of a given schema, or raises ChatUnavailable. It has no tools and no state:
every call carries all that the model is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel

from experiments.errors import TuningError

Answer = TypeVar("Answer", bound=BaseModel)


class Rung(StrEnum):
    """How the endpoint was made to answer in our schema, strictest first."""

    JSON_SCHEMA = "json_schema"
    TOOL = "tool"  # a forced call of a function whose parameters are the schema
    JSON_OBJECT = "json_object"
    PROSE = "prose"  # the schema is in the prompt only
    NONE = "none"  # no endpoint: scripted


@dataclass(frozen=True, kw_only=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True)
class Reply(Generic[Answer]):
    """A validated answer and what it cost, over all calls that it took.

    `cost` is None where no price is configured. Where the endpoint reports no usage the tokens are our own
    estimate, on the high side, so that a budget still ends; `usage_reported` says so.
    """

    parsed: Answer
    tokens_in: int
    tokens_out: int
    cost: float | None
    rung: Rung
    model: str
    seconds: float
    calls: int = 1
    usage_reported: bool = True

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


class ChatUnavailable(TuningError):
    """No valid answer, and why. Carries the tokens that were spent all the same.

    The message never holds text of the endpoint: that could echo the prompt, a key or an internal name.
    """

    def __init__(self, message: str, tokens: int = 0) -> None:
        self.tokens = tokens
        super().__init__(message)


class ChatModel(Protocol):
    def complete(self, messages: Sequence[Message], schema_model: type[Answer]) -> Reply[Answer]:
        """Raises ChatUnavailable instead of anything else, within the model's own total deadline."""
        ...


def estimate_tokens(text: str) -> int:
    """An upper estimate for any tokenizer in use: three bytes of UTF-8 a token."""
    return len(text.encode(errors="replace")) // 3 + 1
