"""Seeded variation of one run: a factor per run and side, a jitter per step, a slow drift, a cold start."""

from __future__ import annotations

import math

import numpy as np

from executor.simulated.model.parameters import Noise


class RunNoise:
    """`hours` is the age of the pool, for the drift; `forwards_before` counts prefill forwards since the launch."""

    def __init__(
        self,
        noise: Noise,
        seed: int,
        *,
        hours: float = 0.0,
        forwards_before: int | None = None,
        slowdown: float = 1.0,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self._noise = noise
        drift = slowdown * math.exp(noise.drift_per_hour * hours)
        sigma = noise.run_sigma
        self._prefill = drift * math.exp(sigma * float(self.rng.standard_normal()))
        self._decode = drift * math.exp(sigma * float(self.rng.standard_normal()))
        self._cold_left = 0 if forwards_before is None else max(0, noise.cold_forwards - forwards_before)

    def forward_factor(self, now: float) -> float:
        jitter = math.exp(self._noise.step_sigma * float(self.rng.standard_normal()))
        if self._cold_left > 0:
            self._cold_left -= 1
            return self._prefill * jitter * self._noise.cold_factor
        return self._prefill * jitter

    def step_factor(self, now: float) -> float:
        return self._decode * math.exp(self._noise.step_sigma * float(self.rng.standard_normal()))
