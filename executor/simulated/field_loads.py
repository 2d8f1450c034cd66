"""The loads and configurations of the field record as inputs of the model. Pure.

What the record does not say is assumed once, here: 16 prefill and 16 decode ranks; each prefill rank holds the prefix
of its own group and the 128K data set visits the groups in shuffled order (seeds and checks were made per rank); cap 1
for every row before the cap was raised; the mixed service's default prefill delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from executor.simulated.model.admission import AdmissionRule
from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.mechanisms import ServerMechanisms, decode_factors, prefill_factors
from executor.simulated.model.mixed import MixedRun
from executor.simulated.model.noise import RunNoise
from executor.simulated.model.parameters import Calibration
from executor.simulated.model.pool_setup import PoolSetup
from executor.simulated.model.run import PoolRun
from executor.simulated.model.setup import DecodeSetup, PrefillSetup, Routing
from executor.simulated.model.trace import RunTrace
from executor.simulated.model.workload import Load, Request, Segment

POOL_TOKENS = 1_300_000
PREFIX, QUESTION_128K = 118_784, 12_292
GRAPH_SIZES = tuple(range(1, 33))


@dataclass(frozen=True, kw_only=True)
class FieldLoad:
    """One measured condition of the record."""

    requests: int
    concurrency: int
    rate: float | None = 6.0
    warm_128k: bool = False
    cap: int | None = 2
    task: str = "copy"
    prefill: ServerMechanisms = field(default_factory=ServerMechanisms)
    decode: ServerMechanisms = field(default_factory=ServerMechanisms)
    mixed_prompt: tuple[int, int] | None = None  # system and question tokens of the mixed service's prompts

    def with_both(self, mechanisms: ServerMechanisms) -> FieldLoad:
        return replace(self, prefill=mechanisms, decode=mechanisms)


def run_field_load(load: FieldLoad, calibration: Calibration, seed: int) -> RunTrace:
    """The condition on the model, once."""
    if load.mixed_prompt is not None:
        return _run_mixed(load, calibration, seed)
    pool = PoolSetup(
        prefill=_prefill(load, calibration, dp=16, dies=16, chunk=8192),
        decode=_decode(load, calibration, dp=16, max_running=16),
        calibration=calibration,
    )
    requests = _requests_128k(load) if load.warm_128k else _requests_16k(load)
    caches = [PrefixCache(POOL_TOKENS, calibration.cache_granularity) for _ in range(16)]
    if load.warm_128k:
        for rank, cache in enumerate(caches):
            cache.insert((Segment(f"group-{rank}", PREFIX),), PREFIX)
    client = Load(concurrency=load.concurrency, rate=load.rate)
    return PoolRun(pool, requests, client, caches, RunNoise(calibration.noise, seed)).run()


def _run_mixed(load: FieldLoad, calibration: Calibration, seed: int) -> RunTrace:
    """TP32 DP8, 16384 tokens of chunk divided among the ranks, 32 running requests."""
    system, question = load.mixed_prompt or (0, 0)
    pool = PoolSetup(
        prefill=_prefill(load, calibration, dp=8, dies=32, chunk=2048),
        decode=_decode(load, calibration, dp=8, max_running=4),
        calibration=calibration,
        mixed=True,
    )
    requests = [
        Request(
            index=n, prompt=(Segment("system", system), Segment(f"q{n}", question)), output_tokens=1024, task=load.task
        )
        for n in range(load.requests)
    ]
    caches = [PrefixCache(POOL_TOKENS, calibration.cache_granularity) for _ in range(8)]
    for cache in caches:  # eight warm-up copies of the first prompt, one per rank
        cache.insert(requests[0].prompt, system + question)
    client = Load(concurrency=load.concurrency, rate=load.rate, gap_s=0.0)
    return MixedRun(pool, requests, client, caches, RunNoise(calibration.noise, seed)).run()


def _prefill(load: FieldLoad, calibration: Calibration, *, dp: int, dies: int, chunk: int) -> PrefillSetup:
    imbalance, slowdown = prefill_factors(calibration.mechanisms, load.prefill)
    cap = None if load.mixed_prompt is not None else load.cap
    return PrefillSetup(
        dp=dp,
        dies=dies,
        rule=AdmissionRule(chunk=chunk, page=128, cap=cap, max_prefill_tokens=16384, gate=False),
        radix=True,
        pool_tokens=POOL_TOKENS,
        max_running=64,
        routing=Routing.ROUND_ROBIN,
        imbalance=imbalance,
        slowdown=slowdown,
        delay_passes=calibration.mechanisms.delay_passes,
    )


def _decode(load: FieldLoad, calibration: Calibration, *, dp: int, max_running: int) -> DecodeSetup:
    imbalance, slowdown, acceptance = decode_factors(calibration.mechanisms, load.decode)
    return DecodeSetup(
        dp=dp,
        max_running=max_running,
        slots=3 * max_running,
        pool_tokens=POOL_TOKENS,
        reserved_tokens=512,
        graph_sizes=GRAPH_SIZES,
        width=6,
        routing=Routing.ROUND_ROBIN,
        imbalance=imbalance,
        slowdown=slowdown,
        acceptance_scale=acceptance,
    )


def _requests_16k(load: FieldLoad) -> list[Request]:
    return [
        Request(index=n, prompt=(Segment(f"p{n}", 16_388),), output_tokens=1024, task=load.task)
        for n in range(load.requests)
    ]


def _requests_128k(load: FieldLoad) -> list[Request]:
    groups: Sequence[int] = np.random.default_rng(128).permutation(np.arange(load.requests) % 16).tolist()
    return [
        Request(
            index=n,
            prompt=(Segment(f"group-{group}", PREFIX), Segment(f"p{n}", QUESTION_128K)),
            output_tokens=1024,
            task=load.task,
            rank=group,
        )
        for n, group in enumerate(groups)
    ]
