"""The trade-off table: what each choice gives and what it costs, at the formal load and at the screening load."""

from __future__ import annotations

from agent.ledger.document import Block, Heading, Inline, Label, Mood, PageLink, Paragraph, Picture, Table
from agent.ledger.figures import figure
from agent.ledger.history import History
from agent.ledger.words import Words
from experiments.metric import METRICS
from experiments.tradeoff import Option, OptionSet, option_set

MAX_ROWS = 30  # more than that is a list, not a choice: then the dominated ones are only counted
MOST_ROWS = 200


def tradeoff_sets(history: History) -> tuple[OptionSet, OptionSet]:
    """At the formal load, and at the screening load."""
    return option_set(history.study), option_set(history.study, history.study.goal.screening.requests)


def tradeoff_blocks(history: History, sets: tuple[OptionSet, OptionSet], t: Words) -> list[Block]:
    formal, screened = sets
    blocks: list[Block] = [
        Heading(2, t("Trade-offs"), "trade-offs"),
        Paragraph(
            t(
                "Means over runs. A configuration is in the set if it keeps every constraint and no other is at "
                "least as good in every column and better in one by more than the noise of their means. Runs of "
                "different N are never compared, and after a shift of the pool only runs since then count.",
            )
        ),
        *_set_blocks(history, formal, t("Formal load"), t),
    ]
    if screened.requests != formal.requests:
        blocks += _set_blocks(history, screened, t("Screening load (short runs, chosen from: not confirmed)"), t)
    blocks.append(Picture("trade-off.svg", t("Trade-offs between the objective and the reported latencies")))
    return blocks


def _set_blocks(history: History, choices: OptionSet, title: str, t: Words) -> list[Block]:
    heading = t("{title}: N={n}, {window} window", title=title, n=choices.requests, window=t.label(choices.window))
    if not choices.options:
        return [Heading(3, heading), Paragraph(t("No valid run at this load."))]
    shown = _shown(choices)
    head = (
        t("configuration"),
        "C",
        t("runs"),
        *(f"{t.metric(m)} {METRICS[m].unit.symbol}".strip() for m in choices.metrics),
        t("standing"),
    )
    rows = tuple(_row(history, choice, t) for choice in shown)
    blocks: list[Block] = [
        Heading(3, heading),
        Table(head, rows, frozenset(range(1, 3 + len(choices.metrics)))),
    ]
    if len(shown) < len(choices.options):
        blocks.append(Paragraph(t("{n} more are in experiments.csv.", n=len(choices.options) - len(shown))))
    return blocks


def _shown(choices: OptionSet) -> tuple[Option, ...]:
    if len(choices.options) <= MAX_ROWS:
        return choices.options
    chosen = [c for c in choices.options if c.is_kept or (c.is_candidate and not c.is_dominated)]
    return tuple(sorted(chosen, key=lambda c: not c.is_kept)[:MOST_ROWS])


def _row(history: History, choice: Option, t: Words) -> tuple[Inline, ...]:
    first = choice.trial_ids[0]
    return (
        PageLink(history.name_of(choice.config), history.pages[first]),
        str(history.study.trials[first].started.load.concurrency),
        str(len(choice.trial_ids)),
        *(figure(value) for value in choice.values.values()),
        _standing(choice, t),
    )


def _standing(choice: Option, t: Words) -> Inline:
    if choice.violated:
        return (Label(t("breaks a constraint"), Mood.BAD), " ", "; ".join(choice.violated))
    if not choice.is_candidate:
        return Label(t("not all figures observed"), Mood.FAULT)
    kept = (" ", Label(t("kept"), Mood.GOOD)) if choice.is_kept else ()
    if choice.is_dominated:
        return (t("dominated"), *kept)
    return (Label(t("in the set"), Mood.GOOD), *kept)
