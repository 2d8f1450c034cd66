"""How a card is judged: what it takes to keep one, and what never keeps, refutes or hides anything."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.agenda import Close, Measure, Stop
from experiments.goal import Quality
from experiments.ledger import CardClosed, ConfigurationKept, TrialsClassified
from experiments.measurement import WindowKind
from experiments.statistics import Noise
from experiments.trial import FAULT_REASONS, Reason, Route, Sent, Stage, Tier
from experiments.verdict import Decided, clean_samples, noise_of, violations
from tests.experiments.scripted import OUT_OF_MEMORY, START, Script, the_goal
from tests.factories import Performance, a_draft, a_fault, a_load, a_measurement

FAULTS = (
    a_fault(Stage.LAUNCH, Reason.TRANSPORT),
    a_fault(Stage.PREPARE, Reason.CONTRACT_MISMATCH),
    a_fault(Stage.MEASURE, Reason.CLIENT),
    a_fault(Stage.ANALYSE, Reason.POST_PROCESSING, Sent.FINISHED),
    a_fault(Stage.MEASURE, Reason.UNKNOWN_END, Sent.UNKNOWN),
    a_fault(Stage.ANALYSE, Reason.EVIDENCE_INCOMPLETE, Sent.FINISHED),
)


def decided(script: Script) -> Decided:
    step = script.next()
    assert isinstance(step, Close), step
    return step.decided


def to_the_end(script: Script, incumbent: float, challenger: float) -> Script:
    """Every further run of the open card with these figures, then its last word."""
    while script.study.open_card is not None:
        step = script.next()
        if isinstance(step, Measure):
            script.run(incumbent if step.card is None else challenger)
        else:
            script.close()
    return script


# --- what keeps ----------------------------------------------------------------------------------------------


def test_no_keep_on_a_single_sample() -> None:
    """Whatever a first run shows, both arms run at least twice at the formal load before anything is kept."""
    script = Script().baseline().card().screened(START * 1.7).run(START * 1.7)
    while isinstance(script.next(), Measure):
        script.run(START if script.measure().card is None else START * 1.7)
    comparison = decided(script).classification.comparison
    assert comparison is not None
    assert len(comparison.challenger_trials) >= 2
    assert len(comparison.incumbent_trials) >= 2


def test_no_keep_inside_the_noise() -> None:
    """A mean of +3 % from runs that scatter by 8 % is no significant gain."""
    script, wobble = Script(goal=the_goal(confirmation={"pairs_max": 6})), cycle((1.08, 0.92, 0.97, 1.03))
    while isinstance(script.next(), Measure):
        script.run(START * next(wobble))
    script.card()
    while script.study.open_card is not None:
        step = script.next()
        if isinstance(step, Measure):
            script.run(START * next(wobble) * (1.03 if step.card else 1))
        else:
            script.close()
    closed = script.study.closed[next(iter(script.study.cards))]
    assert closed.kept is False
    assert closed.classification.reason is Reason.NO_SIGNIFICANT_GAIN
    assert not script.study.kept


def test_undecided_at_the_end_of_the_plan_is_no_gain() -> None:
    """Four planned pairs are run and +2.9 % is still inside the noise: closed, and the sentence says why."""
    script, wobble = Script(goal=the_goal(confirmation={"pairs_max": 4})), cycle((1.03, 0.97, 0.99, 1.01))
    while isinstance(script.next(), Measure):
        script.run(START * next(wobble))
    script.card()
    while script.study.open_card is not None:
        step = script.next()
        if isinstance(step, Measure):
            script.run(START * next(wobble) * (1.06 if step.card else 1))
        else:
            script.close()
    [closed] = script.study.closed.values()
    assert (closed.kept, closed.classification.reason) == (False, Reason.NO_SIGNIFICANT_GAIN)
    assert closed.classification.explanation.endswith("not decided by the 4 pairs that were planned")


def test_gain_below_the_least_effect_is_not_kept() -> None:
    """+0.5 % that is certain is still not worth a change when the goal asks for 1 %."""
    script = to_the_end(Script().baseline().card(), START, START * 1.005)
    assert [c.classification.reason for c in script.study.closed.values()] == [Reason.NO_SIGNIFICANT_GAIN]


def test_kept_gain_has_its_interval_above_zero() -> None:
    """A keep stands on a stored comparison: interval above zero, gain above the least effect, all runs named."""
    script = to_the_end(Script().baseline().card(), START, START * 1.05)
    closed = next(iter(script.study.closed.values()))
    comparison = closed.classification.comparison
    assert closed.kept
    assert comparison is not None
    assert comparison.low > 0
    assert comparison.gain == pytest.approx(0.05)
    assert comparison.window is WindowKind.NATIVE
    assert comparison.planned_pairs is not None
    named = {*comparison.incumbent_trials, *comparison.challenger_trials}
    assert {t for t, s in script.study.trials.items() if s.started.load.requests == 640} == named


def test_screening_keeps_nothing() -> None:
    """The promising entry of a screening closes no card."""
    step = Script().baseline().card().run(START * 2).next()
    assert isinstance(step, Close)
    script = Script().baseline().card().screened(START * 2)
    assert isinstance(script.entries[-1], TrialsClassified)
    assert script.study.open_card is not None
    assert not script.study.kept


def test_runs_that_selected_a_configuration_are_not_used_again() -> None:
    """Neither screening nor confirmation of the kept card stands for it when it is the incumbent."""
    script = Script().keep()
    for requests in (320, 640):
        assert clean_samples(script.study, a_load(requests)) == []
    script.run(START * 1.3)
    assert [s.tier for s in clean_samples(script.study, a_load(320))] == [Tier.BASELINE]


# --- what closes ---------------------------------------------------------------------------------------------


def test_infeasible_is_seen_once() -> None:
    """Out of memory by the configuration closes the card at its first trial, without a number."""
    script = Script().baseline().card().fail(OUT_OF_MEMORY, configuration_caused=True).close()
    closed = script.entries[-1]
    assert isinstance(closed, CardClosed)
    assert (closed.kept, closed.classification.reason) == (False, Reason.INFEASIBLE)
    assert closed.classification.comparison is None
    assert [r.reason for r in script.study.refutations] == [Reason.INFEASIBLE]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.reason)
def test_fault_is_repeated_once_and_never_a_refutation(fault) -> None:
    """Two faults in a row close the card; nothing is remembered against its change and no number is kept."""
    script = Script().baseline().card().fail(fault)
    assert script.told == "screening challenger N320"
    script.fail(fault).close()
    closed = next(iter(script.study.closed.values()))
    assert closed.classification.route is Route.ORCHESTRATION_FAULT
    assert closed.classification.reason in FAULT_REASONS
    assert closed.classification.comparison is None
    assert script.study.refutations == []


def test_fault_between_valid_runs_is_forgiven() -> None:
    """A fault, a valid run, a fault: the card goes on."""
    script = Script().baseline().card().fail().run(START * 1.01).fail()
    assert script.told == "screening challenger N320"


def test_slo_violated_keeps_its_numbers() -> None:
    """Faster and too slow per token is a negative, with the comparison that says how fast."""
    script = Script().baseline().card().run(START * 1.34, tpot_ms=20.7)
    found = decided(script).classification
    assert (found.route, found.reason) == (Route.VALID_NEGATIVE, Reason.SLO_VIOLATED)
    assert found.explanation == "tpot_mean 20.70, the goal asks tpot_mean < 20 ms"
    assert found.comparison is not None
    assert found.comparison.gain == pytest.approx(0.34)


def test_slo_limit_is_strict() -> None:
    """Exactly 20 ms is not below 20 ms."""
    found = decided(Script().baseline().card().run(START * 1.3, tpot_ms=20.0)).classification
    assert found.reason is Reason.SLO_VIOLATED


def test_slo_is_judged_on_the_mean_of_the_runs() -> None:
    """19 and 20.5 ms keep a limit of 20 ms."""
    script = (
        Script().baseline().card().screened().run(START * 1.3, tpot_ms=19.0).run(START).run(START * 1.3, tpot_ms=20.5)
    )
    script.run(START)
    assert decided(script).classification.reason is Reason.GAIN


def test_unobserved_constraint_is_violated() -> None:
    """A TPOT that nobody measured does not keep the SLO."""
    script = Script().baseline().card()
    made = a_measurement(Performance(per_card=START * 1.3), requests=320)
    windows = tuple(w.model_copy(update={"tpot_mean_ms": None}) for w in made.windows)
    script.finish(made.model_copy(update={"windows": windows}))
    found = decided(script).classification
    assert found.explanation == "tpot_mean is NOT_OBSERVED, the goal asks tpot_mean < 20 ms"


def test_failed_requests_break_the_goal() -> None:
    """A run with failed requests is no gain, however fast the rest was."""
    script = Script().baseline().card()
    made = a_measurement(Performance(per_card=START * 1.5), requests=320)
    script.finish(made.model_copy(update={"n_failed": 3, "n_succeeded": 317}))
    found = decided(script).classification
    assert found.explanation == "failed_requests 3.00, the goal asks failed_requests == 0"


def test_incumbent_that_breaks_its_slo_loses_to_a_feasible_challenger() -> None:
    """The goal is the SLO first: slower and feasible is kept over faster and infeasible, after two pairs."""
    script = Script()
    script.run(START, START, START, START, tpot_ms=23.0).card()
    script.run(START * 0.9, tpot_ms=15.0).close()
    for _ in range(2):
        script.run(START * 0.9, tpot_ms=15.0).run(START, tpot_ms=23.0)
    script.close()
    kept = script.study.kept
    assert len(kept) == 1
    assert script.study.closed[kept[0].card_digest].classification.comparison.gain == pytest.approx(-0.1)  # type: ignore[union-attr]


def test_incomparable_run_is_a_fault() -> None:
    """Another build than the incumbent's: evidence is missing, so it is no negative and no refutation."""
    script = Script().baseline().card()
    script.finish(a_measurement(Performance(per_card=START * 1.3), requests=320), build="0.5.19")
    found = decided(script).classification
    assert (found.route, found.reason) == (Route.ORCHESTRATION_FAULT, Reason.EVIDENCE_INCOMPLETE)
    assert found.explanation == "not comparable: different builds: 0.5.16 and 0.5.19"
    script.close()
    assert script.study.refutations == []


def test_native_window_below_the_floor_is_never_a_gain() -> None:
    """A formal run whose steady window is too short is a fault of evidence, not a number."""
    script = Script().baseline().card().screened()
    script.run(START * 1.3).run(START)
    short = a_measurement(Performance(per_card=START * 3), requests=640)
    script.finish(short).run(START)
    found = decided(script).classification
    assert found.reason is Reason.EVIDENCE_INCOMPLETE
    assert "below the goal's floor" in found.explanation


# --- quality -------------------------------------------------------------------------------------------------

REQUIRED = Quality(command=("sgl-eval", "gsm8k"), required=True)


def _confirmed(quality: Quality | None) -> Script:
    script = Script(goal=the_goal(quality=quality)).baseline().card().screened()
    return script.run(START * 1.3, START, START * 1.3, START).close()


def test_required_quality_holds_the_keep_back() -> None:
    """Confirmed and not evaluated: the phase is written, the card stays open, nothing is kept."""
    script = _confirmed(REQUIRED)
    assert isinstance(script.entries[-1], TrialsClassified)
    assert script.study.open_card is not None
    assert not script.study.kept


def test_passed_quality_is_stored_with_the_configuration() -> None:
    """The phase is not written twice, and the kept configuration says `passed`."""
    script = _confirmed(REQUIRED).evaluate("passed").close()
    assert [type(e) for e in script.entries[-2:]] == [CardClosed, ConfigurationKept]
    assert script.study.kept[-1].quality == "passed"
    assert sum(isinstance(e, TrialsClassified) and e.tier is Tier.CONFIRMATION for e in script.entries) == 1


def test_failed_quality_refutes_with_its_numbers() -> None:
    """Faster and wrong is a negative: it keeps its comparison and says what the evaluation said."""
    script = _confirmed(REQUIRED).evaluate("failed", "accuracy 0.71, the baseline has 0.91").close()
    closed = next(iter(script.study.closed.values())).classification
    assert closed.reason is Reason.QUALITY_FAILED
    assert closed.explanation == "quality failed: accuracy 0.71, the baseline has 0.91"
    assert closed.comparison is not None
    assert not script.study.kept
    assert [r.reason for r in script.study.refutations] == [Reason.QUALITY_FAILED]


def test_evaluation_that_cannot_be_had_is_a_fault() -> None:
    """Two evaluations without an answer close the card as a fault: nothing is held against the configuration."""
    script = _confirmed(REQUIRED).evaluate("not_evaluated", "the data set is gone")
    script.evaluate("not_evaluated", "the data set is gone").close()
    closed = next(iter(script.study.closed.values())).classification
    assert closed.route is Route.ORCHESTRATION_FAULT
    assert closed.explanation == "its quality could not be evaluated: the data set is gone"
    assert script.study.refutations == []


def test_optional_quality_is_added_to_the_kept_configuration() -> None:
    """A keep without the gate says `not_evaluated` until an evaluation has said otherwise."""
    script = _confirmed(REQUIRED.model_copy(update={"required": False}))
    assert script.study.kept[-1].quality == "not_evaluated"
    script.run(START * 1.3, START * 1.3).evaluate("failed")
    assert script.study.kept[-1].quality == "failed"


# --- noise and constraints -----------------------------------------------------------------------------------


def test_noise_pools_repeats_of_one_configuration_at_one_load() -> None:
    """Runs at N320 and at N640 are never in one group: their difference is the load's."""
    script = Script().run(100.0, 200.0, 202.0, 198.0)
    found = noise_of(script.study, "output_tok_s_per_card", WindowKind.WHOLE)
    assert found == Noise(relative_sd=pytest.approx(((2 * 0.01**2 + 2 * 0.01**2) / 4) ** 0.5), df=4.0, repeats=3)


def test_violations_name_both_figures() -> None:
    """Each broken constraint is a sentence of its own."""
    script = Script().run(START, tpot_ms=25.0)
    assert violations(script.study, script.study.all_samples(), WindowKind.WHOLE) == (
        "tpot_mean 25.00, the goal asks tpot_mean < 20 ms",
    )


# --- properties ----------------------------------------------------------------------------------------------

events = st.lists(
    st.one_of(
        st.floats(min_value=0.7, max_value=1.4),
        st.sampled_from([*FAULTS]),
        st.just("infeasible"),
        st.just("too slow per token"),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(happens=events)
def test_whatever_happens_no_fault_refutes_and_no_keep_lacks_its_pairs(happens: list[object]) -> None:
    """Any sequence of results, faults and infeasible launches leaves the guards standing."""
    script = Script(goal=the_goal(budget={"trials": 60}))
    for event in happens:
        _settle(script)
        if isinstance(script.next(), Stop):
            break
        _happen(script, event)
    for kept in script.study.kept:
        comparison = script.study.closed[kept.card_digest].classification.comparison
        assert comparison is not None
        assert min(len(comparison.incumbent_trials), len(comparison.challenger_trials)) >= 2
    for refutation in script.study.refutations:
        assert refutation.reason not in FAULT_REASONS
    for phase in script.study.phases:
        if phase.classification.route is Route.ORCHESTRATION_FAULT and phase.classification.refusal is None:
            assert phase.classification.comparison is None


def _settle(script: Script) -> None:
    while not isinstance(step := script.next(), Measure | Stop):
        if isinstance(step, Close):
            script.close()
        else:
            value = script.study.incumbent.settings["decode.flag.max-running-requests"]
            script.card(a_draft("decode.flag.max-running-requests", value, 300 + len(script.study.cards)))


def _happen(script: Script, event: object) -> None:
    if isinstance(event, float):
        script.run(START * event)
    elif event == "infeasible":
        script.fail(OUT_OF_MEMORY, configuration_caused=script.measure().card is not None)
    elif event == "too slow per token":
        script.run(START * 1.2, tpot_ms=24.0)
    else:
        script.fail(event)  # type: ignore[arg-type]
