"""What is known about the knobs of SGLang: which wall each relieves, in which direction, and by what mechanism.

Field knowledge, not answers: an entry says what a knob does, the evidence of the study says whether that matters here.
A knob that is not in the table may still be proposed by the optimizer or the LLM.
Sources: sglang.md §4–§6 of the project's reference, and the options' own documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from experiments.card import Wall


class Toward(StrEnum):
    """The direction that relieves the wall."""

    MORE = "more"
    LESS = "less"
    EITHER = "either"


@dataclass(frozen=True, kw_only=True)
class KnobEffect:
    """One mechanism of one knob. `signs` are the figures whose size says that the mechanism has something to gain."""

    name: str  # bare knob name
    wall: Wall
    toward: Toward
    mechanism: str
    signs: tuple[str, ...] = ()
    least_sign: float = 0.0  # the first sign has to be at least this; below it the mechanism gains nothing
    most_sign: float = inf  # and at most this
    gain: tuple[float, float] = (-0.02, 0.05)  # usual relative effect on throughput when the signs are there


EFFECTS: tuple[KnobEffect, ...] = (
    KnobEffect(
        name="prefill-max-requests",
        wall=Wall.PREFILL_SUPPLY,
        toward=Toward.MORE,
        mechanism="Batches that hold only the short tail of one prompt pay the fixed cost of a forward for a few "
        "tokens. Admitting another request into the same batch lets the tail share that cost.",
        signs=("prefill.lone_tail_share",),
        least_sign=0.05,
        gain=(0.0, 0.45),
    ),
    KnobEffect(
        name="prefill-max-requests",
        wall=Wall.PREFILL_SUPPLY,
        toward=Toward.MORE,
        mechanism="Prefill batches are not full although prompts wait: another one in the same forward shares its "
        "fixed cost.",
        signs=("prefill.chunk_fill",),
        most_sign=0.9,
        gain=(0.0, 0.30),
    ),
    KnobEffect(
        name="chunked-prefill-size",
        wall=Wall.PREFILL_SUPPLY,
        toward=Toward.MORE,
        mechanism="A larger chunk spreads the fixed cost of a prefill forward over more tokens, at the price of "
        "activation memory on the prefill side.",
        signs=("prefill.chunk_fill", "prefill.batches"),
        gain=(-0.05, 0.30),
    ),
    KnobEffect(
        name="max-prefill-tokens",
        wall=Wall.PREFILL_SUPPLY,
        toward=Toward.MORE,
        mechanism="The input cap of a batch can keep a second request out of it before the chunk is full.",
        signs=("prefill.lone_tail_share",),
        least_sign=0.05,
        gain=(-0.01, 0.30),
    ),
    KnobEffect(
        name="mem-fraction-static",
        wall=Wall.MEMORY,
        toward=Toward.MORE,
        mechanism="More of the device holds KV pages, so fewer requests wait for space.",
        signs=("decode.token_usage_max",),
        least_sign=0.85,
        gain=(-0.02, 0.10),
    ),
    KnobEffect(
        name="max-running-requests",
        wall=Wall.DECODE_BATCH,
        toward=Toward.MORE,
        mechanism="Finished prefills wait for a decode slot; a higher cap runs them, and each step takes longer.",
        signs=("decode.prealloc.share_positive",),
        least_sign=0.2,
        gain=(-0.02, 0.15),
    ),
    KnobEffect(
        name="max-running-requests",
        wall=Wall.DECODE_BATCH,
        toward=Toward.MORE,
        mechanism="Every slot that the engine allows is in use: a higher cap runs more requests at once, and each step "
        "takes longer.",
        signs=("decode.running_share_of_cap",),
        least_sign=0.92,
        gain=(-0.02, 0.15),
    ),
    KnobEffect(
        name="num-reserved-decode-tokens",
        wall=Wall.MEMORY,
        toward=Toward.LESS,
        mechanism="Reserving less per request admits more of them at once, at the risk of retractions.",
        signs=("decode.token_usage_max",),
        least_sign=0.85,
        gain=(-0.03, 0.08),
    ),
    KnobEffect(
        name="concurrency",
        wall=Wall.CLIENT_SUPPLY,
        toward=Toward.MORE,
        mechanism="Nothing queues inside the service, so more requests in flight raise its batches.",
        signs=("client.concurrency_mean",),
        gain=(0.0, 0.25),
    ),
    KnobEffect(
        name="concurrency",
        wall=Wall.PREFILL_SUPPLY,
        toward=Toward.MORE,
        mechanism="Requests queue for prefill in most samples but not in all: at times a rank runs dry while others "
        "have work. More requests in flight leave it dry less often; every response then takes longer.",
        signs=("prefill.waiting.share_positive",),
        most_sign=0.95,
        gain=(0.0, 0.08),
    ),
    KnobEffect(
        name="rate",
        wall=Wall.CLIENT_SUPPLY,
        toward=Toward.MORE,
        mechanism="Requests arrive more slowly than the service could take them.",
        signs=("client.request_per_s",),
        gain=(0.0, 0.20),
    ),
    KnobEffect(
        name="concurrency",
        wall=Wall.SLO,
        toward=Toward.LESS,
        mechanism="Fewer requests in flight make smaller decode batches and shorter queues, so every latency falls.",
        signs=("client.tpot_mean_ms",),
        gain=(-0.10, 0.0),
    ),
    KnobEffect(
        name="speculative-num-steps",
        wall=Wall.DECODE_BATCH,
        toward=Toward.MORE,
        mechanism="Every accepted draft token saves a decode step, and decode is what holds the service up.",
        gain=(-0.05, 0.50),
    ),
    KnobEffect(
        name="speculative-num-steps",
        wall=Wall.DECODE_BATCH,
        toward=Toward.EITHER,
        mechanism="Longer drafts raise the tokens accepted per verify step while the output is easy to predict.",
        signs=("decode.accept_length",),
        gain=(-0.05, 0.15),
    ),
    KnobEffect(
        name="init-expert-location",
        wall=Wall.IMBALANCE,
        toward=Toward.EITHER,
        mechanism="A placement fitted to the recorded expert load evens out the ranks that all others wait for.",
        signs=("prefill.rank_imbalance",),
        least_sign=0.05,
        gain=(-0.02, 0.12),
    ),
)


# Which way a knob needs more device memory on its side: +1 where more of it does.
MEMORY_NEEDS: dict[str, int] = {
    "max-running-requests": 1,
    "prefill-max-requests": 1,
    "chunked-prefill-size": 1,
    "max-prefill-tokens": 1,
    "mem-fraction-static": 1,
    "cuda-graph-max-bs": 1,
    "num-reserved-decode-tokens": 1,
    "ep-num-redundant-experts": 1,
}


def effects_of(name: str) -> tuple[KnobEffect, ...]:
    return tuple(effect for effect in EFFECTS if effect.name == name)
