"""The ladder, the deadline and the breaker against a real local HTTP server."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from agent.llm.chat import ChatUnavailable, Message, Rung
from agent.llm.openai_call import OpenAIEndpoint
from agent.llm.openai_chat import EndpointMemory, OpenAIChatModel
from executor.clock import Clock, ManualClock, SystemClock
from tests.agent.llm import fake_endpoint as fake
from tests.agent.llm.fake_endpoint import Exchange, FakeEndpoint, SmallAnswer, serving

ASK = (Message(role="system", content="You plan."), Message(role="user", content="Propose a value."))
ANSWER = SmallAnswer(knob="prefill-max-requests", value=2)


def a_clock() -> ManualClock:
    return ManualClock(datetime(2026, 12, 1, 20, tzinfo=UTC))


def a_model(endpoint: FakeEndpoint, clock: Clock | None = None, **changes: object) -> OpenAIChatModel:
    clock = clock or a_clock()
    settings: dict[str, object] = {"base_url": endpoint.url, "model": "m", "timeout_s": 20.0} | changes
    return OpenAIChatModel(OpenAIEndpoint(**settings), clock, EndpointMemory(clock))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("behaviour", "rung", "formats"),
    [
        (fake.full, Rung.JSON_SCHEMA, ["json_schema"]),
        (fake.no_schema, Rung.TOOL, ["json_schema", "tool"]),
        (fake.tools_only, Rung.TOOL, ["json_schema", "tool"]),
        (fake.object_only, Rung.JSON_OBJECT, ["json_schema", "tool", "json_object"]),
        (fake.text_only, Rung.PROSE, ["json_schema", "tool", "json_object", "prose"]),
        (fake.ignores_format, Rung.JSON_SCHEMA, ["json_schema"]),
    ],
)
def test_ladder_finds_the_rung_that_works(behaviour: fake.Behaviour, rung: Rung, formats: list[str]) -> None:
    """Each kind of endpoint gives the same validated answer, and the second question starts on its rung."""
    with serving(behaviour) as endpoint:
        model = a_model(endpoint)
        reply = model.complete(ASK, SmallAnswer)
        again = model.complete(ASK, SmallAnswer)
    assert (ANSWER, rung) == (reply.parsed, reply.rung)
    assert again.parsed == ANSWER
    assert [*formats, formats[-1]] == endpoint.formats


def test_remembered_rung_is_left_when_the_endpoint_changes() -> None:
    """After an upgrade that drops tools the ladder is climbed again."""
    with serving(fake.tools_only) as endpoint:
        model = a_model(endpoint)
        assert model.complete(ASK, SmallAnswer).rung == Rung.TOOL
        endpoint.behaviour = fake.text_only
        assert model.complete(ASK, SmallAnswer).rung == Rung.PROSE
        assert model.complete(ASK, SmallAnswer).rung == Rung.PROSE
    assert endpoint.formats[2:] == ["tool", "json_schema", "json_object", "prose", "prose"]


def test_requests_carry_the_strict_schema_and_no_second_user_message() -> None:
    """The schema goes by the format where there is one, else at the end of the last message."""
    with serving(fake.text_only) as endpoint:
        a_model(endpoint, temperature=0.2, max_output_tokens=900).complete(ASK, SmallAnswer)
    schema, tool, as_object, prose = (heard.body for heard in endpoint.heard)
    form = schema["response_format"]["json_schema"]
    assert (form["strict"], form["schema"]["additionalProperties"]) == (True, False)
    assert tool["tool_choice"] == {"type": "function", "function": {"name": "SmallAnswer"}}
    for body in (as_object, prose):
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert "JSON schema" in body["messages"][-1]["content"]
    assert (prose["temperature"], prose["max_tokens"], prose["model"]) == (0.2, 900, "m")


def test_wrong_shape_is_repaired_once_on_the_same_rung() -> None:
    """The model is shown its own answer and what is wrong with it, and the tokens of both calls count."""

    def wrong_first(exchange: Exchange) -> None:
        exchange.say(json.dumps({"knob": "x", "value": "many"} if exchange.number == 1 else fake.GOOD))

    with serving(wrong_first) as endpoint:
        reply = a_model(endpoint).complete(ASK, SmallAnswer)
    assert (reply.parsed, reply.calls, reply.tokens_in, reply.tokens_out) == (ANSWER, 2, 22, 14)
    said = endpoint.heard[1].body["messages"]
    assert [message["role"] for message in said] == ["system", "user", "assistant", "user"]
    assert "value: Input should be a valid integer" in said[-1]["content"]


def test_busy_endpoint_is_asked_again_after_the_wait_it_asks_for() -> None:
    """A 429 with Retry-After is waited out, once for each call of ours: the SDK hides no retry."""
    clock = a_clock()
    with serving(fake.busy(1, retry_after="7")) as endpoint:
        reply = a_model(endpoint, clock).complete(ASK, SmallAnswer)
    assert (reply.parsed, reply.calls, clock.monotonic()) == (ANSWER, 2, 7.0)
    assert len(endpoint.heard) == 2


def test_long_retry_after_is_left_to_the_breaker() -> None:
    """A wait that exceeds the deadline gives up at once, and no call is made until it is over."""
    clock = a_clock()
    with serving(fake.busy(1, retry_after="120")) as endpoint:
        model = a_model(endpoint, clock)
        for advance in (0.0, 100.0):
            clock.advance(advance)
            with pytest.raises(ChatUnavailable):
                model.complete(ASK, SmallAnswer)
        assert len(endpoint.heard) == 1
        clock.advance(21)
        assert model.complete(ASK, SmallAnswer).parsed == ANSWER


def test_retry_after_may_be_a_date() -> None:
    """The other form of the header is understood, and nonsense in it is ignored."""
    for header, waited in (("Tue, 01 Dec 2026 20:00:09 GMT", 9.0), ("soon", 1.0), ("-5", 1.0)):
        clock = a_clock()
        with serving(fake.busy(1, 503, retry_after=header)) as endpoint:
            a_model(endpoint, clock).complete(ASK, SmallAnswer)
        assert waited == clock.monotonic()


@pytest.mark.parametrize("behaviour", [fake.drip, fake.hang])
def test_total_deadline_holds(behaviour: fake.Behaviour) -> None:
    """A server that drips a byte or says nothing is left at the total deadline, not at a time-out per read."""
    with serving(behaviour) as endpoint:
        started = time.monotonic()
        with pytest.raises(ChatUnavailable, match="away: no answer within"):
            a_model(endpoint, SystemClock(), timeout_s=0.8).complete(ASK, SmallAnswer)
        elapsed = time.monotonic() - started
    assert 0.7 < elapsed < 4  # the machine may be busy; the server would hold us for 30 s
    assert len(endpoint.heard) == 1


def test_deadline_covers_all_rungs_and_waits() -> None:
    """The clock runs on over rungs: a slow ladder ends at the deadline of the whole answer."""

    def slow_refusal(exchange: Exchange) -> None:
        exchange.stop.wait(0.4)
        exchange.refuse(400)

    with serving(slow_refusal) as endpoint:
        started = time.monotonic()
        with pytest.raises(ChatUnavailable):
            a_model(endpoint, SystemClock(), timeout_s=1.0).complete(ASK, SmallAnswer)
        assert time.monotonic() - started < 4
    assert 1 <= len(endpoint.heard) <= 3


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (fake.error_500, "status 500"),
        (fake.truncated, "cut off"),
        (fake.garbage, "no chat completion"),
        (fake.garbage_json, "no chat completion"),
        (fake.without_json, "no JSON object"),
        (fake.flood, "the call failed"),
    ],
)
def test_useless_endpoint_is_unavailable(behaviour: fake.Behaviour, words: str) -> None:
    """Every rung is tried once, the message says why each failed, and nothing of the server's words is in it."""
    with serving(behaviour) as endpoint, pytest.raises(ChatUnavailable, match=words) as caught:
        a_model(endpoint).complete(ASK, SmallAnswer)
    assert endpoint.formats == ["json_schema", "tool", "json_object", "prose"]
    assert "node17" not in str(caught.value)


@pytest.mark.parametrize(("status", "setting"), [(404, "TUNELOOP_LLM_BASE_URL"), (400, "TUNELOOP_LLM_PROMPT_CHARS")])
def test_same_refusal_on_every_rung_says_what_to_check(status: int, setting: str) -> None:
    """A wrong address or model is told from a weak endpoint."""
    refusing = serving(lambda exchange: exchange.refuse(status))
    with refusing as endpoint, pytest.raises(ChatUnavailable, match=setting):
        a_model(endpoint).complete(ASK, SmallAnswer)


def test_refused_key_ends_at_once_and_is_not_shown() -> None:
    """A 401 that echoes the key: one call, a message of our own, the key nowhere in it or in its causes."""
    with serving(fake.unauthorised) as endpoint:
        with pytest.raises(ChatUnavailable, match="check the API key") as caught:
            a_model(endpoint, api_key=SecretStr("sk-canary-4711")).complete(ASK, SmallAnswer)
        assert endpoint.heard[0].headers["authorization"] == "Bearer sk-canary-4711"
    assert len(endpoint.heard) == 1
    assert "canary" not in _told(caught.value)


def test_redirect_is_not_followed() -> None:
    """A redirect would carry the prompt to another host."""
    with serving(fake.full) as other:

        def away(exchange: Exchange) -> None:
            exchange.send(307, b"", location=f"{other.url}/chat/completions")

        with serving(away) as endpoint, pytest.raises(ChatUnavailable):
            a_model(endpoint).complete(ASK, SmallAnswer)
    assert other.heard == []


def test_nothing_of_the_shell_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Organisation, project and proxy of the operator's shell are not used for the configured endpoint."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-canary")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-canary")
    monkeypatch.setenv("OPENAI_API_KEY", "key-canary")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving(fake.full) as endpoint:
        a_model(endpoint).complete(ASK, SmallAnswer)
    assert "canary" not in json.dumps(endpoint.heard[0].headers)


def test_connection_refused_is_retried_then_given_up() -> None:
    """Nobody listens: three tries with pauses, then unavailable."""
    with serving(fake.full) as endpoint:
        pass
    clock = a_clock()
    with pytest.raises(ChatUnavailable, match="the connection failed"):
        a_model(endpoint, clock).complete(ASK, SmallAnswer)
    assert clock.monotonic() == 5.0


@pytest.mark.parametrize("behaviour", [fake.error_500, fake.garbage, fake.busy(10**6), fake.truncated])
def test_outage_costs_at_most_six_calls_a_minute(behaviour: fake.Behaviour) -> None:
    """A caller that asks every second of an hour makes at most six calls in any sixty seconds."""
    clock = a_clock()
    times: list[float] = []

    def noted(exchange: Exchange) -> None:
        times.append(clock.monotonic())
        behaviour(exchange)

    with serving(noted) as endpoint:
        model = a_model(endpoint, clock)
        while clock.monotonic() < 1200:
            with pytest.raises(ChatUnavailable):
                model.complete(ASK, SmallAnswer)
            clock.advance(1)
    assert max(sum(1 for t in times if start <= t < start + 60) for start in times) <= 6
    assert 4 < len(times) < 40


def test_loop_is_answered_again_after_an_outage() -> None:
    """Once the endpoint is back, the next due call succeeds and the breaker forgets the outage."""
    clock = a_clock()
    with serving(fake.error_500) as endpoint:
        model = a_model(endpoint, clock)
        for _ in range(5):
            with pytest.raises(ChatUnavailable):
                model.complete(ASK, SmallAnswer)
            clock.advance(600)
        endpoint.behaviour = fake.full
        for _ in range(20):
            assert model.complete(ASK, SmallAnswer).parsed == ANSWER


def test_two_models_of_one_endpoint_share_what_was_learned() -> None:
    """Two studies in one process see one breaker and one rung."""
    with serving(fake.object_only) as endpoint:
        settings = OpenAIEndpoint(base_url=endpoint.url, model="shared")
        OpenAIChatModel(settings, a_clock()).complete(ASK, SmallAnswer)
        OpenAIChatModel(settings, a_clock()).complete(ASK, SmallAnswer)
    assert endpoint.formats == ["json_schema", "tool", "json_object", "json_object"]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -4, "completion_tokens": 3}])
def test_missing_usage_is_estimated_and_said(usage: object) -> None:
    """A server that reports no usage still uses up a token budget."""
    with serving(lambda exchange: exchange.say(json.dumps(fake.GOOD), usage=usage)) as endpoint:
        reply = a_model(endpoint).complete(ASK, SmallAnswer)
    assert not reply.usage_reported
    assert reply.tokens_in >= 9
    assert reply.tokens_out >= 9


def test_cost_comes_from_the_configured_prices() -> None:
    """Tokens times price; without a price the cost is missing, not zero."""
    with serving(fake.full) as endpoint:
        priced = a_model(endpoint, price_in=2.0, price_out=10.0).complete(ASK, SmallAnswer)
        unpriced = a_model(endpoint).complete(ASK, SmallAnswer)
    assert priced.cost == pytest.approx((11 * 2 + 7 * 10) / 1e6)
    assert unpriced.cost is None


def test_failure_carries_the_tokens_that_were_spent() -> None:
    """Four truncated answers are paid for."""
    with serving(fake.truncated) as endpoint, pytest.raises(ChatUnavailable) as caught:
        a_model(endpoint).complete(ASK, SmallAnswer)
    assert caught.value.tokens == 4 * 18


def _told(error: BaseException | None) -> str:
    """What a traceback would print: the error and every cause that is not suppressed."""
    told = ""
    while error is not None:
        told += repr(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return told
