"""Conversations on disk: a wrapper that records them and a model that replays them.

One JSON line per completion, appended and synced before the answer is used. The key of a line is the digest of
everything the model was told, so that a replay answers exactly the same question or says that it cannot.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from agent.llm.chat import Answer, ChatModel, ChatUnavailable, Message, Reply, Rung
from executor.clock import Clock
from experiments.errors import InputError
from experiments.serving_config import digest

RECORDING_SCHEMA = 1


class _Recorded(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Spoken(_Recorded):
    role: Literal["system", "user", "assistant"]
    content: str


class Answered(_Recorded):
    kind: Literal["answered"] = "answered"
    document: dict[str, object]
    tokens_in: int
    tokens_out: int
    cost: float | None
    rung: Rung
    model: str
    seconds: float
    calls: int
    usage_reported: bool


class Failed(_Recorded):
    kind: Literal["failed"] = "failed"
    message: str
    tokens: int


class Conversation(_Recorded):
    """One completion: the question in full and how it ended."""

    schema_version: int = RECORDING_SCHEMA
    at: AwareDatetime
    key: str
    schema_name: str
    messages: tuple[Spoken, ...]
    outcome: Answered | Failed


def conversation_key(messages: Sequence[Message], schema_name: str) -> str:
    return digest({"messages": [[m.role, m.content] for m in messages], "schema": schema_name})


class RecordingModel:
    """Passes every call to `inner`. Writes one file a day: `conversations-2026-11-30.jsonl`, for its owner only."""

    def __init__(self, inner: ChatModel, folder: Path, clock: Clock) -> None:
        self._inner, self._folder, self._clock = inner, folder, clock

    def complete(self, messages: Sequence[Message], schema_model: type[Answer]) -> Reply[Answer]:
        try:
            reply = self._inner.complete(messages, schema_model)
        except ChatUnavailable as failure:
            self._append(messages, schema_model, Failed(message=str(failure), tokens=failure.tokens))
            raise
        self._append(messages, schema_model, _answered(reply))
        return reply

    def _append(self, messages: Sequence[Message], schema_model: type[BaseModel], outcome: Answered | Failed) -> None:
        now = self._clock.now()
        line = Conversation(
            at=now,
            key=conversation_key(messages, schema_model.__name__),
            schema_name=schema_model.__name__,
            messages=tuple(Spoken(role=m.role, content=m.content) for m in messages),
            outcome=outcome,
        )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._folder / f"conversations-{now:%Y-%m-%d}.jsonl"
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as stream:
            stream.write(line.model_dump_json().encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


class RecordedModel:
    """Answers from recordings. The same question asked twice gets its answers in the recorded order."""

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        self._outcomes: dict[str, deque[Answered | Failed]] = defaultdict(deque)
        for conversation in conversations:
            self._outcomes[conversation.key].append(conversation.outcome)

    @classmethod
    def read(cls, path: Path) -> RecordedModel:
        """From one file or from a folder of them."""
        return cls(read_conversations(path))

    def complete(self, messages: Sequence[Message], schema_model: type[Answer]) -> Reply[Answer]:
        outcomes = self._outcomes.get(conversation_key(messages, schema_model.__name__))
        if not outcomes:
            raise ChatUnavailable("the recording holds no answer to this prompt: evidence or prompt differ from then")
        match outcomes.popleft():
            case Failed() as failed:
                raise ChatUnavailable(failed.message, failed.tokens)
            case Answered() as answered:
                return _replayed(answered, schema_model)


def read_conversations(path: Path) -> list[Conversation]:
    """In order of recording. A last line that was cut by a crash is left out; any other bad line is an error."""
    files = sorted(path.glob("conversations-*.jsonl")) if path.is_dir() else [path]
    return [conversation for file in files for conversation in _read_file(file)]


def _read_file(file: Path) -> list[Conversation]:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(str(file), 0, 0, f"the recording cannot be read: {error.strerror}") from None
    whole = lines[:-1]  # what follows the last newline was never finished
    return [_parse_line(line, str(file), number) for number, line in enumerate(whole, start=1)]


def _parse_line(line: bytes, file: str, number: int) -> Conversation:
    try:
        return Conversation.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "line"
        raise InputError(file, number, 1, f"not a recorded conversation ({place}: {first['msg']})") from None


def _answered(reply: Reply[Answer]) -> Answered:
    return Answered(
        document=reply.parsed.model_dump(mode="json"),
        tokens_in=reply.tokens_in,
        tokens_out=reply.tokens_out,
        cost=reply.cost,
        rung=reply.rung,
        model=reply.model,
        seconds=reply.seconds,
        calls=reply.calls,
        usage_reported=reply.usage_reported,
    )


def _replayed(answered: Answered, schema_model: type[Answer]) -> Reply[Answer]:
    try:
        parsed = schema_model.model_validate(answered.document)
    except ValidationError as error:
        raise ChatUnavailable("the recorded answer does not fit today's schema") from error
    return Reply(
        parsed=parsed,
        tokens_in=answered.tokens_in,
        tokens_out=answered.tokens_out,
        cost=answered.cost,
        rung=answered.rung,
        model=answered.model,
        seconds=answered.seconds,
        calls=answered.calls,
        usage_reported=answered.usage_reported,
    )
