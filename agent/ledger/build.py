"""Builds the ledger folder from stored entries, and from nothing else: the same entries give the same bytes.

Files that are not of this ledger are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.ledger.card_page import card_page, start_page
from agent.ledger.csv_text import csv_text
from agent.ledger.document import Page
from agent.ledger.files import write_text
from agent.ledger.history import History, gather
from agent.ledger.html_writer import HtmlWriter
from agent.ledger.index_page import index_page
from agent.ledger.json_text import json_text
from agent.ledger.markdown_writer import MarkdownWriter
from agent.ledger.progress import progress_of
from agent.ledger.progress_plot import progress_svg
from agent.ledger.redaction import Redactor
from agent.ledger.render import Renderer
from agent.ledger.rows import COLUMNS, trial_rows
from agent.ledger.tradeoff_plot import tradeoff_svg
from agent.ledger.tradeoff_section import tradeoff_sets
from agent.ledger.words import Words
from experiments.ledger import LedgerEntry
from experiments.tradeoff import OptionSet

Choices = tuple[OptionSet, OptionSet]


@dataclass(frozen=True, kw_only=True)
class LedgerFiles:
    """Where the ledger is, and how many of its files were written because their bytes changed."""

    index: Path
    html: Path
    csv: Path
    json: Path
    cards: int
    written: int


def build_ledger(
    entries: Sequence[LedgerEntry],
    folder: Path,
    *,
    lang: str = "en",
    artifacts: Path | None,
    kept: Path | None = None,
    private: Iterable[str] = (),
) -> LedgerFiles:
    """Write every file of the ledger into `folder`, each atomically.

    `artifacts` holds the raw files by trial and `kept` the kept configurations as YAML; None leaves the links to
    them out. `private` are values (hosts, accounts, folders) that must not appear anywhere.
    """
    t, redact = Words(lang), Redactor(private)
    history = gather(entries, redact)
    written = 0
    places = Places(
        artifacts=None if artifacts is None else _relative(artifacts, folder / "cards"),
        kept=None if kept is None else _relative(kept, folder),
    )
    choices = tradeoff_sets(history)
    pictures = draw(history, choices, t)
    for path, text in ledger_texts(history, choices, pictures, places, t, redact):
        written += write_text(folder / path, text)
    return LedgerFiles(
        index=folder / "index.md",
        html=folder / "index.html",
        csv=folder / "experiments.csv",
        json=folder / "experiments.json",
        cards=len(history.attempts),
        written=written,
    )


@dataclass(frozen=True, kw_only=True)
class Places:
    """What lies beside the ledger: raw files as seen from a card's page, kept configurations from the index."""

    artifacts: str | None
    kept: str | None


def draw(history: History, choices: Choices, t: Words) -> dict[str, str]:
    """The plots by file name, as SVG."""
    objective = history.study.goal.objective.metric
    return {
        "progress.svg": progress_svg(progress_of(history), t, simulated=history.simulated),
        "trade-off.svg": tradeoff_svg(choices, objective, t, simulated=history.simulated),
    }


def ledger_texts(
    history: History, choices: Choices, pictures: Mapping[str, str], places: Places, t: Words, redact: Redactor
) -> Iterator[tuple[str, str]]:
    """Every file by its path in the folder; the index last, so that it never points at a missing page."""
    yield from ((f"plots/{name}", svg) for name, svg in pictures.items())
    yield "experiments.csv", csv_text(COLUMNS, trial_rows(history), redact)
    yield "experiments.json", json_text(history, redact)
    writers = (MarkdownWriter(redact, pictures), HtmlWriter(redact, pictures))
    renderers = [(writer.suffix, Renderer(writer, t.lang)) for writer in writers]
    for page in _pages(history, places.artifacts, t):
        yield from ((page.path + suffix, renderer.render(page)) for suffix, renderer in renderers)
    index = index_page(history, choices, places.kept, t)
    yield from ((index.path + suffix, renderer.render(index)) for suffix, renderer in renderers)


def _pages(history: History, artifacts: str | None, t: Words) -> Iterator[Page]:
    yield start_page(history, artifacts, t)
    for attempt in history.attempts:
        yield card_page(history, attempt, artifacts, t)


def _relative(target: Path, start: Path) -> str:
    """The way from the card pages to the raw files, so that a ledger may be moved together with them."""
    return os.path.relpath(target, start).replace(os.sep, "/")
