"""Chat completions of any OpenAI-compatible endpoint, as one validated document.

Guards the deadline of the whole answer, the breaker, and that no text of the endpoint reaches a message or a
traceback of ours (`from None`: a server's words can echo the prompt, the key or an internal name).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpx2  # the transport of openai 3; its errors come through unwrapped while a body is read
import openai
from pydantic import BaseModel, ValidationError

from agent.llm.breaker import Breaker
from agent.llm.chat import Answer, ChatUnavailable, Message, Reply, Rung, estimate_tokens
from agent.llm.completion import Completion
from agent.llm.openai_call import OpenAIEndpoint, fetch_reply
from agent.llm.rungs import LADDER, NoDocument, compile_request, parse_answer, with_repair
from executor.clock import Clock

PAUSES_S = (1.0, 4.0)  # before the second and the third try of a call that found the endpoint busy
LONGEST_WAIT_S = 30.0  # a Retry-After beyond this is left to the breaker

BUSY = frozenset({408, 409, 425, 429, 502, 503, 504, 529})
REFUSED = frozenset({401, 402, 403})  # no rung and no repetition changes these
# Anything else (400, 404, 422, 500, 501 …) may be about the rung: endpoints answer all of these to a format
# that they do not know.


class EndpointMemory:
    """What was learned about one base URL and model: the rung that works, and whether it is down."""

    def __init__(self, clock: Clock) -> None:
        self.breaker = Breaker(clock)
        self.rung: Rung | None = None

    def ladder(self) -> tuple[Rung, ...]:
        if self.rung is None:
            return LADDER
        return (self.rung, *(rung for rung in LADDER if rung is not self.rung))


_HINTS = {
    "status 404": "; check TUNELOOP_LLM_BASE_URL (does it end in /v1?) and TUNELOOP_LLM_MODEL",
    "status 400": "; it refuses every form: check the model, the length of its context (TUNELOOP_LLM_PROMPT_CHARS),"
    " and TUNELOOP_LLM_TEMPERATURE and TUNELOOP_LLM_MAX_OUTPUT_TOKENS, which some models do not take",
}

_memories: dict[tuple[str, str], EndpointMemory] = {}
_memories_lock = threading.Lock()


def _shared_memory(endpoint: OpenAIEndpoint, clock: Clock) -> EndpointMemory:
    """One per process, so that two studies together do not exceed the limit of an outage."""
    with _memories_lock:
        return _memories.setdefault((endpoint.base_url, endpoint.model), EndpointMemory(clock))


class _RungFailed(Exception):
    """This rung gave no answer; another one may."""


class _Busy(Exception):
    """The endpoint did not answer now. `after_s` is what it asked us to wait."""

    def __init__(self, what: str, after_s: float | None = None) -> None:
        self.after_s = after_s
        super().__init__(what)


@dataclass(kw_only=True)
class _Spent:
    """What one completion has used so far."""

    started: float
    deadline: float
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    usage_reported: bool = True
    failures: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


class OpenAIChatModel:
    def __init__(self, endpoint: OpenAIEndpoint, clock: Clock, memory: EndpointMemory | None = None) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._memory = memory or _shared_memory(endpoint, clock)

    def complete(self, messages: Sequence[Message], schema_model: type[Answer]) -> Reply[Answer]:
        now = self._clock.monotonic()
        spent = _Spent(started=now, deadline=now + self._endpoint.timeout_s)
        for rung in self._memory.ladder():
            try:
                parsed = self._on_rung(rung, messages, schema_model, spent)
            except _RungFailed as failure:
                spent.failures.append(f"{rung}: {failure}")
                continue
            except ChatUnavailable as failure:
                raise ChatUnavailable(_because(str(failure), spent), spent.tokens) from None
            self._memory.rung = rung
            self._memory.breaker.succeeded()
            return self._reply(parsed, rung, spent)
        self._memory.breaker.failed()
        message = _because("the LLM endpoint gave no answer of the schema", spent)
        raise ChatUnavailable(message + _hint(spent.failures), spent.tokens)

    def _on_rung(self, rung: Rung, messages: Sequence[Message], schema_model: type[Answer], spent: _Spent) -> Answer:
        """One question and, where the answer is JSON of the wrong shape, one repair."""
        name, schema = _strict_schema(schema_model)
        said: Sequence[Message] = messages
        for _ in range(2):
            completion = self._ask(compile_request(rung, said, name, schema), spent)
            try:
                return parse_answer(completion.text, schema_model)
            except NoDocument as nothing:
                raise _RungFailed("the answer was cut off" if completion.is_cut else str(nothing)) from None
            except ValidationError as error:
                said = with_repair(messages, completion.text, error)
        raise _RungFailed("the answer does not fit the schema, nor does its repair") from None

    def _ask(self, request: Mapping[str, object], spent: _Spent) -> Completion:
        """One call, repeated with pauses while the endpoint is busy."""
        for pause in (*PAUSES_S, None):
            self._memory.breaker.admit()
            spent.calls += 1
            try:
                return self._completion(request, spent)
            except _Busy as busy:
                self._wait(busy, pause, spent)
        raise AssertionError("the last pause is None and raises")

    def _wait(self, busy: _Busy, pause: float | None, spent: _Spent) -> None:
        """Sleeps before the next try; raises when there is none or it would come too late."""
        left = spent.deadline - self._clock.monotonic()
        wait = None if pause is None else max(pause, busy.after_s or 0.0)
        if wait is None or wait > LONGEST_WAIT_S or wait >= left:
            self._memory.breaker.failed(busy.after_s or 0.0)
            raise ChatUnavailable(f"the LLM endpoint is away: {busy}")
        spent.failures.append(str(busy))
        self._clock.sleep(wait)

    def _completion(self, request: Mapping[str, object], spent: _Spent) -> Completion:
        left = spent.deadline - self._clock.monotonic()
        if left <= 0:
            self._memory.breaker.failed()
            raise ChatUnavailable(f"no answer within {self._endpoint.timeout_s:g} s")
        body = self._fetch(request, left)
        try:
            completion = Completion.model_validate_json(body)
        except ValidationError:
            raise _RungFailed("the reply is no chat completion") from None
        _count(spent, completion, str(request["messages"]))
        return completion

    def _fetch(self, request: Mapping[str, object], seconds: float) -> bytes:
        """The body of one reply. What went wrong is told by status and kind only."""
        try:
            return fetch_reply(self._endpoint, request, seconds)
        except (TimeoutError, openai.APITimeoutError, httpx2.TimeoutException):
            raise _Busy(f"no answer within {seconds:.0f} s") from None
        except openai.APIStatusError as error:
            raise self._judge(error) from None
        except (openai.APIConnectionError, httpx2.HTTPError, OSError) as error:
            cause = error.__cause__ or error
            raise _Busy(f"the connection failed ({type(cause).__name__})") from None
        except (openai.OpenAIError, httpx2.InvalidURL, UnicodeError) as error:
            raise _RungFailed(f"the call failed ({type(error).__name__})") from None

    def _judge(self, error: openai.APIStatusError) -> Exception:
        status = error.status_code
        if status in REFUSED:
            self._memory.breaker.failed(at_least_s=300.0)
            return ChatUnavailable(f"the LLM endpoint refuses us with status {status}: check the API key and the model")
        if status in BUSY:
            return _Busy(f"status {status}", self._retry_after(error.response.headers))
        return _RungFailed(f"status {status}")

    def _retry_after(self, headers: Mapping[str, str]) -> float | None:
        """Seconds, from either form of the header; None if there is none or it says nothing."""
        text = headers.get("retry-after", "")
        try:
            return min(max(float(text), 0.0), 86_400.0)
        except ValueError:
            pass
        try:
            return max((parsedate_to_datetime(text) - self._clock.now()).total_seconds(), 0.0)
        except (ValueError, TypeError):
            return None

    def _reply(self, parsed: Answer, rung: Rung, spent: _Spent) -> Reply[Answer]:
        end = self._endpoint
        priced = end.price_in is not None and end.price_out is not None
        cost = (spent.tokens_in * (end.price_in or 0) + spent.tokens_out * (end.price_out or 0)) / 1e6
        return Reply(
            parsed=parsed,
            tokens_in=spent.tokens_in,
            tokens_out=spent.tokens_out,
            cost=cost if priced else None,
            rung=rung,
            model=end.model,
            seconds=self._clock.monotonic() - spent.started,
            calls=spent.calls,
            usage_reported=spent.usage_reported,
        )


def _count(spent: _Spent, completion: Completion, prompt: str) -> None:
    usage = completion.usage
    if usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
        spent.tokens_in += usage.prompt_tokens
        spent.tokens_out += usage.completion_tokens
        return
    spent.usage_reported = False
    spent.tokens_in += estimate_tokens(prompt)
    spent.tokens_out += estimate_tokens(completion.text)


def _because(message: str, spent: _Spent) -> str:
    return f"{message} ({'; '.join(spent.failures)})" if spent.failures else message


def _hint(failures: Sequence[str]) -> str:
    """What an operator can do where every rung met the same refusal."""
    statuses = {failure.partition(": ")[2] for failure in failures}
    return _HINTS.get(statuses.pop(), "") if len(statuses) == 1 else ""


def _strict_schema(schema_model: type[BaseModel]) -> tuple[str, Mapping[str, object]]:
    function = openai.pydantic_function_tool(schema_model)["function"]
    return function["name"], function.get("parameters", {})
