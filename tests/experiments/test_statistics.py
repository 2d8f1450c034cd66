"""Noise, intervals, plans and verdicts: the arithmetic by hand, and what must hold for any figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.statistics import (
    Effect,
    Noise,
    Verdict,
    effective_pairs,
    estimate_effect,
    judge,
    plan_pairs,
    pool_noise,
    upper_sd,
)

KNOWN = Noise(relative_sd=0.01, df=1e9, repeats=100)
rates = st.lists(st.floats(min_value=50, max_value=500), min_size=1, max_size=6)
noises = st.builds(
    Noise,
    relative_sd=st.floats(min_value=0.001, max_value=0.1),
    df=st.floats(min_value=2, max_value=60),
    repeats=st.just(5),
)


# --- noise ---------------------------------------------------------------------------------------------------


def test_noise_without_repeats_is_the_assumption() -> None:
    """A single run per configuration says nothing about the spread."""
    assert pool_noise([[179.0], [236.8]], 0.01) == Noise(relative_sd=pytest.approx(0.01), df=2.0, repeats=0)


def test_noise_pools_groups_by_their_degrees_of_freedom() -> None:
    """Two groups and the assumption: squares and degrees of freedom add up."""
    found = pool_noise([[99.0, 101.0], [196.0, 200.0, 204.0]], 0.01)
    squares = 2 * 0.01**2 + (0.01**2 * 2) + (0.02**2 * 2)
    assert found.df == 2 + 1 + 2
    assert found.repeats == 5
    assert found.relative_sd == pytest.approx(math.sqrt(squares / 5))


def test_one_lucky_pair_does_not_make_the_noise_zero() -> None:
    """Two equal runs leave most of the assumption standing."""
    assert pool_noise([[200.0, 200.0]], 0.01).relative_sd == pytest.approx(0.01 * math.sqrt(2 / 3))


def test_many_repeats_outweigh_a_wrong_assumption() -> None:
    """Forty noisy runs are believed more than an assumption of one percent."""
    runs = [200 * (1 + 0.03 * (-1) ** n) for n in range(40)]
    assert pool_noise([runs], 0.01).relative_sd == pytest.approx(0.03, rel=0.05)


@settings(deadline=None)
@given(groups=st.lists(rates, max_size=5), factor=st.floats(min_value=0.01, max_value=100))
def test_noise_is_relative(groups: list[list[float]], factor: float) -> None:
    """It does not depend on the unit of the figures, nor on the order of the groups."""
    plain = pool_noise(groups, 0.01)
    scaled = pool_noise([[v * factor for v in group] for group in reversed(groups)], 0.01)
    assert scaled.relative_sd == pytest.approx(plain.relative_sd, rel=1e-9, abs=1e-12)
    assert scaled.df == plain.df


# --- effects -------------------------------------------------------------------------------------------------


def test_interval_of_a_single_look_is_students() -> None:
    """By hand: ln ratio ± t(df) · sd · √(1/n + 1/m)."""
    noise = Noise(relative_sd=0.02, df=6, repeats=4)
    found = estimate_effect([100.0, 102.0], [110.0], noise, maximise=True, confidence=0.95)
    half = stats.t.ppf(0.975, 6) * 0.02 * math.sqrt(1 / 2 + 1)
    assert found.gain == pytest.approx(110 / 101 - 1)
    assert found.low == pytest.approx(110 / 101 * math.exp(-half) - 1)
    assert found.high == pytest.approx(110 / 101 * math.exp(half) - 1)
    assert (found.n_incumbent, found.n_challenger) == (2, 1)


def test_interval_of_the_last_of_many_looks_has_half_the_error() -> None:
    """At the end of the plan: z of 1 − α/4 on each side, as the reflection principle asks."""
    found = estimate_effect([100.0], [100.0], KNOWN, maximise=True, confidence=0.95, information=1.0)
    assert math.log1p(found.high) == pytest.approx(stats.norm.ppf(1 - 0.05 / 4) * 0.01 * math.sqrt(2), rel=1e-4)


def test_early_looks_are_wider() -> None:
    """With a quarter of the plan done the interval is twice as wide in standard errors."""
    quarter = estimate_effect([100.0], [100.0], KNOWN, maximise=True, confidence=0.95, information=0.25)
    full = estimate_effect([100.0], [100.0], KNOWN, maximise=True, confidence=0.95, information=1.0)
    assert math.log1p(quarter.high) == pytest.approx(2 * math.log1p(full.high), rel=1e-3)


def test_looks_together_keep_the_error() -> None:
    """Of 4,000 walks without any effect, at most 2.5 % ever leave the interval on the upper side."""
    import numpy as np

    looks = 28
    steps = np.random.default_rng(7).standard_normal((4000, looks)).cumsum(axis=1)
    n = np.arange(1, looks + 1)
    z = steps / np.sqrt(n)
    limit = stats.norm.ppf(1 - 0.05 / 4) * np.sqrt(looks / n)
    assert (z > limit).any(axis=1).mean() <= 0.025
    assert (z > limit).any(axis=1).mean() > 0.01  # and the error is used, not given away


def test_interval_is_never_wider_than_tenfold() -> None:
    """Two runs with hardly a degree of freedom say "unknown", not an absurd number."""
    found = estimate_effect(
        [100.0], [120.0], Noise(relative_sd=0.5, df=2, repeats=2), maximise=True, confidence=0.99, information=0.05
    )
    assert found.high == pytest.approx(11.0)
    assert found.low == pytest.approx(-0.88)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([], [1.0], "at least one run"),
        ([1.0], [], "at least one run"),
        ([0.0], [1.0], "positive"),
        ([1.0], [-1.0], "positive"),
    ],
)
def test_effect_needs_two_positive_sides(before: list[float], after: list[float], message: str) -> None:
    """Nothing is made of an empty side or of a zero."""
    with pytest.raises(ValueError, match=message):
        estimate_effect(before, after, KNOWN, maximise=True, confidence=0.95)


@settings(deadline=None)
@given(before=rates, after=rates, noise=noises, information=st.none() | st.floats(min_value=0.02, max_value=1))
def test_interval_holds_its_effect(
    before: list[float], after: list[float], noise: Noise, information: float | None
) -> None:
    """low ≤ gain ≤ best case ≤ high: giving up is easier than keeping."""
    found = estimate_effect(before, after, noise, maximise=True, confidence=0.95, information=information)
    assert -1 < found.low <= found.gain <= found.best_case <= found.high


@settings(deadline=None)
@given(before=rates, after=rates, noise=noises)
def test_more_confidence_is_wider(before: list[float], after: list[float], noise: Noise) -> None:
    """99 % holds 90 %."""
    wide = estimate_effect(before, after, noise, maximise=True, confidence=0.99)
    narrow = estimate_effect(before, after, noise, maximise=True, confidence=0.90)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


# --- plans ---------------------------------------------------------------------------------------------------


def _plan(noise: Noise, **changes: float) -> tuple[int, float]:
    rule: dict[str, float] = {"confidence": 0.95, "detect": 0.02, "min_effect": 0.01, "pairs_min": 2, "pairs_max": 28}
    plan = plan_pairs(noise, **{**rule, **changes})  # type: ignore[arg-type]
    return plan.pairs, plan.worthwhile


def test_quiet_pool_plans_few_pairs() -> None:
    """At 0.4 % two pairs find 2 %; at 1 % it is six; at 3 % all that the goal allows."""
    assert _plan(Noise(relative_sd=0.004, df=1e6, repeats=9)) == (2, 0.02)
    assert _plan(KNOWN) == (6, 0.02)
    assert _plan(Noise(relative_sd=0.03, df=1e6, repeats=9))[0] == 28


def test_noise_known_from_few_repeats_plans_more_pairs() -> None:
    """The same 1 % from four degrees of freedom: twelve pairs instead of six."""
    assert _plan(Noise(relative_sd=0.01, df=4, repeats=3))[0] == 12


def test_worthwhile_gain_grows_where_it_could_not_be_shown() -> None:
    """At 3 % noise 28 pairs find 2.6 %: a card is not carried on for less."""
    assert _plan(Noise(relative_sd=0.03, df=1e6, repeats=9))[1] == pytest.approx(0.0263, abs=1e-4)


def test_worthwhile_gain_is_never_below_the_least_effect() -> None:
    """`min_effect` above `detect` takes its place."""
    assert _plan(Noise(relative_sd=0.004, df=1e6, repeats=9), min_effect=0.05) == (2, 0.05)


@settings(deadline=None)
@given(noise=noises, detect=st.floats(min_value=0.005, max_value=0.2))
def test_plan_stays_within_the_goal(noise: Noise, detect: float) -> None:
    """Never fewer than the least, never more than the most, and never more for a larger effect."""
    pairs, worthwhile = _plan(noise, detect=detect)
    assert 2 <= pairs <= 28
    assert worthwhile >= max(detect, 0.01)
    assert _plan(noise, detect=detect * 2)[0] <= pairs


def test_planned_pairs_have_the_promised_power() -> None:
    """Of 4,000 confirmations of a true gain of the planned size about 85 % find it."""
    import numpy as np

    sd, detect = 0.01, 0.02
    pairs, _ = _plan(Noise(relative_sd=sd, df=1e9, repeats=99), detect=detect)
    chance = np.random.default_rng(11)
    n = np.arange(1, pairs + 1)
    before = chance.normal(0, sd, (4000, pairs)).cumsum(axis=1) / n
    after = chance.normal(math.log1p(detect), sd, (4000, pairs)).cumsum(axis=1) / n
    limit = stats.norm.ppf(1 - 0.05 / 4) * np.sqrt(pairs / n) * sd * np.sqrt(2 / n)
    assert ((after - before) > limit)[:, 1:].any(axis=1).mean() == pytest.approx(0.87, abs=0.04)


def test_noise_that_is_hardly_known_is_planned_with_caution() -> None:
    """With two degrees of freedom the noise may well be twice as large; with many it is what it is."""
    assert upper_sd(Noise(relative_sd=0.01, df=2, repeats=0)) == pytest.approx(
        0.01 * math.sqrt(2 / stats.chi2.ppf(0.25, 2))
    )
    assert upper_sd(KNOWN) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(("before", "after", "pairs"), [(2, 2, 2.0), (1, 3, 1.5), (100, 2, 3.92)])
def test_effective_pairs(before: int, after: int, pairs: float) -> None:
    """Many runs of one side are worth at most twice the other side."""
    assert effective_pairs(before, after) == pytest.approx(pairs, abs=0.01)


# --- verdicts ------------------------------------------------------------------------------------------------


def _effect(gain: float, low: float, high: float, best_case: float | None = None) -> Effect:
    best = high if best_case is None else best_case
    return Effect(gain=gain, low=low, high=high, best_case=best, confidence=0.95, n_incumbent=2, n_challenger=2)


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (_effect(0.05, 0.02, 0.08), Verdict.GAIN),
        (_effect(0.05, -0.001, 0.11), Verdict.MEASURE_AGAIN),
        (_effect(0.009, 0.004, 0.014), Verdict.NO_GAIN),  # real, and not worth a change
        (_effect(0.009, 0.004, 0.034), Verdict.MEASURE_AGAIN),
        (_effect(-0.05, -0.08, -0.02), Verdict.LOSS),
        (_effect(-0.01, -0.03, 0.01), Verdict.NO_GAIN),
        (_effect(0.0, -0.04, 0.04, 0.015), Verdict.NO_GAIN),
        (_effect(0.0, -0.04, 0.04, 0.025), Verdict.MEASURE_AGAIN),
    ],
)
def test_verdict(effect: Effect, expected: Verdict) -> None:
    """A keep needs the whole interval above zero and a gain worth having; giving up, a worthwhile gain excluded."""
    assert judge(effect, min_effect=0.01, worthwhile=0.02) is expected


@settings(deadline=None)
@given(before=rates, after=rates, noise=noises)
def test_no_gain_inside_the_noise(before: list[float], after: list[float], noise: Noise) -> None:
    """Whatever the figures: a gain is larger than half its interval, in logarithms, and a loss likewise."""
    found = estimate_effect(before, after, noise, maximise=True, confidence=0.95)
    assume(found.low > -0.89)
    half = (math.log1p(found.high) - math.log1p(found.low)) / 2
    verdict = judge(found, min_effect=0.01, worthwhile=0.02)
    if verdict is Verdict.GAIN:
        assert math.log1p(found.gain) > half * (1 - 1e-9)
    if verdict is Verdict.LOSS:
        assert -math.log1p(found.gain) > half * (1 - 1e-9)
