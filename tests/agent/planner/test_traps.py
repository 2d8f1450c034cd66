"""Traps that planners of such loops are known to fall into, each as a whole small study on the product's own path."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from agent.llm import Message, ScriptedModel
from agent.llm.scripted import Scripted
from agent.planner.llm_proposer import LlmProposer
from agent.planner.optimizer import OptimizerProposer
from agent.planner.prompt import read_document
from agent.planner.rules import RuleProposer
from experiments.card import novelty_key
from experiments.ledger import StopReason
from experiments.study import Study
from tests.bench.planner.product import ProductSession
from tests.bench.planner.tiny import Settings, TinyPool


def studied(pool: TinyPool, seed: int = 1, model: ScriptedModel | None = None) -> Study:
    session = ProductSession(
        pool=pool,
        launches=pool.goal.budget.trials,
        chance=random.Random(seed),
        suggesters=(RuleProposer(), OptimizerProposer()),
        planner=None if model is None else LlmProposer(model),
    )
    session.run()
    return session.study


def insisting(path: str, value: str) -> ScriptedModel:
    """A model that was taught a false lesson and repeats it in every answer, whatever is objected."""

    def answer(messages: Sequence[Message]) -> Scripted:
        figures = {f["id"]: f["value"] for f in read_document(messages)["figures"]}
        card = {
            "knob": path,
            "to_value": value,
            "wall": "decode_batch",
            "mechanism": "It is well known that this always helps.",
            "evidence": [{"id": "objective.value", "value": figures["objective.value"]}],
            "gain_low_percent": 30,
            "gain_high_percent": 60,
            "probability": 0.99,
            "if_promising": "keep",
            "if_negative": "try again",
        }
        return {"note": "lesson learned", "cards": [card]}

    return ScriptedModel(answer)


def test_a_planted_false_lesson_costs_one_card_and_no_keep() -> None:
    """The lesson is tried once on a configuration; what the runs say of it then binds, however often it is repeated."""
    knobs = {"knob-a": (1, 2, 3), "knob-b": (1, 2, 3)}
    pool = TinyPool(knobs, lambda s: 10.0 * (0.8 if s["knob-b"] == 3 else 1.0) * (1 + 0.1 * (s["knob-a"] == 2)))

    study = studied(pool, model=insisting("decode.flag.knob-b", "3"))

    lesson = [c for c in study.cards.values() if (c.draft.change.name, c.draft.change.to_value) == ("knob-b", 3)]
    assert max(Counter(card.parent_fingerprint for card in lesson).values()) == 1
    assert pool.worth(study.incumbent) == pytest.approx(11.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_lucky_candidate_on_an_unlucky_baseline_is_not_kept(seed: int) -> None:
    """The baseline's runs come out 6 % low: every candidate looks better at screening, none of them is."""
    knobs = {"knob-a": (1, 2, 3), "knob-b": ("off", "on")}
    pool = TinyPool(
        knobs,
        lambda s: 10.0 * (1.0 if (s["knob-a"], s["knob-b"]) == (1, "off") else 0.97),
        noise=0.01,
        luck=lambda launch: 0.94 if launch <= 4 else 1.0,
    )

    study = studied(pool, seed)

    assert pool.worth(study.incumbent) == 10.0


def test_a_stale_negative_is_tested_again_once_its_conditions_have_changed() -> None:
    """What was refuted on the first configuration is let in on the next one by a figure that has changed, and kept."""

    def rate(s: Settings) -> float:
        ready = s["knob-a"] == 2
        return 10.0 * (1.3 if ready else 1.0) * ((1.25 if ready else 0.8) if s["knob-b"] == 2 else 1.0)

    pool = TinyPool({"knob-a": (1, 2), "knob-b": (1, 2)}, rate, waiting=lambda s: 0.05 if s["knob-a"] == 1 else 0.6)
    studies = [studied(pool, seed) for seed in range(6)]

    assert [pool.worth(study.incumbent) for study in studies] == [pytest.approx(16.25)] * 6
    assert any(len(study.refutations) > 0 for study in studies), (
        "in none was the negative found before the other change"
    )


def test_an_exhausted_space_says_stop() -> None:
    """Nothing gains and everything was tried: the study ends by itself, with budget left, and says why."""
    pool = TinyPool(
        {"knob-a": (1, 2), "knob-b": ("off", "on")}, lambda s: 10.0 - (s["knob-a"] == 2) - (s["knob-b"] == "on")
    )

    study = studied(pool)

    assert study.stopped is not None
    assert study.stopped.reason is StopReason.NO_CANDIDATE
    assert len(study.trials) < pool.goal.budget.trials
    assert study.incumbent == pool.starting


def test_no_change_is_asked_a_third_time_on_one_configuration() -> None:
    """A small gain that is neither shown nor excluded may be asked for once more, and then no more."""
    pool = TinyPool({"knob-a": (1, 2), "knob-b": (1, 2)}, lambda s: 10.0 + 0.05 * (s["knob-a"] == 2), noise=0.02)

    study = studied(pool, seed=3)

    asked = Counter((novelty_key(c.draft.change), c.parent_fingerprint) for c in study.cards.values())
    assert max(asked.values()) <= 2
