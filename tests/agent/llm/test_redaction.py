"""Private names never reach a prompt: canaries in every field from which one could come."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.llm import ScriptedModel
from agent.planner.llm_proposer import LlmProposer
from agent.planner.packet import EvidencePacket
from agent.planner.prompt import read_document, render
from agent.planner.redaction import Redactor, clean_line
from experiments.study import fold
from tests.agent.llm.packets import CARD, a_packet, an_answer, an_outcome, packet_of
from tests.agent.llm.test_injection import stained_entry, the_night
from tests.factories import a_draft

# Recognisable by their shape, wherever they stand.
SHAPED = {
    "ipv4": "10.77.31.5",
    "ipv4 with port": "10.77.31.5:30000",
    "ipv6": "fe80::1ff:fe23:4567:890a",
    "mac": "02:42:ac:11:00:02",
    "host": "a3-canary.cluster.internal",
    "host with port": "canary.example.com:8000",
    "account": "canary@10.77.31.5",
    "mail": "canary.user@example.org",
    "path": "/data/canary/models/flash",
    "home": "~/canary/run.sh",
    "relative path": "../canary/secret.yaml",
    "windows path": r"C:\canary\models",
    "url": "https://canary.example/v1?k=v",
    "ssh url": "ssh://canary@host:22/x",
    "image": "hub.canary.local/sglang:0.5.16",
    "openai key": "sk-canary0123456789abcdef",
    "hub token": "hf_canary0123456789abcdef",
    "bearer": "Bearer canary.token.value",
    "assignment": "password=canary",
    "colon": "api_key: canary",
    "hex": "deadbeef0123456789canary0123456789abcdef",
    "base64": "Y2FuYXJ5LWNhbmFyeS1jYW5hcnkxMjM0NTY3ODkw",
}
# Known to the caller from the pool file only.
NAMED = ("a3-node-07", "svc_tuning", "sglang-prod", "gandalf")


def told(packet: EvidencePacket, private: tuple[str, ...] = NAMED) -> str:
    """All that a model would be sent, over the real proposer."""
    model = ScriptedModel([an_answer(CARD)] * 2)
    LlmProposer(model, private=private).propose(packet)
    return "\n".join(message.content for messages in model.heard for message in messages)


def with_text(text: str) -> EvidencePacket:
    """The text in every field of the packet that holds any."""
    packet = a_packet()
    draft = a_draft("prefill.flag.prefill-max-requests", 1, 2, mechanism=text)
    knob = packet.knobs[0].model_copy(update={"mechanism": text})
    layout = packet.knobs[4].model_copy(update={"values": ("default", text), "tried": (text,)})
    outcome = an_outcome(1).model_copy(update={"card": text, "change": text, "source": text})
    layout_outcome = outcome.model_copy(update={"path": layout.path, "to_value": text})
    build_outcome = outcome.model_copy(update={"path": "both.build.image", "to_value": text})
    return packet.model_copy(
        update={
            "study_id": text,
            "objective": packet.objective.model_copy(update={"scenario": f"DeepSeek, {text}, N640"}),
            "walls": (packet.walls[0].model_copy(update={"sentence": f"slow on {text}."}),),
            "incumbent": {
                **packet.incumbent,
                "prefill.flag.model-path": text,
                "decode.env.HCCL_SOCKET_IFNAME": text,
                "router.flag.policy": text,
            },
            "knobs": (knob, *packet.knobs[1:4], layout, *packet.knobs[5:]),
            "outcomes": (outcome, layout_outcome, build_outcome),
            "steering": (f"start with {text}, then P", text),
            "suggestions": (draft,),
            "objections": (f"out_of_bounds: {text} is not in the list", text),
        }
    )


@pytest.mark.parametrize("kind", SHAPED)
def test_shaped_canary_is_withheld_in_every_field(kind: str) -> None:
    """Addresses, hosts, accounts, paths, images and keys, by their shape alone."""
    canary = SHAPED[kind]
    text = told(with_text(canary))
    assert canary.lower() not in text.lower()
    assert "canary" not in text.lower()
    for part in ("10.77.31.5", "fe80", "02:42", "deadbeef", "Y2FuYXJ5"):
        assert part not in text


@pytest.mark.parametrize("kind", SHAPED)
@pytest.mark.parametrize(
    "frame", ["{}", "on {}.", "on {}, then P", "({})", "'{}'", "节点{}。", "node={};", "a {} b", "{}!"]
)
def test_shape_is_recognised_in_any_sentence(kind: str, frame: str) -> None:
    """By the search alone: nothing else in the packet says that the words are private."""
    text = Redactor().text(frame.format(SHAPED[kind]), 400).lower()
    for part in ("canary", "10.77.31.5", "fe80", "02:42", "deadbeef", "y2fuyxj5"):
        assert part not in text


@pytest.mark.parametrize("name", NAMED)
def test_named_canary_is_withheld_in_every_sentence(name: str) -> None:
    """A bare host or account name has no shape: it is known from the pool, in any case and width."""
    for written in (
        name,
        name.upper(),
        f"({name})",
        f"{name}'s",
        f"节点{name}很慢",
        "".join(chr(ord(c) + 0xFEE0) for c in name),
    ):
        assert name not in clean_line(told(with_text(written))).lower()


def test_host_that_is_called_by_its_role_leaves_sentences_readable() -> None:
    """A pool whose hosts are called prefill and decode: the words of the trade stay."""
    sentence = "requests wait for prefill, not for decode"
    assert sentence == Redactor(("prefill", "decode", "gandalf")).text(sentence, 400)


def test_private_value_of_a_setting_is_withheld_in_sentences_too() -> None:
    """What the configuration says in private is not told by an objection or by the operator's line."""
    packet = a_packet(
        incumbent={**a_packet().incumbent, "prefill.flag.served-model-name": "canary-model-7"},
        steering=("canary-model-7 is slow",),
        objections=("invalid_configuration: canary-model-7 needs tp 16",),
    )
    assert "canary" not in told(packet)


def test_ledger_text_of_requests_and_hosts_is_not_told() -> None:
    """Request text, hosts and accounts in faults, checks, explanations and reasons of the ledger: nowhere."""
    canary = "the quick brown canary asked about node a3-canary as user canary"
    packet = packet_of(fold([stained_entry(entry, canary) for entry in the_night()]))
    assert "canary" not in told(packet, private=())


def test_vocabulary_of_the_engine_is_told() -> None:
    """Withholding is no end in itself: numbers, switches and words of the engine stay."""
    settings_told = {
        "decode.flag.quantization": "w8a8_int8",
        "decode.flag.attention-backend": "ascend",
        "decode.flag.speculative-algorithm": "EAGLE",
        "decode.flag.enable-dp-attention": True,
        "decode.flag.chunked-prefill-size": 131072,
        "decode.flag.max-running-requests-per-dp": None,
    }
    packet = a_packet(incumbent=settings_told)
    assert settings_told == read_document(render(packet, 48_000).messages)["incumbent"]


@pytest.mark.parametrize(
    "sentence",
    [
        "P queue persistent, D queue zero; raise the prefill cap first.",
        "requests wait for prefill in 98% of the samples, for decode in 0%",
        "TPOT is 9.4 ms and 230 tok/s/card are wanted, P/D = 8/8, r 6.0",
        "Batches of 8192, 8192, [4, 8064] tokens; 16388 in / 1024 out",
        "prefill.lone_tail_share is 0.333 and decode.waiting.mean is 0",
        "disaggregation-decode-enable-offload-kvcache and speculative-num-draft-tokens",
        "优先看预填充队列，然后再看解码批量。".translate({ord("，"): ",", ord("。"): "."}).replace(".", "。"),
        "v0.5.16 and 0.5.12.post1 differ; commit abc1234",
        "4-token batches: the token budget is not the limit",
        "accept length 5.7494 at 20:15, cap 1 → 2",
    ],
)
def test_plain_sentences_stay_as_they_are(sentence: str) -> None:
    """What engineers write about serving is not mistaken for a secret."""
    assert sentence == Redactor().text(sentence, 400)


def test_choice_of_a_private_value_is_read_back() -> None:
    """The model chooses by number; the draft holds the real value, for the executor."""
    packet = a_packet()
    layout = packet.knobs[4].model_copy(update={"values": ("default", "/data/canary/layout.json")})
    packet = packet.model_copy(update={"knobs": (*packet.knobs[:4], layout, *packet.knobs[5:])})
    card = {**CARD, "knob": layout.path, "to_value": "option-2"}
    (draft,) = LlmProposer(ScriptedModel([an_answer(card)])).propose(packet).drafts
    assert draft.change.to_value == "/data/canary/layout.json"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300), st.integers(min_value=10, max_value=200))
def test_redacted_text_is_one_printable_line_within_its_limit(text: str, limit: int) -> None:
    """For any text and any limit; cleaning it once more changes nothing."""
    redacted = Redactor(NAMED).text(text, limit)
    assert len(redacted) <= limit
    assert redacted.isprintable()
    assert redacted == clean_line(redacted)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "a." * 50_000,
        "a@" * 50_000,
        "/" * 100_000,
        ":" * 100_000,
        "1." * 50_000,
        "\x1b[" * 50_000,
        "a-" * 50_000,
    ],
    ids=lambda text: repr(text[:2]),
)
def test_hostile_text_is_redacted_in_bounded_time(text: str) -> None:
    """No search is quadratic in the text."""
    started = time.monotonic()
    Redactor(NAMED).text(text, 400)
    assert time.monotonic() - started < 2
