"""The options a user may choose from, and the choice from the records alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.agenda import Measure
from experiments.measurement import WindowKind
from experiments.serving_config import ServingConfig
from experiments.tradeoff import Option, _mark_dominated, choice_metrics, choose, non_dominated, option_set
from tests.experiments.scripted import START, Script, the_goal
from tests.factories import Performance, a_config, a_draft, a_measurement

C128 = {"per_card": 240.3715, "ttft_s": 18.14, "tpot_ms": 11.5}
C90 = {"per_card": 228.0921, "ttft_s": 12.68, "tpot_ms": 10.3}


def run_all(script: Script, incumbent: dict[str, float], challenger: dict[str, float]) -> Script:
    """Every run of the open card, with these figures for either side, to its last word."""
    while script.study.open_card is not None:
        step = script.next()
        if isinstance(step, Measure):
            made = Performance(**(incumbent if step.card is None else challenger))
            script.finish(a_measurement(made, requests=step.load.requests))
        else:
            script.close()
    return script


def c128_and_c90() -> Script:
    """A C128 baseline and a card that lowers C to 90: −5.11 % throughput, a third less TTFT (field record)."""
    goal = the_goal(objective={"window": WindowKind.WHOLE}, confirmation={"detect": 0.1})
    script = Script(goal=goal)
    while isinstance(script.next(), Measure):
        script.finish(a_measurement(Performance(**C128), requests=script.measure().load.requests))
    script.card(a_draft("client.client.concurrency", 128, 90))
    script.run(START * 1.4).close()
    return run_all(script, C128, C90)


def test_c128_and_c90_both_stay() -> None:
    """Neither is better in everything, so both are options, although only one is the incumbent."""
    script = c128_and_c90()
    assert not script.study.kept
    front = non_dominated(option_set(script.study).options)
    assert [o.name for o in front] == ["start", "c01-concurrency-90"]


@pytest.mark.parametrize(
    ("prefer", "name"),
    [
        ("output_tok_s_per_card", "start"),
        ("ttft_mean", "c01-concurrency-90"),
        ("tpot_mean", "c01-concurrency-90"),
        ("e2e_mean", "c01-concurrency-90"),
    ],
)
def test_preference_is_answered_from_the_records(prefer: str, name: str) -> None:
    """Another preference, another option, and not one more run."""
    script = c128_and_c90()
    before = len(script.entries)
    choice = choose(script.study, option_set(script.study), prefer)
    assert choice is not None
    assert choice.option.name == name
    assert len(script.entries) == before


def test_option_says_what_to_change() -> None:
    """The configuration whole, and its difference from the start."""
    study = c128_and_c90().study
    choice = choose(study, option_set(study), "ttft_mean")
    assert choice is not None
    assert [str(c) for c in choice.option.changes] == ["client concurrency 128 → 90"]
    assert choice.option.config.settings["client.client.concurrency"] == 90


def test_figure_that_the_goal_does_not_name() -> None:
    """Only what the goal reports or constrains was asked of every run."""
    study = c128_and_c90().study
    with pytest.raises(ValueError, match="'ttft_p99' is not among the figures of this study: output_tok_s_per_card, "):
        choose(study, option_set(study), "ttft_p99")


def test_metrics_of_a_choice() -> None:
    """Objective, constraints, report; counts without a window are left out."""
    assert choice_metrics(Script().study) == (
        "output_tok_s_per_card",
        "tpot_mean",
        "ttft_mean",
        "ttft_p90",
        "e2e_mean",
    )


def test_no_formal_run_no_choice() -> None:
    """Before anything was measured at the formal load there is nothing to choose."""
    script = Script()
    assert option_set(script.study).options == ()
    assert choose(script.study, option_set(script.study), "ttft_mean") is None


def test_configuration_that_breaks_a_constraint_is_listed_and_never_chosen() -> None:
    """The fastest is no option when its TPOT is above the limit."""
    script = Script().baseline().card().screened()
    script.run(START * 1.4, tpot_ms=25.0).run(START).run(START * 1.4, tpot_ms=25.0).run(START).close()
    fast = next(o for o in option_set(script.study).options if o.name.startswith("c01"))
    assert fast.violated == ("tpot_mean 25.00, the goal asks tpot_mean < 20 ms",)
    choice = choose(script.study, option_set(script.study), "output_tok_s_per_card")
    assert choice is not None
    assert choice.option.name == "start"


def test_dominated_option_is_marked() -> None:
    """Slower and not better in anything else."""
    script = Script().baseline().card().screened()
    script.run(START * 0.8, START, START * 0.8, START).close()
    marked = {o.name: o.is_dominated for o in option_set(script.study).options}
    assert marked == {"start": False, "c01-prefill-max-requests-2": True}


def test_screening_runs_are_no_options() -> None:
    """A short run says nothing about the formal load."""
    script = Script().baseline().refute(3)
    assert [o.name for o in option_set(script.study).options] == ["start"]


def test_screening_load_has_options_of_its_own() -> None:
    """At N320 a card that was closed after screening is an option as well, and no formal figure is beside it."""
    script = Script().baseline().refute(1)
    options = option_set(script.study, 320).options
    assert [o.name for o in options] == ["start", "c01-max-running-requests-200"]
    assert all(script.study.trials[t].started.load.requests == 320 for o in options for t in o.trial_ids)


def test_equal_within_the_noise_are_told_together() -> None:
    """Of two with the same TTFT, the faster one is named and the other is mentioned."""
    front = (_option("a", 200.0, 10.0), _option("b", 201.0, 10.001))
    assert [o.is_dominated for o in _mark_dominated(front)] == [False, False]


def _option(name: str, rate: float, ttft: float, tolerance: float = 0.02) -> Option:
    return Option(
        name=name,
        config=a_config(),
        changes=(),
        trial_ids=(name,),
        values={"output_tok_s_per_card": rate, "ttft_mean": ttft},
        tolerance=tolerance,
        violated=(),
        is_kept=False,
    )


points = st.lists(
    st.tuples(st.floats(min_value=100, max_value=300), st.floats(min_value=1, max_value=60)), min_size=1, max_size=12
)


@settings(deadline=None)
@given(figures=points)
def test_something_always_stays(figures: list[tuple[float, float]]) -> None:
    """Of any set at least one is not dominated, and the best in each figure is never beaten beyond the noise."""
    options = _mark_dominated([_option(str(n), rate, ttft) for n, (rate, ttft) in enumerate(figures)])
    front = non_dominated(options)
    assert front
    for option in options:
        if option.is_dominated:
            assert any(
                f.values["output_tok_s_per_card"] >= option.values["output_tok_s_per_card"]  # type: ignore[operator]
                and f.values["ttft_mean"] <= option.values["ttft_mean"]  # type: ignore[operator]
                for f in options
                if f is not option
            )


@settings(deadline=None, max_examples=300)
@given(
    figures=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20),
    tolerance=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_front_is_what_comparing_every_pair_says(figures: list[tuple[int, int]], tolerance: float) -> None:
    """Dominated exactly if some other is no worse in all figures and better beyond the noise in one."""
    options = [_option(str(n), float(rate), float(ttft), tolerance) for n, (rate, ttft) in enumerate(figures)]
    noise = math.hypot(tolerance, tolerance)
    expected = [
        any(a >= rate and b <= ttft and (a - rate > noise * rate or ttft - b > noise * ttft) for a, b in figures)
        for rate, ttft in figures
    ]
    assert [option.is_dominated for option in _mark_dominated(options)] == expected


@settings(deadline=None)
@given(figures=points)
def test_front_does_not_depend_on_the_order(figures: list[tuple[float, float]]) -> None:
    """The same options in another order give the same front."""
    options = [_option(str(n), rate, ttft) for n, (rate, ttft) in enumerate(figures)]
    forward = {o.name for o in non_dominated(_mark_dominated(options))}
    backward = {o.name for o in non_dominated(_mark_dominated(options[::-1]))}
    assert forward == backward


def test_option_names_its_runs() -> None:
    """Every figure leads to its trials."""
    script = Script().keep()
    kept = next(o for o in option_set(script.study).options if o.is_kept)
    assert isinstance(kept.config, ServingConfig)
    assert set(kept.trial_ids) <= set(script.study.trials)
    assert len(kept.trial_ids) == 2
