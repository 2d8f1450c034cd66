"""What a reviewer reads on the index of the scripted night."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from agent.ledger.answer_section import answer_blocks
from agent.ledger.document import Bullets
from agent.ledger.history import gather
from agent.ledger.loop_section import open_blocks
from agent.ledger.words import Words
from experiments.ledger import LedgerEntry, StopReason, StudyReopened, StudyStopped, TrialHeld
from experiments.trial import Tier
from tests.agent.ledger.html_page import read_html
from tests.factories import Idea, Night, Performance, a_draft, a_night


@pytest.fixture(scope="module")
def index(ledger: Path) -> str:
    return (ledger / "index.md").read_text()


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_goal_stands_in_one_line(index: str) -> None:
    """Metric, window, target, every limit and the divisor are in it."""
    line = next(line for line in index.splitlines() if line.startswith("**Maximise"))
    for part in ("per card", "native window", "> 230 tok/s/card", "tpot_mean &lt; 20 ms", "divided by 16 cards"):
        assert part in line


def test_the_answer_has_three_lines(index: str, night: Sequence[LedgerEntry]) -> None:
    """What to keep, what it reaches against the incumbent at the same N, and what the goal says to it."""
    comparison = gather(night).attempts[0].comparison(Tier.CONFIRMATION)
    assert comparison is not None
    runs = f"{len(comparison.challenger_trials)} against {len(comparison.incumbent_trials)} runs"
    lines = [line for line in section(index, "Answer").splitlines() if line.startswith("- ")]
    assert len(lines) == 3
    assert "Keep c01-prefill-max-requests-2" in lines[0]
    assert f"native window, N=640, {runs}" in lines[1]
    assert f"{comparison.gain * 100:+.2f} %" in lines[1]
    assert "95 % confidence" in lines[1]
    assert "493 requests over 133" in lines[1]
    assert "tpot_mean &lt; 20 ms: 9.40 ms, met" in lines[2]
    assert "quality: not evaluated" in lines[2]


def test_every_effect_carries_window_n_and_interval(index: str) -> None:
    """No percentage of an effect stands alone in the table of what was tried."""
    cells = [cell for line in section(index, "What was tried").splitlines() for cell in line.split(" | ")]
    effects = [cell for cell in cells if re.match(r"[+-][0-9.]+ %", cell)]
    assert len(effects) == 5
    for effect in effects:
        assert re.search(r"\\\[[+-][0-9.]+ %, [+-][0-9.]+ %\\\] \(\w+ window, N=\d+, \d against \d runs\)", effect)


def test_every_card_has_one_row_with_its_outcome(index: str) -> None:
    """Kept, slower, SLO, infeasible, no gain, fault and held are told apart."""
    rows = [line for line in section(index, "What was tried").splitlines() if line.startswith("| [c0")]
    outcomes = [row.split(" | ")[5].split("** ")[0].strip("*") for row in rows]
    assert outcomes == [
        "kept",
        "negative: slower",
        "negative: SLO violated",
        "negative: infeasible",
        "negative: no significant gain",
        "fault: contract mismatch",
        "held: end unknown",
    ]


def test_where_no_effect_tells_why_the_row_does(index: str) -> None:
    """A broken limit, a configuration that cannot run and a fault are explained beside the outcome."""
    tried = section(index, "What was tried")
    assert "**negative: SLO violated** tpot_mean 20.70, the goal asks tpot_mean &lt; 20 ms" in tried
    assert "**negative: infeasible** the configuration cannot run: decode ran out of device memory" in tried


def test_predictions_are_held_against_what_was_measured(index: str) -> None:
    """By proposer: sign, interval, and the chance given against the share that came true."""
    rows = [line for line in section(index, "Predictions").splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[0] for row in rows] == ["| rules", "| llm", "| optimizer"]
    assert "| optimizer | 1 | 0 | NOT_OBSERVED | NOT_OBSERVED | 20.00 % | 0.00 % | 0.04 |" in rows


def test_faults_stand_apart_from_negatives(index: str) -> None:
    """A fault's row tells stage, reason, whether the load was sent and the repair; the infeasible card is none."""
    faults = section(index, "Faults")
    assert "read the stored details file again; nothing was sent" in faults
    assert len([line for line in faults.splitlines() if line.startswith("| [t")]) == 3
    assert "c04" not in faults


def test_the_evidence_leads_to_the_run_it_comes_from(index: str) -> None:
    """Each figure that the kept card cites is given with its observations and a link to the run."""
    evidence = section(index, "Evidence that led to it")
    assert "| `prefill.lone_tail_share` | 0.33 | 1920 | [t0004](cards/start.md#trial-t0004) |" in evidence
    assert "| `decode.waiting.mean` | 0.00 | 212 | [t0004](cards/start.md#trial-t0004) |" in evidence


def test_what_is_open_names_the_held_trial(index: str, night: Sequence[LedgerEntry]) -> None:
    """The operator finds what to look at, and the reviewer what was not evaluated."""
    (held,) = [entry.trial_id for entry in night if isinstance(entry, TrialHeld)]
    lines = section(index, "What is still open")
    link = f"[{held}](cards/c07-prefill-max-requests-3.md#trial-{held})"
    assert f"{link}: its end is unknown at stage measure" in lines
    assert "the quality of its outputs was not evaluated" in lines


def test_every_reopening_is_told_with_its_word() -> None:
    """Who let an ended study go on, when and why, in each language; a later end stands after it."""
    night = a_night(settle_held=True)
    at = night[-1].at + timedelta(hours=1)
    reopened = StudyReopened(at=at, by="ann", reason="another night")
    stopped = StudyStopped(at=at, reason=StopReason.DRIFT, detail="it grew slower")
    for language, words in (("en", "reopened by ann on"), ("zh", "由 ann 于")):
        _, bullets = open_blocks(gather([*night, reopened, stopped]), Words(language))
        assert isinstance(bullets, Bullets)
        told = [str(item) for item in bullets.items]
        (place,) = [i for i, line in enumerate(told) if words in line]
        assert "another night" in told[place]
        assert "it grew slower" in told[place + 1]


def test_stage_times_add_up(index: str) -> None:
    """The last row of the cost table is the sum of the others: stages never nest."""
    rows = re.findall(r"^\| ([a-z -]+) \| (\d+) \| ([^|]+) \| ([\d.]+) % \|$", section(index, "Cost"), re.MULTILINE)
    *stages, total = rows
    assert ("all stages", str(sum(int(row[1]) for row in stages))) == (total[0], total[1])
    assert pytest.approx(sum(float(row[3]) for row in stages), abs=0.1) == 100.0


def test_the_loop_figures_are_those_of_the_entries(index: str) -> None:
    """One of six decided cards changed the choice, nothing was sent again, no negative was repeated."""
    cost = section(index, "Cost")
    for row in (
        "| cards decided | 6 of 7 |",
        "| share of decided cards that changed the kept configuration | 16.67 % |",
        "| formal loads sent again | 0 |",
        "| repeated negatives | 0 |",
    ):
        assert row in cost


def test_settings_that_differ_and_the_stored_file_are_named(index: str) -> None:
    """How to launch it: the one difference and the kept configuration as a file."""
    launch = section(index, "How to launch it")
    assert "| `prefill.flag.prefill-max-requests` | `1` | `2` |" in launch
    assert re.search(r"\(\.\./kept/c01-prefill-max-requests-2-[0-9a-f]{6}\.yaml\)", launch)


def test_trade_offs_of_different_n_are_in_different_tables(index: str) -> None:
    """Runs of N=640 and N=320 are never put beside one another."""
    titles = re.findall(r"^### (.*load.*)$", section(index, "Trade-offs"), re.MULTILINE)
    assert [title.split(": ")[-1] for title in titles] == ["N=640, native window", "N=320, whole window"]


def test_the_html_index_says_what_the_markdown_says(ledger: Path) -> None:
    """One description makes both: every number of one is in the other."""
    page = read_html((ledger / "index.html").read_text())
    markdown = (ledger / "index.md").read_text()
    numbers = set(re.findall(r"\d+\.\d\d", re.sub(r"\]\([^)]*\)", "", markdown)))
    assert set() == numbers - set(re.findall(r"\d+\.\d\d", page.text))


def test_more_than_one_keep_credits_the_combination() -> None:
    """Two kept changes are summed up as a combination, not as one of them."""
    bullets = next(b for b in answer_blocks(gather(two_keeps()), Words()) if isinstance(b, Bullets))
    assert isinstance(bullets.items[-1], str)
    assert "All 2 kept changes together" in bullets.items[-1]
    assert "belongs to the combination" in bullets.items[-1]


def two_keeps() -> list[LedgerEntry]:
    second = Idea(
        draft=a_draft("decode.flag.max-running-requests", 128, 160),
        performance=Performance(per_card=262.0, tpot_ms=10.1, ttft_s=20.0),
    )
    return Night(ideas=(Night().ideas[0], second)).run(settle_held=True)


def test_a_settled_night_has_no_held_trial() -> None:
    """A person's finding stands on the card's page in the past tense."""
    history = gather(a_night(settle_held=True))
    assert history.study.held_trial is None
