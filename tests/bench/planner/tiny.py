"""A pool of a few knobs whose truth is written down as a function: for traps and other small claims."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import product

from experiments.evidence import DecodeEvidence, Depth, Figure, PrefillEvidence, ServingEvidence
from experiments.goal import Goal, parse_goal, starting_config
from experiments.serving_config import ServingConfig, Value
from experiments.trial import Reason, TrialLoad, TrialRecord
from tests.bench.planner.pool import Truth, failed, keeps_limits, measured

Settings = Mapping[str, Value]
Rate = Callable[[Settings], float | None]
"""Requests per second of a configuration by bare knob name; None where it runs out of memory."""

GOAL = """\
name: tiny
scenario:
  model: any
  deployment: pd
  input: {body_tokens: 1024, encoded_tokens: 1024, task: copy}
  output_tokens: 256
  cache: {state: zero}
  load: {client: aisbench, requests: 640, concurrency: 128, rate: 20.0, warmup: 8, seed: 42}
objective: {metric: request_per_s, window: whole, direction: maximize}
screening: {requests: 320}
sentinel: {cards: 1000, hours: 1000}
budget: {trials: TRIALS, hours: 1000, llm_tokens: 100000000}
baseline: {file: baseline.yaml}
knobs:
"""


class TinyPool:
    """Decode is what binds. `waiting` is the one figure that may change with the configuration."""

    def __init__(
        self,
        knobs: Mapping[str, tuple[Value, ...]],
        rate: Rate,
        *,
        noise: float = 0.005,
        trials: int = 60,
        waiting: Callable[[Settings], float] = lambda _: 0.0,
        luck: Callable[[int], float] = lambda _: 1.0,
    ) -> None:
        """Each knob starts at its first value. `luck` multiplies what the n-th launch shows."""
        lines = [
            f"  - {{role: decode, flag: {name}, values: {list(values)}, cost: restart}}"
            for name, values in knobs.items()
        ]
        self.goal: Goal = parse_goal(GOAL.replace("TRIALS", str(trials)) + "\n".join(lines) + "\n", "goal.yaml")
        self._knobs, self._rate, self._noise, self._waiting, self._luck = knobs, rate, noise, waiting, luck
        settings: dict[str, Value] = {f"decode.flag.{name}": values[0] for name, values in knobs.items()}
        settings["prefill.flag.tp-size"] = 8
        self.starting: ServingConfig = starting_config(self.goal, ServingConfig(settings=settings))
        self.optimum = max(
            found for values in product(*knobs.values()) if (found := rate(dict(zip(knobs, values, strict=True))))
        )
        self.launches = 0

    def worth(self, config: ServingConfig) -> float:
        return self._rate(self._named(config)) or 0.0

    def run(self, config: ServingConfig, load: TrialLoad, trial_id: str, chance: random.Random) -> TrialRecord:
        self.launches += 1
        rate = self._rate(self._named(config))
        if rate is None:
            return failed(trial_id, Reason.LAUNCH, "decode ran out of device memory", configuration_caused=True)
        shown = rate * (1 + chance.gauss(0, self._noise)) * self._luck(self.launches)
        truth = Truth(runs=True, request_per_s=shown, tpot_ms=10.0, ttft_s=1.0)
        assert keeps_limits(self.goal, truth)
        return measured(
            truth, load, trial_id, output_tokens=256, cards=16, evidence=self._evidence(self._named(config))
        )

    def _named(self, config: ServingConfig) -> dict[str, Value]:
        return {name: config.settings[f"decode.flag.{name}"] for name in self._knobs}

    def _evidence(self, settings: Settings) -> ServingEvidence:
        share = self._waiting(settings)
        queue = Depth(mean=10 * share, p50=10 * share, p90=10 * share, share_positive=share, n=100)
        return ServingEvidence(
            prefill=PrefillEvidence(waiting=queue),
            decode=DecodeEvidence(
                prealloc=Depth(mean=5.0, p50=5.0, p90=9.0, share_positive=0.9, n=100),
                running_share_of_cap=Figure(value=1.0, n=100),
            ),
            simulated=True,
        )
