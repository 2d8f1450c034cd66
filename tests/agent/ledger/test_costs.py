"""What the study cost and how well the loop worked, from the entries alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agent.ledger.costs import formal_window_seconds, loop_figures, repeated_negatives, resends, stage_costs
from agent.ledger.history import Attempt, gather
from experiments.classification import classify_failure
from experiments.ledger import CardClosed, StudyStopped, TrialFinished, TrialStarted
from experiments.study import TrialState
from experiments.trial import Reason, Sent, Stage, StageFault, StageTime, Tier, TrialRecord
from tests.factories import EVENING, a_card, a_config, a_fault, a_load, a_night, a_record, an_opening


def a_trial(record: TrialRecord) -> TrialState:
    started = TrialStarted(
        at=EVENING,
        trial_id=record.trial_id,
        tier=Tier.BASELINE,
        card_digest=None,
        config=a_config(),
        load=a_load(),
        why="",
    )
    return TrialState(started=started, position=2, record=record)


def measured_twice(sent: Sent) -> TrialState:
    """A trial whose first attempt of measure failed with this load state, and whose second succeeded."""
    fault = a_fault(Stage.MEASURE, Reason.CLIENT, sent, "the client ended", repaired=True)
    times = tuple(StageTime(stage=Stage.MEASURE, attempt=n, began=EVENING, seconds=1.0) for n in (1, 2))
    return a_trial(a_record("t1", faults=(fault,)).model_copy(update={"stages": times}))


@pytest.mark.parametrize(("sent", "count"), [(Sent.NOT_SENT, 0), (Sent.FINISHED, 1), (Sent.UNKNOWN, 1)])
def test_a_second_load_counts_as_sent_again_unless_the_first_never_went_out(sent: Sent, count: int) -> None:
    """The ledger would show a re-send if there were one."""
    assert resends(measured_twice(sent)) == count


def test_a_repaired_summary_is_no_second_load() -> None:
    """Reading the stored data again sends nothing."""
    fault = a_fault(Stage.ANALYSE, Reason.POST_PROCESSING, Sent.FINISHED, "", repaired=True)
    assert resends(a_trial(a_record("t1", faults=(fault,)))) == 0


def test_stage_times_are_summed_over_all_attempts() -> None:
    """Every attempt of every trial, failed or not, is in the sum."""
    history = gather(a_night())
    everything = [time for t in history.study.trials.values() if t.record for time in t.record.stages]
    costs = stage_costs(history)
    assert sum(cost.seconds for cost in costs) == pytest.approx(sum(time.seconds for time in everything))
    assert sum(cost.attempts for cost in costs) == len(everything)


def test_the_formal_windows_are_the_whole_windows_of_measured_runs() -> None:
    """Faults have no window, and native lies inside whole: it is not added again."""
    history = gather(a_night())
    whole = [t.sample.measurement.windows[0].duration_s for t in history.study.trials.values() if t.sample is not None]
    assert formal_window_seconds(history) == pytest.approx(sum(whole))


def test_a_negative_tried_again_on_the_same_configuration_is_counted() -> None:
    """The same change, parent and scenario under another wording is the same idea."""
    failure = a_record("t1", failure=a_fault(Stage.READY, Reason.LAUNCH), configuration_caused=True)
    cards = [a_card(number=number) for number in (1, 2, 3)]
    attempts = []
    for card in cards:
        closed = CardClosed(at=EVENING, card_digest=card.digest, classification=classify_failure(failure), kept=False)
        attempts.append(Attempt(card=card, name=card.name, admitted_at=EVENING, closed=closed))
    assert repeated_negatives(attempts) == 2


def test_the_same_change_of_another_configuration_is_no_repeat() -> None:
    """An earlier negative may be retried when its conditions changed (Pcap2 in the field record)."""
    failure = a_record("t1", failure=a_fault(Stage.READY, Reason.LAUNCH), configuration_caused=True)
    parents = (a_config(), a_config(decode__flag__mem_fraction_static=0.8))
    attempts = []
    for number, parent in enumerate(parents, start=1):
        card = a_card(number=number, parent=parent)
        closed = CardClosed(at=EVENING, card_digest=card.digest, classification=classify_failure(failure), kept=False)
        attempts.append(Attempt(card=card, name=card.name, admitted_at=EVENING, closed=closed))
    assert repeated_negatives(attempts) == 0


def test_shares_of_nothing_are_not_observed() -> None:
    """A study without a decided card has no share and no median."""
    figures = loop_figures(gather([an_opening()]))
    assert (figures.changed_a_choice, figures.first_time_complete, figures.time_to_decision_median_s) == (None,) * 3


def test_time_to_decision_runs_from_admission_to_the_last_word() -> None:
    """Screening and confirmation, waiting included."""
    history = gather(a_night())
    first = history.attempts[0]
    assert first.closed is not None
    longest = loop_figures(history).time_to_decision_max_s
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


def test_the_reason_of_a_stop_is_in_the_fold() -> None:
    """The night that is settled ends because no candidate is left."""
    last = a_night(settle_held=True)[-1]
    assert isinstance(last, StudyStopped)
