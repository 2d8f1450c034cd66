"""The serving model of the simulated pool, in process: with run-to-run noise, a memory wall, slow drift and faults.

The model's equations are the product's (`executor.simulated.model`); its noise is switched off here, so that the truth
of a configuration is one figure, and put on again per launch. Two loads: the field record's, which fills the service,
and a half one, at which client and prefill hold the service up at the same place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np

from executor.simulated.calibrations import read_calibration
from executor.simulated.model.admission import AdmissionRule
from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.memory import prefill_fits
from executor.simulated.model.noise import RunNoise
from executor.simulated.model.pool_setup import PoolSetup
from executor.simulated.model.run import PoolRun
from executor.simulated.model.setup import DecodeSetup, PrefillSetup, Routing
from executor.simulated.model.trace import RunTrace
from executor.simulated.model.workload import Load, Request, Segment
from experiments.evidence import DecodeEvidence, Figure, PrefillEvidence, ServingEvidence, mean_figure, summarise_depth
from experiments.goal import Goal, parse_goal, starting_config
from experiments.serving_config import ServingConfig, Value
from experiments.trial import Reason, TrialLoad, TrialRecord
from tests.bench.planner.pool import Truth, failed, keeps_limits, measured

INPUT_TOKENS, OUTPUT_TOKENS, CARDS, RANKS = 16_388, 1024, 16, 16
POOL_TOKENS = 1_300_000
NOISE, DRIFT, FAULTS = 0.01, 0.0015, 0.05  # of one run; per launch, downwards; share of launches

GOAL = """\
name: serving-16k
scenario:
  model: DeepSeek-V4-Flash-W8A8
  deployment: pd
  input: {{body_tokens: 16384, encoded_tokens: 16388, task: copy}}
  output_tokens: 1024
  cache: {{state: zero}}
  load: {{client: aisbench, requests: {requests}, concurrency: {concurrency}, rate: {rate}, warmup: 8, seed: 42}}
objective: {{metric: output_tok_s_per_card, window: whole, direction: maximize}}
window_floor: {{requests: 128, seconds: 10}}
constraints: {limits}
screening: {{requests: {requests}, repeats: 1, give_up: 0.7}}
confirmation: {{pairs_min: 1, pairs_max: 4, detect: 0.03}}
noise: {{repeats: 2, fresh: 1, assumed: 0.01}}
sentinel: {{cards: 5, hours: 1000, drifts: 100}}
budget: {{trials: {launches}, hours: 1000, llm_tokens: 100000000}}
baseline: {{file: baseline.yaml}}
knobs:
  - {{role: prefill, flag: prefill-max-requests, values: [1, 2, 3, 4], cost: restart}}
  - {{role: prefill, flag: chunked-prefill-size, values: {chunks}, cost: restart}}
  - {{role: prefill, flag: mem-fraction-static, values: {fractions}, cost: restart}}
  - {{role: decode, flag: max-running-requests, values: {slots}, cost: restart}}
  - {{role: client, param: concurrency, values: {in_flight}, cost: hot}}
  - {{role: client, param: rate, values: {rates}, cost: hot}}
"""


@dataclass(frozen=True, kw_only=True)
class At:
    """A load to start from, and what may be changed. Each service starts at cap 1, chunk 131072, fraction 0.7."""

    requests: int
    concurrency: int
    rate: float
    slots_at_start: int
    limits: str
    chunks: str
    fractions: str
    slots: str
    in_flight: str
    rates: str


FIELD = At(  # the load and the knobs of the 16K demo
    requests=320,
    concurrency=128,
    rate=6.0,
    slots_at_start=256,
    limits="[tpot_mean < 20 ms]",
    chunks="[131072, 262144, 524288]",
    fractions="[0.62, 0.7, 0.78]",
    slots="[96, 128, 160, 256]",
    in_flight="[64, 96, 128, 160]",
    rates="[4.0, 6.0, 8.0]",
)
HALF = At(
    requests=160,
    concurrency=64,
    rate=4.0,
    slots_at_start=64,
    limits="[tpot_mean <= 11 ms, ttft_mean <= 20 s]",
    chunks="[65536, 131072, 262144]",
    fractions="[0.62, 0.7, 0.82]",
    slots="[32, 64, 128, 192]",
    in_flight="[32, 64, 128]",
    rates="[3.0, 4.0, 8.0]",
)


class Serving:
    def __init__(self, at: At, *, launches: int = 40) -> None:
        self._at = at
        self.goal: Goal = parse_goal(GOAL.format(launches=launches, **vars(at)), "goal.yaml")
        settings: dict[str, Value] = {
            "prefill.flag.prefill-max-requests": 1,
            "prefill.flag.chunked-prefill-size": 131072,
            "prefill.flag.mem-fraction-static": 0.7,
            "decode.flag.max-running-requests": at.slots_at_start,
        }
        self.starting: ServingConfig = starting_config(self.goal, ServingConfig(settings=settings))
        self.optimum = _optimum(self)

    def worth(self, config: ServingConfig) -> float:
        point = _point(config)
        if not _starts(point):
            return 0.0
        truth = _truth(self._running(point))
        return _per_card(truth) if keeps_limits(self.goal, truth) else 0.0

    def run(self, config: ServingConfig, load: TrialLoad, trial_id: str, chance: random.Random) -> TrialRecord:
        number, point = int(trial_id.lstrip("t")), _point(config)
        if chance.random() < FAULTS:
            return failed(trial_id, Reason.TRANSPORT, "the connection was lost", configuration_caused=False)
        if not _starts(point):
            return failed(trial_id, Reason.LAUNCH, "prefill ran out of device memory", configuration_caused=True)
        truth = _truth(self._running(point))
        factor = (1 + chance.gauss(0, NOISE)) * (1 - DRIFT) ** number
        shown = Truth(
            runs=True,
            request_per_s=truth.request_per_s * factor,
            tpot_ms=truth.tpot_ms * (1 + chance.gauss(0, NOISE)),
            ttft_s=truth.ttft_s * (1 + chance.gauss(0, NOISE)),
        )
        return measured(
            shown, load, trial_id, output_tokens=OUTPUT_TOKENS, cards=CARDS, evidence=_evidence(self._running(point))
        )

    def _running(self, point: Point) -> Running:
        """What decides the speed: memory decides only whether it runs."""
        cap, chunk, _, running, concurrency, rate = point
        return self._at.requests, cap, chunk, running, concurrency, rate


Point = tuple[int, int, float, int, int, float]
Running = tuple[int, int, int, int, int, float]


def _point(config: ServingConfig) -> Point:
    at = config.settings
    return (
        int(at["prefill.flag.prefill-max-requests"] or 0),
        int(at["prefill.flag.chunked-prefill-size"] or 0) // RANKS,
        float(at["prefill.flag.mem-fraction-static"] or 0),
        int(at["decode.flag.max-running-requests"] or 0),
        int(at["client.client.concurrency"] or 0),
        float(at["client.client.rate"] or 0),
    )


def _starts(point: Point) -> bool:
    cap, chunk, fraction, *_ = point
    return prefill_fits(read_calibration("flash").memory, fraction, chunk, cap)


@cache
def _trace(running: Running) -> RunTrace:
    count, cap, chunk, slots, concurrency, rate = running
    calibration = read_calibration("flash")
    quiet = replace(calibration.noise, run_sigma=0.0, step_sigma=0.0, drift_per_hour=0.0)
    per_rank = max(slots // RANKS, 1)
    pool = PoolSetup(
        prefill=PrefillSetup(
            dp=RANKS,
            dies=RANKS,
            rule=AdmissionRule(chunk=chunk, page=128, cap=cap, max_prefill_tokens=2 * chunk, gate=False),
            radix=True,
            pool_tokens=POOL_TOKENS,
            max_running=64,
            routing=Routing.ROUND_ROBIN,
        ),
        decode=DecodeSetup(
            dp=RANKS,
            max_running=per_rank,
            slots=3 * per_rank,
            pool_tokens=POOL_TOKENS,
            reserved_tokens=512,
            graph_sizes=tuple(range(1, 33)),
            width=6,
            routing=Routing.ROUND_ROBIN,
        ),
        calibration=calibration,
    )
    requests = [
        Request(index=n, prompt=(Segment(f"p{n}", INPUT_TOKENS),), output_tokens=OUTPUT_TOKENS, task="copy")
        for n in range(count)
    ]
    caches = [PrefixCache(POOL_TOKENS, calibration.cache_granularity) for _ in range(RANKS)]
    load = Load(concurrency=concurrency, rate=rate)
    return PoolRun(pool, requests, load, caches, RunNoise(quiet, 42)).run()


@cache
def _summary(running: Running) -> tuple[float, float, float]:
    trace = _trace(running)
    tpot = [(r.end - r.first) / max(r.output_tokens - 1, 1) for r in trace.requests]
    ttft = [r.first - r.sent for r in trace.requests]
    return running[0] / trace.duration, 1000 * float(np.mean(tpot)), float(np.mean(ttft))


def _truth(running: Running) -> Truth:
    request_per_s, tpot_ms, ttft_s = _summary(running)
    return Truth(runs=True, request_per_s=request_per_s, tpot_ms=tpot_ms, ttft_s=ttft_s)


def _per_card(truth: Truth) -> float:
    return truth.request_per_s * OUTPUT_TOKENS / CARDS


def _optimum(pool: Serving) -> float:
    knobs = pool.goal.space.knobs
    best = 0.0
    for values in product(*(knob.candidates() for knob in knobs)):
        config = pool.starting
        for knob, value in zip(knobs, values, strict=True):
            config = config.with_value(knob.path, value)
        best = max(best, pool.worth(config))
    return best


@cache
def _evidence(running: Running) -> ServingEvidence:
    """What the logs of such a run would show, by the definitions of the product's evidence."""
    trace = _trace(running)
    batches, samples = trace.prefill_batches, trace.decode_samples
    chunk = max(batch.new_tokens for batch in batches)
    return ServingEvidence(
        prefill=PrefillEvidence(
            waiting=summarise_depth([float(b.queued) for b in batches]),
            batches=Figure(value=float(len(batches)), n=len(batches)),
            chunk_fill=mean_figure([b.new_tokens / chunk for b in batches]),
            multi_sequence_share=_share([b.sequences > 1 for b in batches]),
            lone_tail_share=_share([b.sequences == 1 and b.new_tokens < chunk / 10 for b in batches]),
        ),
        decode=DecodeEvidence(
            prealloc=summarise_depth([float(s.prealloc) for s in samples]),
            running=summarise_depth([float(s.running) for s in samples]),
            accept_length=mean_figure([s.accept_length for s in samples]),
            retractions=Figure(value=float(len(trace.retractions)), n=1),
        ),
        simulated=True,
    )


def _share(flags: Sequence[bool]) -> Figure:
    return mean_figure([float(flag) for flag in flags])
