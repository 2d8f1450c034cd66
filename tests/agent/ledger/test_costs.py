"""What the study cost and how well the loop worked, from the entries alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agent.ledger.history import gather
from experiments.ledger import StudyStopped, TrialFinished, TrialStarted
from experiments.loop_figures import formal_window_seconds, stage_costs, summarise_loop
from experiments.study import fold
from experiments.trial import Reason, Sent, Stage, StageFault, Tier
from tests.factories import EVENING, a_config, a_fault, a_load, a_night, a_record, an_opening


def test_stage_times_are_summed_over_all_attempts() -> None:
    """Every attempt of every trial, failed or not, is in the sum."""
    history = gather(a_night())
    everything = [time for t in history.study.trials.values() if t.record for time in t.record.stages]
    costs = stage_costs(history.study)
    assert sum(cost.seconds for cost in costs) == pytest.approx(sum(time.seconds for time in everything))
    assert sum(cost.attempts for cost in costs) == len(everything)


def test_the_formal_windows_are_the_whole_windows_of_measured_runs() -> None:
    """Faults have no window, and native lies inside whole: it is not added again."""
    history = gather(a_night())
    whole = [t.sample.measurement.windows[0].duration_s for t in history.study.trials.values() if t.sample is not None]
    assert formal_window_seconds(history.study) == pytest.approx(sum(whole))


def test_shares_of_nothing_are_not_observed() -> None:
    """A study without a decided card has no share and no median."""
    figures = summarise_loop(fold([an_opening()]), [an_opening()])
    assert (figures.changed_a_choice, figures.first_time_complete, figures.time_to_decision_median_s) == (None,) * 3


def test_time_to_decision_runs_from_admission_to_the_last_word() -> None:
    """Screening and confirmation, waiting included."""
    history = gather(a_night())
    first = history.attempts[0]
    assert first.closed is not None
    longest = summarise_loop(history.study, history.entries).time_to_decision_max_s
    assert longest == (first.closed.at - first.admitted_at).total_seconds()


def test_a_fault_that_ended_the_trial_is_told_once() -> None:
    """The stage's fault and the trial's failure are one incident, also where their reasons differ."""
    fault = a_fault(Stage.WARM_UP, Reason.CLIENT, Sent.NOT_SENT, "the client ended with 1")
    failure = StageFault.model_validate(fault.model_dump() | {"reason": Reason.LAUNCH, "detail": "out of memory"})
    record = a_record("t1", failure=failure, faults=(fault,))
    started = TrialStarted(
        at=EVENING, trial_id="t1", tier=Tier.BASELINE, card_digest=None, config=a_config(), load=a_load(), why=""
    )
    finished = TrialFinished(at=EVENING + timedelta(minutes=1), record=record)
    incidents = gather([an_opening(), started, finished]).incidents()
    assert [(i.fault.reason, i.ended_trial) for i in incidents] == [(Reason.LAUNCH, True)]


def test_a_configuration_that_cannot_run_is_no_incident() -> None:
    """Both attempts to start it ran out of memory: a negative, and nothing under faults."""
    first = a_fault(Stage.READY, Reason.LAUNCH, Sent.NOT_SENT, "out of memory")
    second = first.model_copy(update={"attempt": 2})
    record = a_record("t1", failure=second, faults=(first, second), configuration_caused=True)
    started = TrialStarted(
        at=EVENING, trial_id="t1", tier=Tier.BASELINE, card_digest=None, config=a_config(), load=a_load(), why=""
    )
    finished = TrialFinished(at=EVENING + timedelta(minutes=1), record=record)
    assert gather([an_opening(), started, finished]).incidents() == []


def test_the_reason_of_a_stop_is_in_the_fold() -> None:
    """The night that is settled ends because no candidate is left."""
    last = a_night(settle_held=True)[-1]
    assert isinstance(last, StudyStopped)
