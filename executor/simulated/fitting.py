"""Chooses the calibration from the fitted rows of the record, mechanism by mechanism, and writes the calibration files.

Fixed by assumption, not by a row: the share of a prefill forward that does not depend on tokens, the KV transfer, the
spread of acceptance between requests, the noise, memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares

from executor.simulated.calibrate import mean_figures, quiet_of
from executor.simulated.calibrations import FOLDER, read_calibration
from executor.simulated.field_rows import LOADS
from executor.simulated.model.acceptance import draw_probabilities, draw_yields
from executor.simulated.model.parameters import Acceptance, Calibration, Mechanisms

SEEDS = tuple(range(1, 7))
FIXED_SHARE = 0.3  # of a full forward; no row of the record separates it from the work per token
CHUNK = 8192
WIDTH = 6
DELAYS = (30, 60)  # SGLang's default, and twice as long
MIXED_CHUNK, MIXED_DIES, MIXED_RANKS = 2048, 32, 8
MIXED_SHARES = (0.3, 0.2, 0.5)  # of a full forward: fixed, a rank's own work, expert work

Numbers = list[float]
Vector = NDArray[np.float64]


def fit_all() -> None:
    """Both calibrations, written to their files."""
    for calibration in (fit_flash(read_calibration("flash")), fit_pro(read_calibration("pro"))):
        path = FOLDER / f"{calibration.name}.json"
        path.write_text(json.dumps(asdict(calibration), indent=2, default=dict) + "\n", encoding="utf-8")
    read_calibration.cache_clear()


def fit_flash(start: Calibration) -> Calibration:
    """Copy text and the engines first, then what ordinary text accepts, then one parameter per mechanism."""
    calibration = _with_acceptance(quiet_of(start), copy=_accepting(start, 5.7494))
    calibration = _fit_engines(calibration)
    calibration = _fit_ordinary(calibration)
    for name, low, high in (
        ("index_cache_saving", 0.0, 0.3),
        ("compact_overhead", 0.0, 0.2),
        ("prefill_original", 1.0, 4.0),
        ("decode_original", 1.0, 1.6),
    ):
        calibration = _fit_mechanism(calibration, name, low, high)
    budget = _accepting(calibration, 5.3203) / calibration.acceptance.by_task["copy"]
    mechanisms = replace(calibration.mechanisms, budget_acceptance=budget)
    return replace(calibration, mechanisms=mechanisms, noise=start.noise)


def _accepting(calibration: Calibration, accept_length: float) -> float:
    """The acceptance probability whose 1024-token answers take 1024 / accept_length verify steps."""

    def excess(p: float) -> float:
        rng = np.random.default_rng(5)
        acceptance = Acceptance(by_task={"ordinary": p}, spread=calibration.acceptance.spread)
        chances = draw_probabilities(acceptance, ["ordinary"] * 640, 1.0, rng)
        steps = sum(len(draw_yields(chance, WIDTH, 1023, rng)) for chance in chances)
        return 640 * 1024 / steps - accept_length

    return float(brentq(excess, 0.3, 0.999, xtol=1e-5))


def _with_acceptance(calibration: Calibration, **tasks: float) -> Calibration:
    by_task = dict(calibration.acceptance.by_task) | tasks
    return replace(calibration, acceptance=replace(calibration.acceptance, by_task=by_task))


def _fit_engines(start: Calibration) -> Calibration:
    """Six parameters from 16K cap 1, 16K cap 2 and 128K C90."""
    names = ("16k cap 1", "16k cap 2", "128k C90")

    def errors(x: Vector) -> Numbers:
        calibration = _with_engines(start, x)
        one, two, warm = (mean_figures(LOADS[name], calibration, SEEDS) for name in names)
        return [
            3 * (one["native"]["tok_s_per_card"] / 179.04 - 1),
            3 * (two["native"]["tok_s_per_card"] / 236.8268 - 1),
            3 * (warm["whole"]["tok_s_per_card"] / 228.0921 - 1),
            2 * (warm["native"]["tok_s_per_card"] / 244.8612 - 1),
            two["native"]["tpot_ms"] / 9.4 - 1,
            warm["whole"]["tpot_ms"] / 10.3 - 1,
            warm["whole"]["ttft_s"] / 12.68 - 1,
        ]

    found = least_squares(
        errors,
        [1.366, 9.83, 2.99, 2.46, 47.5, 1.0],
        diff_step=[0.04] * 6,
        max_nfev=20,
        x_scale=[1, 5, 5, 5, 15, 20],
        bounds=([0, 0, 0, 0, 6, 0], [5, 50, 30, 40, 60, 300]),
    )
    return _with_engines(start, found.x)


def _with_engines(start: Calibration, x: Vector) -> Calibration:
    """x: full forward without expert work (s), expert work (1e-5 s/token), context (1e-10 s/token²), decode row of a
    request (ms), decode step without rows (ms), decode context (1e-9 s/token)."""
    forward, expert, context, row, step, decode_context = (float(value) for value in x)
    prefill = replace(
        start.prefill,
        fixed_s=forward * FIXED_SHARE,
        local_s_per_token=forward * (1 - FIXED_SHARE) / CHUNK,
        expert_s_per_token=expert * 1e-5,
        context_s_per_token2=context * 1e-10,
    )
    decode = replace(
        start.decode,
        fixed_s=step * 1e-3 - start.decode.draft_s * (WIDTH - 1),
        row_s=row * 1e-3 / WIDTH,
        context_s_per_token=decode_context * 1e-9,
    )
    return replace(start, prefill=prefill, decode=decode)


def _fit_ordinary(calibration: Calibration) -> Calibration:
    """What ordinary text accepts, from the TPOT of the IndexCache row's own baseline."""

    def excess(p: float) -> float:
        chosen = _with_acceptance(calibration, ordinary=p)
        return mean_figures(LOADS["ordinary"], chosen, SEEDS)["native"]["tpot_ms"] - 18.9

    return _with_acceptance(calibration, ordinary=float(brentq(excess, 0.4, 0.98, xtol=1e-3)))


_TARGETS: dict[str, tuple[str, str, str, float]] = {
    "index_cache_saving": ("ordinary", "ordinary, index reuse", "native", 5.41),
    "compact_overhead": ("N320, static verify", "N320", "native", -3.35),
    "prefill_original": ("N320, P layout original", "N320", "whole", 14.18),
    "decode_original": ("128k N160, D layout original", "128k N160", "whole", 0.81),
}


def _fit_mechanism(calibration: Calibration, name: str, low: float, high: float) -> Calibration:
    """One parameter on one row."""
    before, after, window, record = _TARGETS[name]

    def excess(value: float) -> float:
        chosen = replace(calibration, mechanisms=_set(calibration.mechanisms, name, value))
        first, second = (mean_figures(LOADS[load], chosen)[window]["tok_s_per_card"] for load in (before, after))
        return 100.0 * (second / first - 1.0) - record

    return replace(calibration, mechanisms=_set(calibration.mechanisms, name, _root(excess, low, high)))


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where the excess changes sign; the nearer end where it does not."""
    at_low, at_high = excess(low), excess(high)
    if at_low * at_high > 0:
        return low if abs(at_low) < abs(at_high) else high
    return float(brentq(excess, low, high, xtol=1e-3))


def _set(mechanisms: Mechanisms, name: str, value: float) -> Mechanisms:
    match name:
        case "prefill_original":
            return replace(mechanisms, prefill_imbalance={"fitted": 1.0, "original": value})
        case "decode_original":
            return replace(mechanisms, decode_imbalance={"fitted": 1.0, "original": value})
        case "compact_overhead":
            return replace(mechanisms, compact_overhead=value)
        case _:
            return replace(mechanisms, index_cache_saving=value)


def fit_pro(start: Calibration) -> Calibration:
    """Three parameters from the mixed service at C24: a prefill forward, a decode step, the prefill delay."""
    quiet = _with_acceptance(quiet_of(start), ordinary=_accepting(start, 5.70))
    fits = [_fit_mixed(quiet, passes) for passes in DELAYS]
    _, best = min(fits, key=lambda fit: fit[0])
    return replace(best, noise=start.noise)


def _fit_mixed(start: Calibration, passes: int) -> tuple[float, Calibration]:
    """The best forward and step under one delay, and how far they stay from the record."""
    start = replace(start, mechanisms=replace(start.mechanisms, delay_passes=passes))

    def errors(x: Vector) -> Numbers:
        whole = mean_figures(LOADS["mixed C24"], _with_mixed(start, x), SEEDS)["whole"]
        return [whole["tok_s"] / 860.6 - 1, whole["ttft_s"] / 5.24 - 1, whole["tpot_ms"] / 20.55 - 1]

    found = least_squares(errors, [2.2, 0.05], diff_step=[0.05] * 2, max_nfev=15)
    return float(found.cost), _with_mixed(start, found.x)


def _with_mixed(start: Calibration, x: Vector) -> Calibration:
    """x: a full forward (s), split between fixed cost, a rank's own work and expert work; a decode step (s)."""
    forward, step = float(x[0]), float(x[1])
    per_token = forward / MIXED_CHUNK * MIXED_DIES / MIXED_RANKS
    prefill = replace(
        start.prefill,
        fixed_s=forward * MIXED_SHARES[0],
        local_s_per_token=per_token * MIXED_SHARES[1],
        expert_s_per_token=per_token * MIXED_SHARES[2],
        context_s_per_token2=0.0,
    )
    decode = replace(start.decode, fixed_s=step, row_s=0.001, draft_s=0.002, context_s_per_token=0.0)
    return replace(start, prefill=prefill, decode=decode)
