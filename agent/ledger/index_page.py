"""The index: what was asked, what came out, why, and what is left to do, in the order in which a reviewer asks."""

from __future__ import annotations

from agent.ledger.answer_section import answer_blocks, launch_blocks, why_blocks
from agent.ledger.document import Block, FileLink, Heading, Page, Paragraph, Picture
from agent.ledger.goal_section import goal_blocks
from agent.ledger.history import History
from agent.ledger.loop_section import cost_blocks, open_blocks, prediction_blocks
from agent.ledger.noise_section import noise_blocks
from agent.ledger.tradeoff_section import tradeoff_blocks
from agent.ledger.tried_section import fault_blocks, refused_blocks, tried_blocks
from agent.ledger.words import Words
from experiments.tradeoff import OptionSet


def index_page(history: History, choices: tuple[OptionSet, OptionSet], kept: str | None, t: Words) -> Page:
    blocks: list[Block] = [
        *goal_blocks(history, t),
        *answer_blocks(history, t),
        *launch_blocks(history, kept, t),
        *tradeoff_blocks(history, choices, t),
        Heading(2, t("Progress"), "progress"),
        Picture("progress.svg", t("The incumbent over time, with every run and every fault")),
        *tried_blocks(history, t),
        *fault_blocks(history, t),
        *refused_blocks(history, t),
        *why_blocks(history, t),
        *noise_blocks(history, t),
        *prediction_blocks(history, t),
        *open_blocks(history, t),
        *cost_blocks(history, t),
        *_data_blocks(t),
    ]
    name = history.study.goal.name
    return Page(path="index", title=t("Experiment ledger: {name}", name=name), blocks=tuple(blocks))


def _data_blocks(t: Words) -> list[Block]:
    return [
        Heading(2, t("Data"), "data"),
        Paragraph(
            (
                FileLink("experiments.csv", "experiments.csv"),
                ", ",
                FileLink("experiments.json", "experiments.json"),
                t(": one row per run and window, in full precision. Texts on these pages have two decimals. "),
                t("NOT_OBSERVED means that a value was not observed; it is never filled in from another field."),
            )
        ),
    ]
