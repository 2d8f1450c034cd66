"""How good the proposers' predictions were: what each card foretold beside what was measured, by source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from agent.ledger.history import Attempt
from experiments.trial import Route, Tier


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """One proposer's record. Shares are None where nothing was measured."""

    source: str
    cards: int
    measured: int  # cards with an effect; faults and infeasible ones foretold nothing that can be checked
    right_sign: float | None  # middle of the prediction and effect on one side of zero; a middle of 0 names no side
    inside: float | None  # the effect lies in the predicted interval
    promised: float | None  # mean probability given to a gain, over decided cards
    promising: float | None  # share of these that were promising to the end
    brier: float | None  # mean squared distance of the two; 0 is perfect, 0.25 is a coin


def calibrations(attempts: Iterable[Attempt]) -> list[Calibration]:
    """Per source, in the order in which they first proposed."""
    groups: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        groups[str(attempt.card.draft.source)].append(attempt)
    return [_calibration(source, group) for source, group in groups.items()]


def effect_of(attempt: Attempt) -> float | None:
    """The measured effect on the objective: of the confirmation, else of the screening."""
    comparison = attempt.comparison(Tier.CONFIRMATION) or attempt.comparison(Tier.SCREENING)
    return None if comparison is None else comparison.gain


def _calibration(source: str, attempts: list[Attempt]) -> Calibration:
    pairs = [(a.card.draft.prediction, effect) for a in attempts if (effect := effect_of(a)) is not None]
    outcomes = [
        (a.card.draft.prediction.probability, float(a.closed.classification.route is Route.PROMISING))
        for a in attempts
        if a.closed is not None and a.closed.classification.route is not Route.ORCHESTRATION_FAULT
    ]
    return Calibration(
        source=source,
        cards=len(attempts),
        measured=len(pairs),
        right_sign=_mean([float((p.low + p.high) * effect > 0) for p, effect in pairs if p.low + p.high != 0]),
        inside=_mean([float(p.low <= effect <= p.high) for p, effect in pairs]),
        promised=_mean([probability for probability, _ in outcomes]),
        promising=_mean([outcome for _, outcome in outcomes]),
        brier=_mean([(probability - outcome) ** 2 for probability, outcome in outcomes]),
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
