"""On which cards the language model leads, and on which the control: from the goal's shares and what came of its cards.

A model that helps keeps its share. One whose cards fail is asked less and less, so that it costs little of a night;
faults of the pool are not held against it.
"""

from __future__ import annotations

from experiments.card import Source
from experiments.study import Study
from experiments.trial import Route


def is_model_turn(study: Study) -> bool:
    """The model leads as long as its cards are less than its earned share of all, the next one included."""
    led = sum(1 for card in study.cards.values() if card.draft.source is Source.LLM)
    return led < earned_share(study) * (len(study.cards) + 1)


def earned_share(study: Study) -> float:
    """The goal's share, times how often the model's cards are kept against those of the others, at most once.

    One kept card is credited to each in advance, so that a first failure halves nothing but the trust in it.
    """
    return study.goal.planner.llm_share * min(_kept_rate(study, by_model=True) / _kept_rate(study, by_model=False), 1.0)


def _kept_rate(study: Study, *, by_model: bool) -> float:
    judged = [
        closed.kept
        for digest, closed in study.closed.items()
        if (study.cards[digest].draft.source is Source.LLM) is by_model
        and closed.classification.route is not Route.ORCHESTRATION_FAULT
    ]
    return (1 + sum(judged)) / (1 + len(judged))


def is_control_turn(study: Study) -> bool:
    """Every so many cards a random one, not the first."""
    every = study.goal.planner.control_every
    return every is not None and len(study.cards) % every == every - 1
