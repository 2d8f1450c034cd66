"""The trade-off table: what each choice gives and what it costs, at the formal load and at the screening load."""

from __future__ import annotations

from agent.ledger.document import Block, Heading, Inline, Label, Mood, PageLink, Paragraph, Picture, Table
from agent.ledger.figures import figure, share_figure
from agent.ledger.history import History
from agent.ledger.tradeoff import Choice, ChoiceSet, choice_set
from agent.ledger.words import Words
from experiments.metric import METRICS

MAX_ROWS = 30  # more than that is a list, not a choice: then the dominated ones are only counted
MOST_ROWS = 200


def tradeoff_sets(history: History) -> tuple[ChoiceSet, ChoiceSet]:
    goal = history.study.goal
    return (
        choice_set(history, goal.scenario.load.requests, goal.objective.window, selected=False),
        choice_set(history, goal.screening.requests, goal.screening.window, selected=True),
    )


def tradeoff_blocks(history: History, sets: tuple[ChoiceSet, ChoiceSet], t: Words) -> list[Block]:
    formal, screened = sets
    blocks: list[Block] = [
        Heading(2, t("Trade-offs"), "trade-offs"),
        Paragraph(
            t(
                "Means over runs. A configuration is in the set if it keeps every constraint and no other is at "
                "least as good in every column and better in one by more than the noise ({tolerance}). Runs of "
                "different N are never compared.",
                tolerance=share_figure(formal.tolerance),
            )
        ),
        *_set_blocks(history, formal, t("Formal load"), t),
    ]
    if screened.requests != formal.requests:
        blocks += _set_blocks(history, screened, t("Screening load (short runs, chosen from: not confirmed)"), t)
    blocks.append(Picture("trade-off.svg", t("Trade-offs between the objective and the reported latencies")))
    return blocks


def _set_blocks(history: History, choices: ChoiceSet, title: str, t: Words) -> list[Block]:
    heading = t("{title}: N={n}, {window} window", title=title, n=choices.requests, window=t.label(choices.window))
    if not choices.choices:
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
    if len(shown) < len(choices.choices):
        blocks.append(Paragraph(t("{n} more are in experiments.csv.", n=len(choices.choices) - len(shown))))
    return blocks


def _shown(choices: ChoiceSet) -> tuple[Choice, ...]:
    if len(choices.choices) <= MAX_ROWS:
        return choices.choices
    chosen = [c for c in choices.choices if c.is_kept or (c.is_candidate and not c.is_dominated)]
    return tuple(sorted(chosen, key=lambda c: not c.is_kept)[:MOST_ROWS])


def _row(history: History, choice: Choice, t: Words) -> tuple[Inline, ...]:
    first = choice.runs[0]
    page = history.pages[first.started.trial_id]
    return (
        PageLink(choice.name, page),
        str(first.started.load.concurrency),
        str(len(choice.runs)),
        *(figure(value) for value in choice.values.values()),
        _standing(choice, t),
    )


def _standing(choice: Choice, t: Words) -> Inline:
    if choice.violated:
        return (Label(t("breaks a constraint"), Mood.BAD), " ", "; ".join(choice.violated))
    if not choice.is_candidate:
        return Label(t("not all figures observed"), Mood.FAULT)
    kept = (" ", Label(t("kept"), Mood.GOOD)) if choice.is_kept else ()
    if choice.is_dominated:
        return (t("dominated"), *kept)
    return (Label(t("in the set"), Mood.GOOD), *kept)
