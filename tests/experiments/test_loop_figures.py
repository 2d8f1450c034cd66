"""The loop's own figures: by hand, and never adding a second twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.ledger import TrialFinished, TrialResolved
from experiments.loop_figures import (
    cost_of,
    repeated_negatives,
    resends,
    stage_costs,
    summarise_loop,
    times_to_decision,
)
from experiments.study import fold
from experiments.trial import OPTIONAL, Reason, Sent, Stage, StageTime, TrialRecord
from tests.experiments.scripted import START, Script
from tests.factories import EVENING, STAGE_SECONDS, a_card, a_draft, a_fault, a_measurement, a_night, a_record


def _stages(*times: tuple[Stage, float, float]) -> tuple[StageTime, ...]:
    """(stage, begin after, seconds)"""
    return tuple(
        StageTime(stage=stage, attempt=1, began=EVENING + timedelta(seconds=begin), seconds=seconds)
        for stage, begin, seconds in times
    )


def _record(*times: tuple[Stage, float, float]) -> TrialRecord:
    return a_record("t1", measurement=a_measurement()).model_copy(update={"stages": _stages(*times)})


def test_stages_add_up() -> None:
    """One after another: the total is their sum."""
    cost = cost_of(a_record("t1"))
    assert cost.total_s == pytest.approx(sum(STAGE_SECONDS.values()))
    assert cost.overlap_s == pytest.approx(0, abs=1e-6)
    assert {c.stage: c.seconds for c in cost.stages} == pytest.approx(dict(STAGE_SECONDS))


def test_nested_stages_are_never_added() -> None:
    """A warm-up inside a launch is counted once, in the launch."""
    cost = cost_of(_record((Stage.LAUNCH, 0, 100), (Stage.WARM_UP, 40, 30), (Stage.MEASURE, 100, 50)))
    assert cost.total_s == pytest.approx(150)
    assert cost.overlap_s == pytest.approx(30)
    assert {c.stage: c.seconds for c in cost.stages}[Stage.WARM_UP] == pytest.approx(0, abs=1e-6)


def test_overlapping_stages_count_the_overlap_once() -> None:
    """Launch of two roles side by side."""
    cost = cost_of(_record((Stage.LAUNCH, 0, 60), (Stage.READY, 50, 30)))
    assert (cost.total_s, cost.overlap_s) == (pytest.approx(80), pytest.approx(10))


def test_time_beyond_the_formal_window() -> None:
    """Field record: C90 took 129.58 s beyond its formal window, 81.67 s of it without the cache preparation."""
    measurement = a_measurement()
    whole = measurement.windows[0]
    windows = (whole.model_copy(update={"duration_s": 179.62}),)
    record = a_record("t1", measurement=measurement.model_copy(update={"windows": windows})).model_copy(
        update={
            "stages": _stages(
                (Stage.PREPARE, 0, 31.67),
                (Stage.CACHE, 31.67, 47.91),
                (Stage.MEASURE, 79.58, 199.62),
                (Stage.COLLECT, 279.2, 30),
            )
        }
    )
    cost = cost_of(record)
    assert cost.beyond_s == pytest.approx(129.58)
    assert cost.beyond_without_cache_s == pytest.approx(81.67)


def test_trial_without_numbers_has_no_formal_window() -> None:
    """A fault cost time and has no window to subtract."""
    cost = cost_of(a_record("t1", failure=a_fault()))
    assert (cost.formal_s, cost.beyond_s, cost.beyond_without_cache_s) == (None, None, None)
    assert cost.total_s > 0


times = st.lists(
    st.tuples(
        st.sampled_from(list(Stage)), st.floats(min_value=0, max_value=1000), st.floats(min_value=0, max_value=500)
    ),
    min_size=1,
    max_size=15,
)


@settings(deadline=None)
@given(stages=times)
def test_total_is_the_time_in_which_any_stage_ran(stages: list[tuple[Stage, float, float]]) -> None:
    """Whatever nests or overlaps: the length of the union, and never more than from first to last."""
    cost = cost_of(_record(*stages))
    edges = sorted((b, b + s) for _, b, s in stages)
    union, reached = 0.0, edges[0][0]
    for begin, end in edges:
        union += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    assert cost.total_s == pytest.approx(union, abs=1e-2)
    assert cost.total_s + cost.overlap_s == pytest.approx(sum(s for _, _, s in stages), abs=1e-2)


def test_figures_of_a_night() -> None:
    """One kept of seven; the held trial of the last card was declared dead and its card ended as a fault."""
    entries = a_night(settle_held=True)
    study = fold(entries)
    found = summarise_loop(study, entries)
    assert (found.cards, found.decided) == (len(study.cards), len(study.closed))
    assert found.changed_a_choice == pytest.approx(1 / len(study.closed))
    assert found.repeated_negatives == 0
    assert found.resends == 0
    assert found.time_to_decision_median_s is not None
    assert 0 < found.time_to_decision_median_s <= (found.time_to_decision_max_s or 0)
    assert found.runs_per_decision is not None
    assert found.runs_per_decision >= 1


def test_study_without_cards_has_no_shares() -> None:
    """Nothing decided: None, never zero."""
    script = Script().baseline()
    found = summarise_loop(script.study, script.entries)
    assert (found.changed_a_choice, found.time_to_decision_median_s, found.runs_per_decision) == (None, None, None)
    assert found.first_time_complete == 1.0


def test_time_to_decision_is_from_admission_to_the_last_word() -> None:
    """One run of four minutes, and two faults of one minute each."""
    script = Script().baseline().refute(1).card().fail(times=2).close()
    assert times_to_decision(script.entries) == [240.0, 120.0]


def test_fault_makes_a_trial_incomplete_and_infeasible_does_not() -> None:
    """Of a valid run, a fault, a repaired run and an out-of-memory, two were complete at the first try."""
    script = Script().baseline(START).fail()
    repaired = a_fault(Stage.ANALYSE, Reason.POST_PROCESSING, Sent.FINISHED, repaired=True)
    trial_id = script.start()
    record = TrialRecord(
        trial_id=trial_id, measurement=a_measurement(requests=320), sent=Sent.FINISHED, faults=(repaired,)
    )
    script.add(TrialFinished(at=script.now, record=record)).fail(configuration_caused=True)
    assert summarise_loop(script.study, script.entries).first_time_complete == 0.5


def test_repeated_negative_is_counted() -> None:
    """The same change on the same configuration a second time, whatever it is called."""
    draft = a_draft("prefill.flag.prefill-max-requests", 1, 2)
    script = Script().baseline().card(draft).run(START * 0.8).close()
    script.card(draft.model_copy(update={"mechanism": "another story"}), number=2)
    assert repeated_negatives(script.study) == 1
    assert script.open_card != a_card(draft)


@pytest.mark.parametrize(
    ("sent", "attempts", "expected"),
    [(Sent.FINISHED, (1, 2), 1), (Sent.UNKNOWN, (1, 2), 1), (Sent.NOT_SENT, (1, 2), 0), (Sent.FINISHED, (1,), 0)],
)
def test_resend(sent: Sent, attempts: tuple[int, ...], expected: int) -> None:
    """A second attempt is a re-send unless the first load is known never to have gone out."""
    script = Script()
    trial_id = script.start()
    stages = tuple(StageTime(stage=Stage.MEASURE, attempt=n, began=EVENING, seconds=10) for n in attempts)
    fault = a_fault(Stage.MEASURE, Reason.CLIENT, sent)
    record = TrialRecord(
        trial_id=trial_id, measurement=a_measurement(), sent=Sent.FINISHED, faults=(fault,), stages=stages
    )
    script.add(TrialFinished(at=script.now, record=record))
    assert resends(script.study.trials[trial_id]) == expected


def test_stage_costs_are_summed_over_trials() -> None:
    """Attempts and seconds of each stage, in the order of the stages."""
    entries = a_night(settle_held=True)
    study = fold(entries)
    costs = stage_costs(study)
    assert [c.stage for c in costs] == [s for s in Stage if s not in OPTIONAL and s is not Stage.EVALUATE]
    measured = sum(
        1 for t in study.trials.values() if t.record and any(s.stage is Stage.MEASURE for s in t.record.stages)
    )
    assert next(c for c in costs if c.stage is Stage.MEASURE).attempts == measured
    assert any(isinstance(e, TrialResolved) for e in entries)
