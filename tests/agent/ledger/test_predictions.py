"""How a proposer's predictions are held against what was measured: sign, interval, and the chance given to a gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.ledger.history import Attempt, gather
from agent.ledger.predictions import calibrations, effect_of
from experiments.card import Prediction, Source
from experiments.ledger import LedgerEntry
from experiments.trial import Route


def foretold(attempt: Attempt, low: float, high: float, probability: float = 0.5) -> Attempt:
    prediction = Prediction(low=low, high=high, probability=probability)
    draft = attempt.card.draft.model_copy(update={"prediction": prediction, "source": Source.RULES})
    return replace(attempt, card=attempt.card.model_copy(update={"draft": draft}))


@pytest.fixture
def gained(night: Sequence[LedgerEntry]) -> Attempt:
    """The card of the night that was kept, with its measured effect."""
    return next(a for a in gather(night).attempts if a.kept is not None)


def test_sign_interval_and_brier_are_arithmetic(gained: Attempt) -> None:
    """Three cards of one effect: one foretold within, one beyond on the right side, one on the wrong side."""
    effect = effect_of(gained)
    assert effect is not None
    assert effect > 0.2
    assert gained.closed is not None
    assert gained.closed.classification.route is Route.PROMISING

    [record] = calibrations(
        [
            foretold(gained, effect - 0.1, effect + 0.1, 0.9),
            foretold(gained, effect + 0.1, effect + 0.2, 0.6),
            foretold(gained, -0.2, -0.1, 0.1),
        ]
    )

    assert (record.cards, record.measured) == (3, 3)
    assert record.right_sign == pytest.approx(2 / 3)
    assert record.inside == pytest.approx(1 / 3)
    assert record.promised == pytest.approx((0.9 + 0.6 + 0.1) / 3)
    assert record.promising == 1.0
    assert record.brier == pytest.approx((0.1**2 + 0.4**2 + 0.9**2) / 3)


def test_a_prediction_that_names_no_side_is_neither_right_nor_wrong(gained: Attempt) -> None:
    """As much either way says nothing of the sign; the interval still counts."""
    [record] = calibrations([foretold(gained, -0.5, 0.5)])

    assert record.right_sign is None
    assert record.inside == 1.0


def test_a_fault_is_no_miss(night: Sequence[LedgerEntry]) -> None:
    """A card whose runs failed for reasons of operation foretold nothing that could be checked."""
    faulty = [
        a
        for a in gather(night).attempts
        if a.closed is not None and a.closed.classification.route is Route.ORCHESTRATION_FAULT
    ]
    assert faulty

    for record in calibrations(faulty):
        assert (record.measured, record.right_sign, record.brier) == (0, None, None)
