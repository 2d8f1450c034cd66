"""The three routes, each with the reason and the sentence that a reviewer reads."""

from __future__ import annotations

import pytest

from experiments.classification import (
    classify_effect,
    classify_failure,
    classify_incomparable,
    classify_not_evaluated,
    classify_quality,
    classify_slo,
    describe,
)
from experiments.comparison import Comparison, Refusal
from experiments.measurement import WindowKind
from experiments.statistics import Verdict
from experiments.trial import FAULT_REASONS, Reason, Route, Sent, Stage
from tests.factories import a_fault, a_record

COMPARISON = Comparison(
    metric="output_tok_s_per_card",
    window=WindowKind.NATIVE,
    rule="aisbench-2026-08",
    incumbent_mean=179.04,
    challenger_mean=236.8268,
    gain=236.8268 / 179.04 - 1,
    low=0.3,
    high=0.345,
    confidence=0.95,
    noise_relative_sd=0.005,
    incumbent_trials=("t1", "t8"),
    challenger_trials=("t7", "t9", "t10"),
)


def test_sentence_has_metric_window_interval_and_runs() -> None:
    """Everything that a number needs to be read."""
    assert describe(COMPARISON) == (
        "output_tok_s_per_card (native) 179.04 → 236.83: +32.28% [+30.00%, +34.50%] at 95%, 3 against 2 runs"
    )


@pytest.mark.parametrize(
    ("verdict", "route", "reason"),
    [
        (Verdict.GAIN, Route.PROMISING, Reason.GAIN),
        (Verdict.NOT_EXCLUDED, Route.PROMISING, Reason.NOT_EXCLUDED),
        (Verdict.LOSS, Route.VALID_NEGATIVE, Reason.SLOWER),
        (Verdict.NO_GAIN, Route.VALID_NEGATIVE, Reason.NO_SIGNIFICANT_GAIN),
    ],
)
def test_effect(verdict: Verdict, route: Route, reason: Reason) -> None:
    """A decided effect keeps its comparison whichever way it goes."""
    found = classify_effect(verdict, COMPARISON)
    assert (found.route, found.reason, found.comparison) == (route, reason, COMPARISON)


def test_no_gain_says_what_was_excluded() -> None:
    """The best that the runs leave possible, and what would have been worth going on for."""
    small = COMPARISON.model_copy(update={"best_case": 0.0162, "worthwhile": 0.02, "planned_pairs": 6})
    undecided = small.model_copy(update={"best_case": 0.031})
    assert classify_effect(Verdict.NO_GAIN, small).explanation.endswith(
        "3 against 2 runs; at most +1.62% is left, +2.00% would be worth more runs"
    )
    assert classify_effect(Verdict.NO_GAIN, undecided).explanation.endswith(
        "3 against 2 runs; not decided by the 6 pairs that were planned"
    )
    assert classify_effect(Verdict.NO_GAIN, COMPARISON).explanation == describe(COMPARISON)


def test_undecided_effect_has_no_route() -> None:
    """`measure again` is a step, never a result."""
    with pytest.raises(KeyError):
        classify_effect(Verdict.MEASURE_AGAIN, COMPARISON)


@pytest.mark.parametrize("reason", sorted(FAULT_REASONS))
def test_every_fault_is_a_fault(reason: Reason) -> None:
    """It names the stage, the words of the fault and whether the load went out."""
    fault = a_fault(Stage.MEASURE, reason, Sent.UNKNOWN, "the connection was lost")
    found = classify_failure(a_record("t1", failure=fault))
    assert (found.route, found.reason, found.comparison) == (Route.ORCHESTRATION_FAULT, reason, None)
    assert found.explanation == "measure: the connection was lost (formal load unknown)"


@pytest.mark.parametrize(("sent", "shown"), [(Sent.NOT_SENT, "not sent"), (Sent.FINISHED, "finished")])
def test_fault_says_whether_the_load_was_sent(sent: Sent, shown: str) -> None:
    """Three answers, never two."""
    found = classify_failure(a_record("t1", failure=a_fault(Stage.COLLECT, Reason.POST_PROCESSING, sent)))
    assert found.explanation.endswith(f"(formal load {shown})")


def test_configuration_that_cannot_run_is_infeasible() -> None:
    """Out of memory by its own doing is a negative, whichever reason the stage gave."""
    fault = a_fault(Stage.READY, Reason.LAUNCH, detail="out of device memory while loading")
    found = classify_failure(a_record("t1", failure=fault, configuration_caused=True))
    assert (found.route, found.reason) == (Route.VALID_NEGATIVE, Reason.INFEASIBLE)
    assert found.explanation == "the configuration cannot run: out of device memory while loading"


def test_mechanism_that_the_engine_cannot_reach_is_no_gain_and_no_infeasibility() -> None:
    """The host-side check ends the trial before anything runs: a negative that says nothing about what can run."""
    fault = a_fault(Stage.CHECK, Reason.NO_SIGNIFICANT_GAIN, detail="mechanism not reachable in this build: 41 → 41")
    found = classify_failure(a_record("t1", failure=fault, configuration_caused=True))
    assert (found.route, found.reason) == (Route.VALID_NEGATIVE, Reason.NO_SIGNIFICANT_GAIN)
    assert found.explanation == "nothing was run: mechanism not reachable in this build: 41 → 41"


def test_measured_trial_has_no_failure_to_classify() -> None:
    """Asking for one is a mistake of the caller."""
    with pytest.raises(ValueError, match="trial t1 has a measurement"):
        classify_failure(a_record("t1"))


def test_slo() -> None:
    """Both constraints are named and the comparison stays."""
    found = classify_slo(("tpot_mean 20.70, the goal asks tpot_mean < 20 ms", "ttft_mean 70.00, …"), COMPARISON)
    assert (found.route, found.reason) == (Route.VALID_NEGATIVE, Reason.SLO_VIOLATED)
    assert found.explanation == "tpot_mean 20.70, the goal asks tpot_mean < 20 ms; ttft_mean 70.00, …"
    assert found.comparison == COMPARISON


def test_incomparable() -> None:
    """A valid run that cannot be judged is missing evidence, and the refusal is kept."""
    refusal = Refusal(reasons=("different requests: 640 and 320", "different builds: a and b"))
    found = classify_incomparable(refusal)
    assert (found.route, found.reason) == (Route.ORCHESTRATION_FAULT, Reason.EVIDENCE_INCOMPLETE)
    assert found.refusal == refusal
    assert found.explanation == "not comparable: different requests: 640 and 320; different builds: a and b"


def test_quality() -> None:
    """Passed leaves the gain a gain and says so; failed makes it a negative; no answer makes it a fault."""
    gain = classify_effect(Verdict.GAIN, COMPARISON)
    passed = classify_quality(gain, passed=True, detail="accuracy 0.91")
    failed = classify_quality(gain, passed=False, detail="accuracy 0.71")
    nothing = classify_not_evaluated(gain, "the data set is gone")
    assert (passed.route, passed.reason) == (Route.PROMISING, Reason.GAIN)
    assert passed.explanation.endswith("; quality passed: accuracy 0.91")
    assert (failed.route, failed.reason) == (Route.VALID_NEGATIVE, Reason.QUALITY_FAILED)
    assert (nothing.route, nothing.reason) == (Route.ORCHESTRATION_FAULT, Reason.EVIDENCE_INCOMPLETE)
    assert {c.comparison for c in (passed, failed, nothing)} == {COMPARISON}
