"""Noise, effects and the sequential decision: gain, loss, no gain, or measure again.

All effects are relative: 0.05 means five percent more than the incumbent. The noise of one run is pooled over every
configuration that was measured more than once at the same load, because a spread of three lucky repeats is not the
noise level; a goal may set a floor below which the pooled figure never goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Degrees of freedom that the prior noise figure of the goal counts for, until repeats outweigh it.
PRIOR_DF = 2.0


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Relative standard deviation of one run, and how well it is known."""

    relative_sd: float
    df: float
    repeats: int  # runs that went into it


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Relative difference of two means with a two-sided interval. For a metric to minimise, gains are positive too."""

    gain: float
    low: float
    high: float
    confidence: float
    n_incumbent: int
    n_challenger: int

    @property
    def floor(self) -> float:
        """Half the interval: the noise floor of this comparison."""
        return (self.high - self.low) / 2


class Verdict(StrEnum):
    GAIN = "gain"
    LOSS = "loss"
    NO_GAIN = "no_gain"
    MEASURE_AGAIN = "measure_again"


def pool_noise(groups: Iterable[Sequence[float]], prior_sd: float) -> Noise:
    """Pooled relative standard deviation of repeats. Each group holds runs of one configuration at one load.

    `prior_sd` (the goal's `noise.assumed`) enters with `PRIOR_DF` degrees of freedom, so that the figure is neither
    zero after one lucky pair nor stuck at the assumption after many repeats.
    """
    squares, df, repeats = prior_sd**2 * PRIOR_DF, PRIOR_DF, 0
    for group in groups:
        if len(group) < 2:
            continue
        mean = math.fsum(group) / len(group)
        squares += math.fsum((value / mean - 1) ** 2 for value in group)
        df += len(group) - 1
        repeats += len(group)
    return Noise(relative_sd=math.sqrt(squares / df), df=df, repeats=repeats)


def estimate_effect(
    incumbent: Sequence[float],
    challenger: Sequence[float],
    noise: Noise,
    *,
    maximise: bool,
    confidence: float,
) -> Effect:
    """Relative difference of means; interval from the pooled noise with Student's t.

    Raises ValueError if a side is empty or the incumbent's mean is not positive.
    """
    if not incumbent or not challenger:
        raise ValueError("an effect needs at least one run on each side")
    base, mean = math.fsum(incumbent) / len(incumbent), math.fsum(challenger) / len(challenger)
    if base <= 0 or mean <= 0:
        raise ValueError("an effect needs positive means")
    gain = mean / base - 1 if maximise else base / mean - 1
    spread = noise.relative_sd * math.sqrt(1 / len(incumbent) + 1 / len(challenger))
    half = student_t(noise.df, (1 + confidence) / 2) * spread * (1 + gain)
    return Effect(
        gain=gain,
        low=gain - half,
        high=gain + half,
        confidence=confidence,
        n_incumbent=len(incumbent),
        n_challenger=len(challenger),
    )


def judge(effect: Effect, *, min_effect: float, may_measure_again: bool) -> Verdict:
    """A gain lies wholly above zero and is worth having; a loss lies wholly below. Between them, measure again.

    Where no further run is allowed, an undecided effect is no gain: nothing is kept inside the noise.
    """
    if effect.low > 0 and effect.gain >= min_effect:
        return Verdict.GAIN
    if effect.high < 0:
        return Verdict.LOSS
    if effect.high < min_effect or not may_measure_again:
        return Verdict.NO_GAIN
    return Verdict.MEASURE_AGAIN


def student_t(df: float, probability: float) -> float:
    """Quantile of Student's t. scipy is imported here because it costs more than the rest of the core."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))
