"""How good the predictions were, what is still open, and what it all cost."""

from __future__ import annotations

from agent.ledger.document import Block, Bullets, Heading, Inline, PageLink, Paragraph, Table
from agent.ledger.figures import duration_figure, figure, moment, share_figure
from agent.ledger.history import History
from agent.ledger.predictions import calibrations
from agent.ledger.words import Words
from experiments.card import Source
from experiments.ledger import StudyReopened
from experiments.loop_figures import formal_window_seconds, summarise_loop
from experiments.trial import Stage


def prediction_blocks(history: History, t: Words) -> list[Block]:
    """Predicted and measured, by proposer: whom to believe next time."""
    records = calibrations(history.attempts)
    if not records:
        return []
    head = (
        t("proposed by"),
        t("cards"),
        t("with an effect"),
        t("right sign"),
        t("inside the prediction"),
        t("chance given to a gain"),
        t("promising to the end"),
        t("Brier score"),
    )
    rows = tuple(
        (
            t.label(Source(record.source)),
            str(record.cards),
            str(record.measured),
            share_figure(record.right_sign),
            share_figure(record.inside),
            share_figure(record.promised),
            share_figure(record.promising),
            figure(record.brier),
        )
        for record in records
    )
    note = t("A Brier score of 0 is perfect, 0.25 is a coin. Faults are left out: they say nothing about a prediction.")
    return [Heading(2, t("Predictions"), "predictions"), Paragraph(note), Table(head, rows, frozenset(range(1, 8)))]


def open_blocks(history: History, t: Words) -> list[Block]:
    items = _open_items(history, t)
    content: Block = Bullets(tuple(items)) if items else Paragraph(t("Nothing."))
    return [Heading(2, t("What is still open"), "open"), content]


def _open_items(history: History, t: Words) -> list[Inline]:
    study = history.study
    items: list[Inline] = []
    held = study.held_trial
    if held is not None and held.held is not None:
        trial_id = held.started.trial_id
        items.append(
            (
                history.trial_link(trial_id),
                t(
                    ": its end is unknown at stage {stage}: {detail}. Nothing is sent until a person settles it.",
                    stage=t.label(held.held.stage),
                    detail=held.held.detail,
                ),
            )
        )
    elif study.open_trial is not None:
        trial_id = study.open_trial.started.trial_id
        items.append((history.trial_link(trial_id), t(" has no result yet.")))
    items += [(PageLink(a.name, a.page), t(" is not decided.")) for a in history.attempts if a.closed is None]
    items += _reopenings(history, t)
    if study.stopped is not None:
        items.append(
            t(
                "The study stopped: {reason}. {detail}",
                reason=t.label(study.stopped.reason),
                detail=study.stopped.detail,
            )
        )
    return items + _open_questions(history, t)


def _reopenings(history: History, t: Words) -> list[Inline]:
    return [
        t(
            "It had stopped, and was reopened by {by} on {at}: {reason}",
            by=entry.by,
            at=moment(entry.at),
            reason=entry.reason,
        )
        for entry in history.entries
        if isinstance(entry, StudyReopened)
    ]


def _open_questions(history: History, t: Words) -> list[Inline]:
    items: list[Inline] = []
    for kept in history.study.kept:
        if kept.quality == "not_evaluated":
            items.append(
                t("{name}: the quality of its outputs was not evaluated; speed is no evidence of it.", name=kept.name)
            )
    numerics = [
        a
        for a in history.attempts
        if (a.card.alters_numerics and a.closed is None) or (a.card.alters_numerics and a.kept is not None)
    ]
    items += [
        (PageLink(a.name, a.page), t(" changes the numerics of the model: an evaluation is due.")) for a in numerics
    ]
    faulty = [
        a for a in history.attempts if a.closed is not None and a.closed.classification.route == "orchestration_fault"
    ]
    items += [(PageLink(a.name, a.page), t(" ended in a fault: its question is not answered.")) for a in faulty[:50]]
    return items


def cost_blocks(history: History, t: Words) -> list[Block]:
    costs = history.stage_costs
    total = sum(c.seconds for c in costs)
    formal = formal_window_seconds(history.study)
    measured = sum(c.seconds for c in costs if c.stage is Stage.MEASURE)
    study = history.study
    elapsed = (study.last_at - study.opened.at).total_seconds()
    rows: list[tuple[Inline, ...]] = [
        (
            t.label(c.stage),
            str(c.attempts),
            duration_figure(c.seconds),
            share_figure(c.seconds / total if total else None),
        )
        for c in costs
    ]
    rows.append((t("all stages"), str(sum(c.attempts for c in costs)), duration_figure(total), share_figure(1.0)))
    return [
        Heading(2, t("Cost"), "cost"),
        Paragraph(
            t(
                "{elapsed} from the first entry to the last. Stages do not nest, so their times add up to {total}; "
                "the remaining {idle} was spent between trials.",
                elapsed=duration_figure(elapsed),
                total=duration_figure(total),
                idle=duration_figure(elapsed - total),
            )
        ),
        Paragraph(_beyond_text(total, formal, measured, t)),
        Table((t("stage"), t("attempts"), t("wall time"), t("share")), tuple(rows), frozenset({1, 2, 3})),
        Paragraph(t("Language model: {n} tokens.", n=study.tokens_used())),
        *_loop_blocks(history, t),
    ]


def _beyond_text(total: float, formal: float, measured: float, t: Words) -> str:
    """Time beyond the formal windows. A simulated client runs in virtual time: there the figure has no meaning."""
    if formal > measured:
        return t(
            "The formal windows hold {formal} of virtual time, more than the clock showed: time beyond them says "
            "nothing about a real pool.",
            formal=duration_figure(formal),
        )
    return t(
        "{formal} was inside a formal window; {beyond} was controller time beyond it, {measure} of that in the "
        "measure stage itself.",
        formal=duration_figure(formal),
        beyond=duration_figure(total - formal),
        measure=duration_figure(measured - formal),
    )


def _loop_blocks(history: History, t: Words) -> list[Block]:
    loop = summarise_loop(history.study, history.entries)
    rows: tuple[tuple[Inline, ...], ...] = (
        (t("cards decided"), t("{n} of {all}", n=loop.decided, all=loop.cards)),
        (t("time from proposal to decision, median"), duration_figure(loop.time_to_decision_median_s)),
        (t("time from proposal to decision, longest"), duration_figure(loop.time_to_decision_max_s)),
        (t("share of decided cards that changed the kept configuration"), share_figure(loop.changed_a_choice)),
        (t("negatives closed by a single run"), share_figure(loop.one_run_negatives)),
        (t("repeated negatives"), str(loop.repeated_negatives)),
        (t("formal loads sent again"), str(loop.resends)),
        (t("trials complete at the first try"), share_figure(loop.first_time_complete)),
        (t("cards that reused the running service (cost class hot)"), str(loop.hot_cards)),
    )
    return [Heading(3, t("The loop itself"), "loop"), Table((t("figure"), t("value")), rows, frozenset({1}))]
