"""Speculative decoding: how many tokens each verify step yields.

With draft chain width W and acceptance probability p a step yields min(W, 1 + Geometric) tokens, mean
(1 − p^W)/(1 − p). Each request has its own p (tasks differ), spread around the task's value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.simulated.model.parameters import Acceptance
from executor.simulated.model.setup import DecodeSetup
from executor.simulated.model.trace import Ints
from executor.simulated.model.workload import Request


def mean_yield(p: float, width: int) -> float:
    """Expected tokens of one verify step, the token of the target model included."""
    return float(width) if p >= 1.0 else (1.0 - p**width) / (1.0 - p)


def draw_probabilities(
    acceptance: Acceptance, tasks: Sequence[str], scale: float, rng: np.random.Generator
) -> Sequence[float]:
    """One acceptance probability per request: the odds of the task's value times a log-normal factor."""
    default = acceptance.by_task["ordinary"]
    base = np.array([acceptance.by_task.get(task, default) for task in tasks]) * scale
    base = np.clip(base, 1e-6, 1 - 1e-6)
    odds = base / (1 - base) * np.exp(acceptance.spread * rng.standard_normal(len(base)))
    chosen: list[float] = (odds / (1 + odds)).tolist()
    return chosen


def draw_yields(p: float, width: int, tokens: int, rng: np.random.Generator) -> Ints:
    """Tokens per step until `tokens` are out; the last step is cut to fit. Empty when nothing is left to do."""
    if tokens <= 0:
        return np.zeros(0, dtype=np.int64)
    if width <= 1:
        return np.ones(tokens, dtype=np.int64)
    steps = int(tokens / mean_yield(p, width) * 1.3) + 8
    draws = np.minimum(rng.geometric(1.0 - p, size=steps), width)
    while int(draws.sum()) < tokens:
        draws = np.concatenate([draws, np.minimum(rng.geometric(1.0 - p, size=steps), width)])
    total = np.cumsum(draws)
    last = int(np.searchsorted(total, tokens))
    yields: Ints = draws[: last + 1].astype(np.int64)
    yields[last] -= int(total[last]) - tokens
    return yields


def draw_load(
    acceptance: Acceptance, requests: Sequence[Request], setup: DecodeSetup, rng: np.random.Generator
) -> list[Ints]:
    """Tokens per step of every request; the first token of each comes from prefill."""
    chances = draw_probabilities(acceptance, [r.task for r in requests], setup.acceptance_scale, rng)
    return [
        draw_yields(chance, setup.width, request.output_tokens - 1, rng)
        for chance, request in zip(chances, requests, strict=True)
    ]
