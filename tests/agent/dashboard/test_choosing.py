"""Trade-offs and comparisons: what may be put side by side, and why something may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.dashboard.comparing import Question, answer
from experiments.comparison import Comparison, Refusal
from experiments.measurement import WindowKind
from experiments.study import Study, fold
from experiments.tradeoff import choice_metrics, choose, option_set
from experiments.trial import Tier
from tests.agent.dashboard.workspaces import Visitor, words_of
from tests.factories import a_night


@pytest.fixture(scope="module")
def study() -> Study:
    return fold(a_night(settle_held=True))


def run_of(study: Study, tier: Tier, *, card: bool, number: int = 0) -> str:
    runs = [
        i
        for i, t in study.trials.items()
        if t.started.tier is tier and (t.started.card_digest is not None) is card and t.sample is not None
    ]
    return runs[number]


def page_of(before: str, after: str, **options: str) -> str:
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"compare?before={before}&after={after}{more}"


def test_two_runs_of_one_change_are_compared(reader: Visitor, study: Study) -> None:
    """With interval, confidence, window and N, as the ledger words it."""
    before, after = run_of(study, Tier.BASELINE, card=False), run_of(study, Tier.CONFIRMATION, card=True)
    text = words_of(reader.text(page_of(before, after)))

    assert "Not comparable" not in text
    assert "at 95 % confidence (native window, N=640, 1 against 1 runs), SIMULATED" in text


def test_the_sentence_has_the_figures_of_the_comparison(study: Study) -> None:
    """The page asks the same function as the verdict does."""
    before, after = run_of(study, Tier.BASELINE, card=False), run_of(study, Tier.CONFIRMATION, card=True)
    found = answer(study, a_question(before, after))

    assert isinstance(found, Comparison)
    assert 0.25 < found.gain < 0.4
    assert found.low < found.gain < found.high


def a_question(before: str, after: str) -> Question:
    return Question(
        before=before,
        after=after,
        metric="output_tok_s_per_card",
        window=WindowKind.NATIVE,
        before_window=WindowKind.NATIVE,
    )


def test_different_windows_are_refused(reader: Visitor, study: Study) -> None:
    """Both are named."""
    before, after = run_of(study, Tier.BASELINE, card=False), run_of(study, Tier.CONFIRMATION, card=True)
    text = words_of(reader.text(page_of(before, after, before_window="whole", window="native")))

    assert "Not comparable different windows: whole and native" in text


def test_different_n_is_refused(reader: Visitor, study: Study) -> None:
    """A short run never stands against a formal one."""
    before, after = run_of(study, Tier.BASELINE, card=False), run_of(study, Tier.SCREENING, card=True)
    text = words_of(reader.text(page_of(before, after)))

    assert "different requests: 640 and 320" in text
    assert "confidence" not in text


def test_more_than_one_change_is_refused(study: Study) -> None:
    """The differences are listed."""
    start = run_of(study, Tier.BASELINE, card=False)
    others = [i for i, t in study.trials.items() if t.sample is not None and len(_changes(study, start, i)) > 1]
    found = answer(study, a_question(start, others[0]))

    assert isinstance(found, Refusal)
    assert any("the configurations differ by" in reason for reason in found.reasons)


def _changes(study: Study, before: str, after: str) -> list[str]:
    old, new = (study.trials[i].started.config.settings for i in (before, after))
    return [key for key in old.keys() | new.keys() if old.get(key) != new.get(key)]


@pytest.mark.parametrize("after", ["t9999", "", "<b>"])
def test_what_is_not_there_is_refused(study: Study, after: str) -> None:
    """By its name."""
    found = answer(study, a_question(run_of(study, Tier.BASELINE, card=False), after))

    assert found == Refusal(reasons=(f"{after}: no such trial in this study",))


def test_a_fault_has_no_side_in_a_comparison(reader: Visitor, study: Study) -> None:
    """It says which stage ended it, and shows no number."""
    fault = next(i for i, t in study.trials.items() if t.record is not None and t.record.failure is not None)
    text = words_of(reader.text(page_of(run_of(study, Tier.BASELINE, card=False), fault)))

    assert f"{fault}: has no valid run (" in text
    assert "so it has no numbers" in text


def test_a_run_is_not_compared_with_itself(study: Study) -> None:
    """It would be an effect of zero that means nothing."""
    run = run_of(study, Tier.BASELINE, card=False)

    assert answer(study, a_question(run, run)) == Refusal(reasons=("both sides are the same run",))


def test_the_chooser_names_what_the_rule_names(reader: Visitor, study: Study) -> None:
    """For each figure of the goal, with window, N and the number of runs."""
    for metric in choice_metrics(study):
        choice = choose(study, option_set(study), metric)
        assert choice is not None
        text = words_of(reader.text(f"trade-offs?prefer={metric}"))
        assert f"If you prefer {metric} : {choice.option.name}" in text
        assert f"(mean of {len(choice.option.trial_ids)} runs, native window, N=640, SIMULATED)" in text


def test_a_screening_choice_says_that_it_is_not_confirmed(reader: Visitor) -> None:
    """It is another window and another N."""
    text = words_of(reader.text("trade-offs?requests=320"))

    assert "whole window, N=320; SIMULATED" in text
    assert "screening: not confirmed" in text


def test_a_figure_outside_the_goal_is_refused(reader: Visitor) -> None:
    """And the ones that there are, are named."""
    answer = reader.get("trade-offs?prefer=goodput")

    assert answer.status_code == 400
    assert "ttft_p90" in answer.text


def test_a_load_without_runs_has_no_choice(reader: Visitor) -> None:
    """Nothing is made up from another N."""
    assert "No valid run at this load" in words_of(reader.text("trade-offs?requests=7"))


def test_a_broken_constraint_is_said_beside_its_numbers(reader: Visitor) -> None:
    """It is listed and never chosen."""
    assert "breaks a constraint tpot_mean" in words_of(reader.text("trade-offs?requests=320"))


def test_files_of_the_night(ended_night: Path) -> None:
    """The fixture is a workspace like any other."""
    assert {p.name for p in ended_night.iterdir()} >= {"tuneloop.db", "state.yaml", "study.id", "artifacts"}
