"""A long study: the ledger grows linearly with it. `make bench` measures the ten thousand."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.ledger.build import build_ledger
from agent.ledger.history import gather
from agent.ledger.progress import progress_of
from agent.ledger.progress_plot import progress_svg
from agent.ledger.tradeoff_section import MAX_ROWS, MOST_ROWS, tradeoff_sets
from agent.ledger.words import Words
from tests.factories import a_long_study


def seconds_to_build(experiments: int, folder: Path) -> float:
    entries = a_long_study(experiments)
    began = time.process_time()
    build_ledger(entries, folder, artifacts=None)
    return time.process_time() - began


@pytest.mark.slow
def test_the_build_takes_linear_time(tmp_path: Path) -> None:
    """Four times the experiments take less than eight times as long; a square would take sixteen."""
    seconds_to_build(10, tmp_path / "warm")  # imports and the font cache
    small = seconds_to_build(250, tmp_path / "small")
    large = seconds_to_build(1000, tmp_path / "large")
    assert large < 8 * small


def test_a_long_list_of_choices_is_cut_to_those_worth_choosing() -> None:
    """The trade-off table never grows with the study; what is left out is counted."""
    from agent.ledger.document import Paragraph, Table
    from agent.ledger.tradeoff_section import tradeoff_blocks

    history = gather(a_long_study(300))
    blocks = tradeoff_blocks(history, tradeoff_sets(history), Words())
    tables = [block for block in blocks if isinstance(block, Table)]
    assert all(len(table.rows) <= max(MAX_ROWS, MOST_ROWS) for table in tables)
    assert any(isinstance(b, Paragraph) and "more are in experiments.csv" in str(b.content) for b in blocks)


@pytest.mark.slow
def test_a_plot_of_thousands_of_runs_stays_small() -> None:
    """From some thousand marks on they become one picture, so that the page can still be opened."""
    history = gather(a_long_study(2500))
    svg = progress_svg(progress_of(history), Words(), simulated=True)
    assert len(svg) < 300_000
