"""A pool that drifts: what is suspected, what is believed, and what the rest of the night is compared with."""

from __future__ import annotations

import random
from itertools import cycle

import pytest

from experiments.agenda import Measure, Stop
from experiments.ledger import StopReason
from experiments.measurement import WindowKind
from experiments.verdict import clean_samples, noise_of
from tests.experiments.scripted import START, Script, the_goal
from tests.factories import a_load

WOBBLE = (1.004, 0.996, 1.002, 0.998, 1.001, 0.999)


def known_pool(**goal: object) -> Script:
    """A baseline and one refuted card: enough runs to know that the noise is some 0.4 %."""
    script, wobble = Script(goal=the_goal(**goal)), cycle(WOBBLE)
    while isinstance(script.next(), Measure):
        script.run(START * next(wobble))
    script.refute().refute().refute().refute().refute()
    for _ in range(2):
        script.run(START * next(wobble)).refute(5)
    return script


def test_steady_pool_shows_nothing() -> None:
    """Sentinels within the noise raise no suspicion."""
    script = known_pool()
    script.run(START * 1.003)
    assert script.study.drift.suspected is None
    assert script.study.drift.shifts == []


def test_run_beyond_the_noise_is_measured_again_before_anything_else() -> None:
    """A sentinel that is 6 % off is doubted, and only the incumbent may run."""
    script = known_pool().run(START * 0.94)
    suspected = script.study.drift.suspected
    assert suspected is not None
    assert suspected.change == pytest.approx(-0.06, abs=0.005)
    step = script.measure()
    assert script.told == "sentinel incumbent N320"
    assert step.why.startswith("incumbent again at N=320: its last run was -5.92% off")


def test_outlier_is_forgotten_as_noise() -> None:
    """If the repeat is where it always was, the pool has not moved, and the odd run counts as noise."""
    script = known_pool().run(START * 0.94)
    before = noise_of(script.study, "output_tok_s_per_card", WindowKind.WHOLE).repeats
    script.run(START)
    assert script.study.drift.suspected is None
    assert script.study.drift.shifts == []
    assert noise_of(script.study, "output_tok_s_per_card", WindowKind.WHOLE).repeats == before + 1
    assert script.told == "propose"


def test_second_run_on_the_other_side_is_no_shift() -> None:
    """6 % down and then 6 % up is an unsteady pool, not one that moved."""
    script = known_pool().run(START * 0.94, START * 1.06)
    assert script.study.drift.shifts == []


def test_shift_begins_with_the_first_run_that_shows_it() -> None:
    """Two runs beyond the noise on one side: what came before is no longer compared with."""
    script = known_pool().run(START * 0.94, START * 0.94)
    [shift] = script.study.drift.shifts
    assert shift.change == pytest.approx(-0.06, abs=0.005)
    assert len(shift.trial_ids) == 2
    samples = clean_samples(script.study, a_load(320))
    assert [s.trial_id for s in samples] == list(shift.trial_ids)
    assert clean_samples(script.study, a_load(640)) == []


def test_baseline_is_measured_anew_after_a_shift() -> None:
    """The formal load and the missing short runs come before the next card."""
    script = known_pool().run(START * 0.94, START * 0.94)
    told = []
    while isinstance(script.next(), Measure):
        told.append(script.told)
        script.run(START * 0.94)
    assert told == ["baseline incumbent N640", "baseline incumbent N320"]
    assert script.told == "propose"


def test_challenger_is_compared_with_the_pool_as_it_is_now() -> None:
    """After a fall of 6 %, a challenger that does what the incumbent did before is a gain of 6 %."""
    script = known_pool().run(START * 0.94, START * 0.94)
    while isinstance(script.next(), Measure):
        script.run(START * 0.94)
    script.card()
    while script.study.open_card is not None:
        step = script.next()
        if isinstance(step, Measure):
            script.run(START * (0.94 if step.card is None else 1.0))
        else:
            script.close()
    [kept] = script.study.kept
    comparison = script.study.closed[kept.card_digest].classification.comparison
    assert comparison is not None
    assert comparison.gain == pytest.approx(1 / 0.94 - 1, abs=1e-6)


def test_suspicion_in_a_confirmation_freezes_the_keep() -> None:
    """The run that would complete a keep is itself doubtful: the incumbent runs again first, at that load."""
    script = known_pool().card().screened(START * 1.1)
    script.run(START * 1.1, START, START * 1.1, START * 0.9)
    assert script.told == "sentinel incumbent N640"
    script.run(START)
    assert script.told != "sentinel incumbent N640"


def test_runs_of_an_open_card_from_before_a_shift_are_left_out() -> None:
    """A confirmation that a shift interrupts is begun anew on both sides."""
    script = known_pool().card().screened(START * 1.1)
    script.run(START * 1.1, START, START * 1.1, START * 0.9, START * 0.9)
    assert len(script.study.drift.shifts) == 1
    after = script.study.drift.since
    while script.study.open_card is not None:
        step = script.next()
        if isinstance(step, Measure):
            script.run(START * 0.9 * (1.0 if step.card is None else 1.1))
        else:
            script.close()
    closed = list(script.study.closed.values())[-1]
    comparison = closed.classification.comparison
    assert comparison is not None
    used = (*comparison.incumbent_trials, *comparison.challenger_trials)
    assert all(script.study.trials[t].position >= after for t in used)
    assert len(comparison.challenger_trials) >= 2


def test_pool_that_keeps_moving_stops_the_study() -> None:
    """Two shifts are followed; the third one says that nothing here can be compared."""
    script, level = known_pool(budget={"trials": 400}), START
    while not isinstance(script.next(), Stop):
        while isinstance(script.next(), Measure):
            script.run(level)
        if isinstance(script.next(), Stop):
            break
        level *= 0.9
        script.refute(5)
    step = script.next()
    assert isinstance(step, Stop)
    assert step.reason is StopReason.DRIFT
    assert step.detail.startswith("the incumbent does not hold still: -")
    assert len(script.study.drift.shifts) == 3


def test_doubtful_incumbent_that_cannot_be_measured_ends_the_study() -> None:
    """Two faults in a row while in doubt: nothing may be kept, so the study stops."""
    script = known_pool().run(START * 0.9).fail(times=2)
    assert script.told == "stop: baseline_failed"


def test_shift_is_not_noise() -> None:
    """A move of 10 % leaves the noise of one run where it was."""
    script = known_pool()
    before = noise_of(script.study, "output_tok_s_per_card", WindowKind.WHOLE).relative_sd
    script.run(START * 0.9, START * 0.9, START * 0.9)
    after = noise_of(script.study, "output_tok_s_per_card", WindowKind.WHOLE).relative_sd
    assert after <= before * 1.05


def test_too_few_repeats_raise_no_suspicion() -> None:
    """The goal's assumption about the noise is no proof: a second short run far off is taken for noise."""
    script = Script().run(START, START, START * 0.9)
    assert script.study.drift.suspected is None


@pytest.mark.parametrize("noise", [0.008, 0.03])
def test_false_shifts_are_rare(noise: float) -> None:
    """Of 200 steady studies with 30 sentinels each, hardly any sees a shift."""
    false = 0
    for seed in range(200):
        chance = random.Random(seed)
        script = _Sentinels(noise, chance)
        false += bool(script.shifts(30))
    assert false <= 4


@pytest.mark.parametrize(("noise", "least"), [(0.008, 95), (0.015, 75)])
def test_a_fall_of_eight_percent_is_found(noise: float, least: int) -> None:
    """Within four sentinels, in nearly every study that has run for a while; at 1.5 % noise in most."""
    found = sum(bool(_Sentinels(noise, random.Random(seed)).shifts(12, fall_at=8)) for seed in range(100))
    assert found >= least


class _Sentinels:
    """The drift watch alone, fed with baseline and sentinel runs."""

    def __init__(self, noise: float, chance: random.Random) -> None:
        self._noise, self._random = noise, chance

    def shifts(self, runs: int, fall_at: int | None = None) -> int:
        from dataclasses import replace

        from experiments.drift import DriftWatch
        from tests.experiments.test_comparison import a_sample

        template = a_sample(load=a_load(320))
        watch = DriftWatch(goal=the_goal())
        for position in range(1, runs + 1):
            level = 0.92 if fall_at is not None and position > fall_at else 1.0
            value = START * level * (1 + self._noise * self._random.gauss(0, 1))
            windows = tuple(w.model_copy(update={"output_tok_s_per_card": value}) for w in template.measurement.windows)
            measured = template.measurement.model_copy(update={"windows": windows})
            watch.observe(replace(template, measurement=measured, position=position, trial_id=f"t{position}"))
        return len(watch.shifts)
