"""Noise, effects and the sequential decision: gain, loss, no gain, or measure again.

All effects are relative: 0.05 means five percent more than the incumbent. The noise of one run is pooled over every
configuration that was measured more than once at the same load, because a spread of three lucky repeats is not the
noise level. The rule and what it was measured to do: docs/design/verdicts.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Degrees of freedom that the prior noise figure of the goal counts for, until repeats outweigh it.
PRIOR_DF = 2.0
# Share of true gains of the planned size that a confirmation of planned length finds.
POWER = 0.85
# Probability that the noise is larger than a plan reckons with.
CAUTION = 0.25
# One-sided probability with which a worthwhile gain has to be excluded before a card is given up. Screening, which
# must not lose what confirmation would find, asks for more than confirmation.
GIVE_UP_SCREENING = 0.995
GIVE_UP_CONFIRMATION = 0.90
# An interval never reaches beyond a factor of ten: further out, the quantile of so few runs means nothing.
WIDEST = math.log(10)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Relative standard deviation of one run, and how well it is known."""

    relative_sd: float
    df: float
    repeats: int  # runs that went into it


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many pairs of runs a confirmation is planned for, and the least gain worth going on for."""

    pairs: int
    worthwhile: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Relative difference of two means with a two-sided interval. For a metric to minimise, gains are positive too.

    `best_case` is the largest gain that the runs still leave possible, at the probability of giving up.
    """

    gain: float
    low: float
    high: float
    best_case: float
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
    NOT_EXCLUDED = "not_excluded"  # a screening that could not rule a gain out: it goes to confirmation
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


def plan_pairs(
    noise: Noise, *, confidence: float, detect: float, min_effect: float, pairs_min: int, pairs_max: int
) -> Plan:
    """The pairs that find a gain of `detect` with `POWER`, within the goal's bounds.

    They are planned with the noise that it may well be: a few quiet repeats must not make a plan so short that its
    early looks are taken for the last. Where the bounds allow fewer, the gain that they can find takes the place of
    `detect`: a card is not carried on for a gain that could not be shown. Normal approximation: the standard deviation
    of the difference of two means of n runs is sd·√(2/n).
    """
    reach = normal_quantile(_repeated(confidence)) + normal_quantile(POWER)
    wanted = max(detect, min_effect)
    pairs = math.ceil(2 * (reach * upper_sd(noise) / wanted) ** 2)
    return Plan(
        pairs=min(max(pairs, pairs_min), pairs_max),
        worthwhile=max(wanted, reach * noise.relative_sd * math.sqrt(2 / pairs_max)),
    )


def upper_sd(noise: Noise) -> float:
    """The relative standard deviation that is exceeded with probability `CAUTION`, given how well it is known."""
    from scipy.special import chdtri

    return noise.relative_sd * math.sqrt(noise.df / float(chdtri(noise.df, 1 - CAUTION)))


def effective_pairs(n_incumbent: int, n_challenger: int) -> float:
    """The number of equal pairs that would be as informative: the harmonic mean of the two counts."""
    return 2 * n_incumbent * n_challenger / (n_incumbent + n_challenger)


def estimate_effect(
    incumbent: Sequence[float],
    challenger: Sequence[float],
    noise: Noise,
    *,
    maximise: bool,
    confidence: float,
    information: float | None = None,
    give_up: float = GIVE_UP_CONFIRMATION,
) -> Effect:
    """Ratio of means; interval on its logarithm, so that an effect and its inverse mirror one another.

    `information` is the share of the planned measuring that is done; None: this is the only look, and the interval is
    Student's t. Of repeated looks the interval holds at all of them together: it is wider by 1/√information
    (O'Brien and Fleming), and its critical value is that of half the error, because a Brownian path passes a level
    with twice the probability of ending beyond it.
    Raises ValueError if a side is empty or a mean is not positive.
    """
    if not incumbent or not challenger:
        raise ValueError("an effect needs at least one run on each side")
    base, mean = math.fsum(incumbent) / len(incumbent), math.fsum(challenger) / len(challenger)
    if base <= 0 or mean <= 0:
        raise ValueError("an effect needs positive means")
    ratio = mean / base if maximise else base / mean
    spread = noise.relative_sd * math.sqrt(1 / len(incumbent) + 1 / len(challenger))
    once = (1 + confidence) / 2
    half = _critical(once if information is None else _repeated(confidence), information, noise.df) * spread
    reach = _critical(give_up, information, noise.df) * spread
    return Effect(
        gain=ratio - 1,
        low=ratio * math.exp(-min(half, WIDEST)) - 1,
        high=ratio * math.exp(min(half, WIDEST)) - 1,
        best_case=ratio * math.exp(min(reach, WIDEST)) - 1,
        confidence=confidence,
        n_incumbent=len(incumbent),
        n_challenger=len(challenger),
    )


def _repeated(confidence: float) -> float:
    """One-sided probability at the end of the plan: a quarter of the error is left beyond it on each side."""
    return 1 - (1 - confidence) / 4


def _critical(probability: float, information: float | None, df: float) -> float:
    """In standard errors: the normal value, widened while the plan is not done, carried over to Student's t."""
    from scipy.special import ndtr

    z = normal_quantile(probability) / math.sqrt(min(information or 1.0, 1.0))
    return -student_t(df, float(ndtr(-z)))


def judge(effect: Effect, *, min_effect: float, worthwhile: float) -> Verdict:
    """A gain lies wholly above zero and is worth having; a loss lies wholly below. Between them, measure again.

    A card is given up once a worthwhile gain is excluded. What an undecided effect means where no further run is
    allowed is the phase's to say.
    """
    if effect.low > 0 and effect.gain >= min_effect:
        return Verdict.GAIN
    if effect.high < 0:
        return Verdict.LOSS
    return Verdict.NO_GAIN if effect.best_case < worthwhile else Verdict.MEASURE_AGAIN


def student_t(df: float, probability: float) -> float:
    """Quantile of Student's t. scipy is imported here because it costs more than the rest of the core."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def normal_quantile(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))
