"""What the rows of an earlier process mean: what stands, what ended the trial, what is tried again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from executor.standing import ATTEMPTS, DONE, standing_of
from experiments.ports import JournalRow
from experiments.trial import Reason, Sent, Stage

AT = datetime(2026, 12, 1, 22, tzinfo=UTC)


def row(stage: Stage, outcome: str | None = DONE, attempt: int = 1, **payload: object) -> JournalRow:
    facts = (
        {"detail": "why", "sent": "not_sent", "repairable": True, **payload} if outcome not in (None, DONE) else payload
    )
    ended = None if outcome is None else AT
    return JournalRow(
        trial_id="t1", stage=stage, attempt=attempt, began=AT, ended=ended, outcome=outcome, payload=dict(facts)
    )


def test_a_stage_that_was_done_last_stands_with_its_payload() -> None:
    """A repaired stage stands; one that failed after it was done does not."""
    repaired = standing_of([row(Stage.COLLECT, "post_processing"), row(Stage.COLLECT, attempt=2, files=3)])
    lost = standing_of([row(Stage.RESERVE), row(Stage.RESERVE, "environment", attempt=2)])

    assert repaired.payload(Stage.COLLECT) == {"files": 3}
    assert lost.payload(Stage.RESERVE) is None


def test_an_open_attempt_is_entered_again_under_its_number() -> None:
    """An interrupted attempt keeps its number, since job ids carry it; after an ended one comes the next."""
    assert standing_of([row(Stage.WARM_UP, None)]).next_attempt(Stage.WARM_UP) == 1
    assert standing_of([row(Stage.WARM_UP, "client")]).next_attempt(Stage.WARM_UP) == 2
    assert standing_of([]).next_attempt(Stage.WARM_UP) == 1


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], None),
        ([row(Stage.CHECK)], None),
        ([row(Stage.LAUNCH, "environment", repairable=False)], Reason.ENVIRONMENT),
        ([row(Stage.WARM_UP, "client")], None),
        ([row(Stage.WARM_UP, "client"), row(Stage.WARM_UP, "client", 2)], Reason.CLIENT),
        ([row(Stage.WARM_UP, "client"), row(Stage.WARM_UP, None, 2)], None),
        ([row(Stage.RESERVE, "transport"), row(Stage.RESERVE, DONE, 2), row(Stage.RESERVE, "transport", 3)], None),
        ([row(Stage.MEASURE), row(Stage.RELEASE, "transport", repairable=False)], None),
    ],
)
def test_a_trial_ended_with_a_fault_that_is_not_tried_again(rows: list[JournalRow], reason: Reason | None) -> None:
    """Faults count since the stage was last done; a lease that could not be given back ends nothing."""
    ending = standing_of(rows).ending
    assert (ending.reason if ending is not None else None) == reason
    assert ATTEMPTS == 2


def test_an_intended_load_is_one_that_perhaps_began() -> None:
    """From the committed intent on, only the host knows."""
    assert not standing_of([row(Stage.CACHE)]).load_began
    assert standing_of([row(Stage.CACHE), row(Stage.MEASURE, None, job_id="t1.measure")]).load_began


def test_a_fault_comes_back_as_it_was_recorded() -> None:
    """What the record says later is what the runner said then."""
    fault = standing_of([row(Stage.MEASURE, "unknown_end", sent="unknown", repairable=False)]).ending
    assert fault is not None
    assert (fault.reason, fault.sent, fault.repairable, fault.detail) == (
        Reason.UNKNOWN_END,
        Sent.UNKNOWN,
        False,
        "why",
    )
