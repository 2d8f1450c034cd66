"""The P8+D8 landscape as a pool: two sides, the slower one binds, with memory walls and SLO walls.

The product's evidence is made from it as a real pool would show it: the slower side queues, the other one has room.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from experiments.evidence import DecodeEvidence, Depth, Figure, PrefillEvidence, ServingEvidence
from experiments.goal import Goal, parse_goal, starting_config
from experiments.serving_config import ServingConfig, Value
from experiments.trial import Reason, TrialLoad, TrialRecord
from tests.bench.planner.pool import Truth, failed, keeps_limits, measured

ROWS = Path(__file__).with_name("data") / "pd8_landscape.jsonl"
PREFILL_SHARE, DECODE_SHARE = 0.9, 0.92  # of a side's rate that a disaggregated pair reaches
LATENCY_NOISE = 0.01  # relative sd of the mean latency of a run
BALANCE = 0.05  # how far one side has to be slower before its queue stands
LARGEST_BATCH = 8  # prompts that one prefill step could hold
OUTPUT_TOKENS, CARDS = 1024, 16

GOAL = """\
name: pd8-landscape
scenario:
  model: DeepSeek-V3
  deployment: pd
  input: {{body_tokens: 4096, encoded_tokens: 4096, task: copy}}
  output_tokens: 1024
  cache: {{state: zero}}
  load: {{client: aisbench, requests: 640, concurrency: 512, rate: 20.0, warmup: 8, seed: 42}}
objective: {{metric: request_per_s, window: whole, direction: maximize}}
constraints: [tpot_mean <= {tpot_ms} ms, ttft_mean <= {ttft_s} s]
# A launch is what costs here, so the screening load is the formal one.
screening: {{requests: 640, repeats: 1, give_up: 0.7}}
confirmation: {{pairs_min: 1, pairs_max: 3, detect: 0.08}}
noise: {{repeats: 2, fresh: 1, assumed: 0.03}}
sentinel: {{cards: 1000, hours: 1000}}
budget: {{trials: {launches}, hours: 1000, llm_tokens: 100000000}}
baseline: {{file: baseline.yaml}}
knobs:
  - {{role: prefill, flag: {prefill_layout}, values: {layouts}, cost: restart}}
  - {{role: prefill, flag: {prefill_batch}, values: [1, 2, 4, 8], cost: restart}}
  - {{role: decode, flag: {decode_layout}, values: {layouts}, cost: restart}}
  - {{role: decode, flag: {decode_batch}, values: [4, 8, 16, 32, 64, 96, 128, 192, 256], cost: restart}}
  - {{role: decode, flag: {drafts}, values: [0, 1, 2, 3], cost: restart}}
  - {{role: decode, flag: {kv}, values: [fp8, bfloat16], cost: restart}}
"""


@dataclass(frozen=True, kw_only=True)
class Names:
    """How the six knobs are called. With other names no knowledge of SGLang applies: the control for recall."""

    prefill_layout: str = "parallelism"
    prefill_batch: str = "prefill-max-requests"
    decode_layout: str = "parallelism"
    decode_batch: str = "max-running-requests"
    drafts: str = "speculative-num-steps"
    kv: str = "kv-cache-dtype"


SGLANG = Names()
RENAMED = Names(
    prefill_layout="knob-a",
    prefill_batch="knob-b",
    decode_layout="knob-c",
    decode_batch="knob-d",
    drafts="knob-e",
    kv="knob-f",
)


@dataclass(frozen=True, kw_only=True)
class Slo:
    tpot_ms: float
    ttft_s: float

    def __str__(self) -> str:
        return f"TPOT {self.tpot_ms:g} ms, TTFT {self.ttft_s:g} s"


LOOSE, TIGHT = Slo(tpot_ms=50, ttft_s=5), Slo(tpot_ms=30, ttft_s=3)


@dataclass(frozen=True, kw_only=True)
class Sides:
    """What each side could do alone, in requests per second."""

    prefill: float
    decode: float


class Landscape:
    """One setting of the limits, with `noise` on the throughput of a run."""

    def __init__(self, slo: Slo, *, launches: int = 40, noise: float = 0.03, names: Names = SGLANG) -> None:
        self._names, self._noise = names, noise
        self.goal: Goal = parse_goal(
            GOAL.format(
                tpot_ms=slo.tpot_ms,
                ttft_s=slo.ttft_s,
                launches=launches,
                layouts=json.dumps(_layouts()),
                **vars(names),
            ),
            "goal.yaml",
        )
        settings = self._settings(("tp8-dp1-moe1-ep8", 1), ("tp8-dp1-moe1-ep8", 32, 0, "bfloat16"))
        self.starting: ServingConfig = starting_config(self.goal, ServingConfig(settings=settings))
        self.optimum = max(self.worth(config) for config in self._all())

    def worth(self, config: ServingConfig) -> float:
        truth = self._truth(config)[0]
        return truth.request_per_s if truth.runs and keeps_limits(self.goal, truth) else 0.0

    def run(self, config: ServingConfig, load: TrialLoad, trial_id: str, chance: random.Random) -> TrialRecord:
        truth, sides, lacking = self._truth(config)
        if sides is None:
            detail = f"{lacking} ran out of device memory while loading"
            return failed(trial_id, Reason.LAUNCH, detail, configuration_caused=True)
        seen = Truth(
            runs=True,
            request_per_s=truth.request_per_s * (1 + chance.gauss(0, self._noise)),
            tpot_ms=truth.tpot_ms * (1 + chance.gauss(0, LATENCY_NOISE)),
            ttft_s=truth.ttft_s * (1 + chance.gauss(0, LATENCY_NOISE)),
        )
        evidence = _evidence(sides, self._batch(config), chance)
        return measured(seen, load, trial_id, output_tokens=OUTPUT_TOKENS, cards=CARDS, evidence=evidence)

    def _truth(self, config: ServingConfig) -> tuple[Truth, Sides | None, str]:
        prefill, decode = self._rows(config)
        if prefill["status"] != "ok" or decode["status"] != "ok":
            return Truth(runs=False), None, "prefill" if prefill["status"] != "ok" else "decode"
        sides = Sides(prefill=PREFILL_SHARE * float(prefill["seq_s"]), decode=DECODE_SHARE * float(decode["seq_s"]))
        truth = Truth(
            runs=True,
            request_per_s=min(sides.prefill, sides.decode),
            tpot_ms=float(decode["tpot_ms"]),
            ttft_s=float(prefill["ttft_ms"]) / 1000,
        )
        return truth, sides, ""

    def _rows(self, config: ServingConfig) -> tuple[dict[str, str | float], dict[str, str | float]]:
        names, at = self._names, config.settings
        prefill = (at[f"prefill.flag.{names.prefill_layout}"], at[f"prefill.flag.{names.prefill_batch}"])
        decode = tuple(
            at[f"decode.flag.{name}"] for name in (names.decode_layout, names.decode_batch, names.drafts, names.kv)
        )
        return _read_rows()["prefill", *prefill], _read_rows()["decode", *decode]

    def _batch(self, config: ServingConfig) -> int:
        return int(self._rows(config)[0]["batch"])

    def _settings(self, prefill: tuple[Value, ...], decode: tuple[Value, ...]) -> dict[str, Value]:
        names = self._names
        paths = (
            *(f"prefill.flag.{name}" for name in (names.prefill_layout, names.prefill_batch)),
            *(f"decode.flag.{name}" for name in (names.decode_layout, names.decode_batch, names.drafts, names.kv)),
        )
        return dict(zip(paths, (*prefill, *decode), strict=True))

    def _all(self) -> list[ServingConfig]:
        keys = _read_rows()
        sides = [[key[1:] for key in keys if key[0] == side] for side in ("prefill", "decode")]
        return [ServingConfig(settings=self._settings(p, d)) for p, d in product(*sides)]


@cache
def _read_rows() -> dict[tuple[Value, ...], dict[str, str | float]]:
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    return {_key(row): row for row in rows}


def _key(row: dict[str, Value]) -> tuple[Value, ...]:
    prefill = (row["side"], row["parallelism"], row["batch"])
    return prefill if row["side"] == "prefill" else (*prefill, row["drafts"], row["kv"])


def _layouts() -> list[str]:
    return sorted({str(key[1]) for key in _read_rows()})


def _evidence(sides: Sides, batch: int, chance: random.Random) -> ServingEvidence:
    """Queues stand before the slower side; the share of its cap that decode runs is its share of its own rate."""
    slack = math.log(sides.decode / sides.prefill)  # above 0: prefill is slower
    share = min(sides.prefill / sides.decode, 1.0) * (1 + chance.gauss(0, 0.01))
    return ServingEvidence(
        prefill=PrefillEvidence(waiting=_queue(slack / BALANCE), chunk_fill=Figure(value=batch / LARGEST_BATCH, n=200)),
        decode=DecodeEvidence(
            prealloc=_queue(-slack / BALANCE), running_share_of_cap=Figure(value=min(share, 1.0), n=200)
        ),
        simulated=True,
    )


def _queue(slack: float) -> Depth:
    share = 1 / (1 + math.exp(-max(min(slack * 3, 50.0), -50.0)))
    return Depth(mean=12 * share, p50=12 * share, p90=20 * share, share_positive=round(share, 4), n=200)
