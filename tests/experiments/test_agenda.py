"""What is next, in every situation that a study can be in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import cycle

import pytest

from experiments.agenda import Hold, Measure, Stop, next_step
from experiments.goal import Quality
from experiments.ledger import Finding, StopReason, StudyReopened, StudyStopped, TrialFinished, TrialResolved
from experiments.objective import parse_bound
from experiments.trial import Reason, Sent, Stage
from tests.experiments.scripted import OUT_OF_MEMORY, START, Script, arms, the_goal, told
from tests.factories import a_draft, a_fault, a_record

QUALITY = Quality(command=("sgl-eval", "gsm8k"), required=True)
ASIDE = QUALITY.model_copy(update={"required": False})


def _resolved(script: Script) -> Script:
    trial_id = script.study.held_trial.started.trial_id  # type: ignore[union-attr]
    return script.add(
        TrialResolved(at=script.now, trial_id=trial_id, finding=Finding.DEAD, by="ops", reason="host rebooted")
    )


def _reopened(script: Script) -> Script:
    return script.stop().add(StudyReopened(at=script.now, by="ops", reason="another night"))


def _stopped(script: Script) -> Script:
    return script.add(StudyStopped(at=script.now, reason=StopReason.NO_CANDIDATE, detail="enough"))


def _target_goal(**budget: object) -> Script:
    return Script(goal=the_goal(budget={"stop_at_target": True, **budget}))


LITTLE = {"trials": 4}
FIVE = {"trials": 5}

TABLE: dict[str, tuple[Callable[[], Script], str]] = {
    # baseline
    "an empty study measures the formal baseline": (Script, "baseline incumbent N640"),
    "then the short one, for the noise": (lambda: Script().run(START), "baseline incumbent N320"),
    "until its noise is known": (lambda: Script().run(START, START, START), "baseline incumbent N320"),
    "then asks for a card": (lambda: Script().baseline(), "propose"),
    "a baseline that failed once is repeated": (lambda: Script().fail(), "baseline incumbent N640"),
    "one that failed twice ends the study": (lambda: Script().fail(times=2), "stop: baseline_failed"),
    "a valid run between two faults forgives the first": (
        lambda: Script().run(START).fail().run(START).fail(),
        "baseline incumbent N320",
    ),
    # the open trial
    "a trial under way is gone on with": (lambda: _with(Script(), lambda s: s.start("t-7")), "continue t-7"),
    "a trial whose end is unknown holds everything": (lambda: Script().hold(), "hold t001"),
    "a settled one is gone on with": (lambda: _resolved(Script().hold()), "continue t001"),
    # screening
    "an admitted card is screened": (lambda: Script().baseline().card(), "screening challenger N320"),
    "a clear gain goes to confirmation": (
        lambda: Script().baseline().card().run(START * 1.3),
        "close screening: promising gain",
    ),
    "a clear loss is closed after one run": (
        lambda: Script().baseline().card().run(START * 0.8),
        "close screening: valid_negative slower",
    ),
    "no difference is closed once a worthwhile gain is excluded": (
        lambda: Script().baseline().card().run(START * 0.98),
        "close screening: valid_negative no_significant_gain",
    ),
    "what one run leaves open is run again": (
        lambda: Script().baseline().card().run(START * 1.01),
        "screening challenger N320",
    ),
    "what the budget of screening leaves open goes to confirmation": (
        lambda: Script().baseline().card().run(START * 1.01, START * 1.01),
        "close screening: promising not_excluded",
    ),
    "out of memory is a negative at once": (
        lambda: Script().baseline().card().fail(OUT_OF_MEMORY, configuration_caused=True),
        "close screening: valid_negative infeasible",
    ),
    "a fault is repeated once": (lambda: Script().baseline().card().fail(), "screening challenger N320"),
    "a second fault in a row closes the card": (
        lambda: Script().baseline().card().fail(times=2),
        "close screening: orchestration_fault transport",
    ),
    # confirmation
    "a promising card is confirmed at the formal load": (
        lambda: Script().baseline().card().screened(),
        "confirmation challenger N640",
    ),
    "beside the incumbent": (
        lambda: Script().baseline().card().screened().run(START * 1.3),
        "baseline incumbent N640",
    ),
    "one pair keeps nothing": (
        lambda: Script().baseline().card().screened().run(START * 1.3, START),
        "confirmation challenger N640",
    ),
    "two pairs do, where the figures are clear": (
        lambda: Script().baseline().card().screened().run(START * 1.3, START, START * 1.3, START),
        "close confirmation: promising gain",
    ),
    "a fault in confirmation is repeated": (
        lambda: Script().baseline().card().screened().run(START * 1.3, START).fail(),
        "confirmation challenger N640",
    ),
    # after a keep
    "after a keep fresh short runs come first": (lambda: Script().keep(), "baseline incumbent N320"),
    "two of them": (lambda: Script().keep().run(START * 1.3), "baseline incumbent N320"),
    "then the next card": (lambda: Script().keep().run(START * 1.3, START * 1.3), "propose"),
    "a kept configuration that fails twice ends the study": (
        lambda: Script().keep().fail(times=2),
        "stop: baseline_failed",
    ),
    # quality
    "a required evaluation comes before the keep": (
        lambda: _confirmed(Script(goal=the_goal(quality=QUALITY))),
        "evaluate c01-prefill-max-requests-2",
    ),
    "an evaluation that gave no answer is repeated once": (
        lambda: _confirmed(Script(goal=the_goal(quality=QUALITY))).evaluate("not_evaluated"),
        "evaluate c01-prefill-max-requests-2",
    ),
    "after two it is a fault": (
        lambda: _confirmed(Script(goal=the_goal(quality=QUALITY))).evaluate("not_evaluated").evaluate("not_evaluated"),
        "close confirmation: orchestration_fault evidence_incomplete",
    ),
    "passed quality keeps": (
        lambda: _confirmed(Script(goal=the_goal(quality=QUALITY))).evaluate("passed"),
        "close confirmation: promising gain",
    ),
    "failed quality is a negative": (
        lambda: _confirmed(Script(goal=the_goal(quality=QUALITY))).evaluate("failed"),
        "close confirmation: valid_negative quality_failed",
    ),
    "an evaluation that is not required follows the keep": (
        lambda: _confirmed(Script(goal=the_goal(quality=ASIDE))).run(START * 1.3, START * 1.3),
        "evaluate c01-prefill-max-requests-2",
    ),
    "and is asked for once": (
        lambda: _confirmed(Script(goal=the_goal(quality=ASIDE))).run(START * 1.3, START * 1.3).evaluate("failed"),
        "propose",
    ),
    # the sentinel
    "after so many cards the incumbent is measured again": (
        lambda: Script().baseline().refute(5),
        "sentinel incumbent N320",
    ),
    "not before": (lambda: Script().baseline().refute(4), "propose"),
    "and then the count begins anew": (lambda: Script().baseline().refute(5).run(START).refute(4), "propose"),
    "after so many hours as well": (lambda: Script().baseline().wait(3.1), "sentinel incumbent N320"),
    "never inside a card": (lambda: Script().baseline().card().wait(3.1), "screening challenger N320"),
    "never where both triggers are off": (
        lambda: Script(goal=the_goal(sentinel={"cards": None, "hours": None})).baseline().refute(6).wait(5),
        "propose",
    ),
    # stops
    "the budget of trials": (lambda: Script(goal=the_goal(budget=LITTLE)).baseline(), "stop: budget_trials"),
    "the budget of hours": (lambda: Script().baseline().wait(10), "stop: budget_hours"),
    "a decided phase is written before the budget stops": (
        lambda: Script(goal=the_goal(budget=FIVE)).baseline().card().run(START * 0.8),
        "close screening: valid_negative slower",
    ),
    "patience": (
        lambda: Script(goal=the_goal(budget={"patience": 2})).baseline().refute(2),
        "stop: no_candidate",
    ),
    "a keep gives patience anew": (
        lambda: (
            Script(goal=the_goal(budget={"patience": 2}))
            .baseline()
            .refute(1)
            .keep()
            .run(START * 1.3, START * 1.3)
            .refute(1)
        ),
        "propose",
    ),
    "faults do not use up patience": (
        lambda: Script(goal=the_goal(budget={"patience": 1})).baseline().card().fail(times=2).close(),
        "propose",
    ),
    "a reached target is enough where the goal says so": (lambda: _target_goal().keep(), "stop: goal_reached"),
    "and is no reason to stop where it does not": (lambda: Script().keep(), "baseline incumbent N320"),
    "a target that is not reached": (lambda: _target_goal().keep(START * 1.1), "baseline incumbent N320"),
    "a stopped study stays stopped": (
        lambda: Script(goal=the_goal(budget=LITTLE)).baseline().stop(),
        "stop: budget_trials",
    ),
    "a study that has stopped": (lambda: _stopped(Script().baseline()), "stop: no_candidate"),
    "a reopened study has its budget anew": (
        lambda: _reopened(Script(goal=the_goal(budget=LITTLE)).baseline()),
        "propose",
    ),
    "its hours as well": (lambda: _reopened(Script().baseline().wait(10)), "sentinel incumbent N320"),
    "and its patience": (
        lambda: _reopened(Script(goal=the_goal(budget={"patience": 2})).baseline().refute(2)),
        "propose",
    ),
    "and a baseline that may fail again": (lambda: _reopened(Script().fail(times=2)), "baseline incumbent N640"),
}


def _with(script: Script, act: Callable[[Script], object]) -> Script:
    act(script)
    return script


def _confirmed(script: Script) -> Script:
    """A card whose confirmation was written."""
    script.baseline().card().screened()
    return script.run(START * 1.3, START, START * 1.3, START).close()


@pytest.mark.parametrize("name", TABLE)
def test_next_step(name: str) -> None:
    """One row per situation: what the study does next."""
    make, expected = TABLE[name]
    assert told(make().next()) == expected


def test_challenger_and_incumbent_take_turns() -> None:
    """The formal runs of a confirmation go C I C I, and close to in turn after that."""
    script = Script().baseline().card().run(START * 1.01, START * 1.01).close()
    while isinstance(script.next(), Measure):
        step = script.measure()
        script.run(START if step.card is None else START * 1.015)
    order = "".join(arms(script.entries))
    assert order.startswith("CICI")
    for length in range(2, len(order) + 1):
        assert abs(order[:length].count("C") - order[:length].count("I")) <= 2


def test_later_card_reuses_runs_of_the_incumbent_and_still_runs_beside_it() -> None:
    """Of a well-known incumbent only every second run is repeated, never none."""
    script, wobble = Script(), cycle((1.03, 0.97, 1.01, 0.99))
    while isinstance(script.next(), Measure):
        script.run(START * next(wobble))
    for value in (2, 3):
        script.card(a_draft("prefill.flag.prefill-max-requests", 1, value)).run(START * 1.01, START * 1.01).close()
        before = len(list(arms(script.entries)))
        while isinstance(script.next(), Measure):
            script.run(START * next(wobble))
        script.close()
        order = list(arms(script.entries))[before:]
    assert order.count("C") > 4
    assert order.count("C") // 2 <= order.count("I") < order.count("C") * 0.7


def test_measure_names_the_load_of_its_tier() -> None:
    """Screening has the short N, confirmation the formal one, both with C and r of the configuration."""
    script = Script().baseline().card()
    screening = script.measure().load
    confirmation = script.screened().measure().load
    assert (screening.requests, screening.concurrency, screening.rate) == (320, 128, 6.0)
    assert (confirmation.requests, confirmation.concurrency, confirmation.rate) == (640, 128, 6.0)


def test_hold_says_what_to_check() -> None:
    """The words of the held trial reach the operator."""
    step = Script().hold().next()
    assert step == Hold(trial_id="t001", detail="the client host restarted; look for its details file")


def test_next_step_changes_nothing() -> None:
    """Asking twice gives the same answer and leaves the study as it was."""
    script = Script().baseline().card().run(START * 1.01)
    before = repr(script.study)
    assert script.next() == script.next()
    assert repr(script.study) == before


def test_held_trial_stops_even_a_study_out_of_budget() -> None:
    """An unknown end comes before every other question."""
    script = Script(goal=the_goal(budget={"trials": 1})).hold()
    assert told(next_step(script.study, script.now + timedelta(hours=50))) == "hold t001"


def test_stop_details_are_sentences_with_figures() -> None:
    """Each stop says how far it was from its limit."""
    reached = _target_goal().keep().next()
    assert isinstance(reached, Stop)
    name = "c01-prefill-max-requests-2"
    assert reached.detail.startswith(name)
    assert reached.detail.endswith("reaches 232.75, the goal asks > 230 tok/s/card")
    failed = Script().fail(times=2).next()
    assert failed == Stop(
        reason=StopReason.BASELINE_FAILED,
        detail="the baseline failed 2 times in a row at N=640; see its trials",
    )


def test_unknown_end_of_a_resolved_trial_counts_as_one_fault() -> None:
    """A trial that a person declared dead ends as a fault and is tried once more."""
    script = _resolved(Script().baseline().card().hold())
    fault = a_fault(Stage.MEASURE, Reason.UNKNOWN_END, Sent.UNKNOWN, "the host was rebooted during the load")
    trial_id = script.study.open_trial.started.trial_id  # type: ignore[union-attr]
    script.add(TrialFinished(at=script.now, record=a_record(trial_id, failure=fault)))
    assert script.told == "screening challenger N320"


def test_target_is_judged_on_the_confirmation() -> None:
    """A target of exactly the confirmed mean, strictly more, is not reached."""
    of = the_goal().objective.of
    strict = the_goal().objective.model_copy(update={"target": parse_bound(f"> {START * 1.3:.6f}", of)})
    script = Script(goal=the_goal(budget={"stop_at_target": True}, objective=strict)).keep(START * 1.3 - 0.001)
    assert script.told == "baseline incumbent N320"
