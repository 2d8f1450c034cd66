"""The noise floor, what is still open, and what it all cost."""

from __future__ import annotations

import math
from collections import defaultdict

from agent.ledger.costs import formal_window_seconds, loop_figures, stage_costs
from agent.ledger.document import Block, Bullets, Heading, Inline, PageLink, Paragraph, Table
from agent.ledger.effects import load_text
from agent.ledger.figures import duration_figure, figure, share_figure
from agent.ledger.history import History, fingerprint_of
from agent.ledger.words import Words
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.study import TrialState
from experiments.trial import Stage, TrialLoad
from experiments.verdict import noise_of

MAX_GROUPS = 20


def noise_blocks(history: History, t: Words) -> list[Block]:
    goal = history.study.goal
    metric = goal.objective.metric
    kinds = dict.fromkeys((goal.objective.window, goal.screening.window))
    blocks: list[Block] = [
        Heading(2, t("Noise floor"), "noise"),
        Paragraph(
            t(
                "Relative standard deviation of one run, pooled over repeats of one configuration at one load; the "
                "assumption of the goal ({assumed}) counts for two degrees of freedom.",
                assumed=share_figure(goal.noise.assumed),
            )
        ),
    ]
    for kind in kinds:
        noise = noise_of(history.study, metric, kind)
        blocks.append(
            Paragraph(
                t(
                    "{window} window: {sd} from {runs} repeated runs ({df:.0f} degrees of freedom).",
                    window=t.label(kind),
                    sd=share_figure(noise.relative_sd),
                    runs=noise.repeats,
                    df=noise.df,
                )
            )
        )
        rows = _repeat_rows(history, metric, kind, t)
        if rows:
            head = (t("configuration"), t("load"), t("runs"), t("mean"), t("spread (sd / mean)"))
            blocks.append(Table(head, tuple(rows[:MAX_GROUPS]), frozenset({2, 3, 4})))
    return blocks


def _repeat_rows(history: History, metric: str, kind: WindowKind, t: Words) -> list[tuple[Inline, ...]]:
    groups: dict[tuple[str, TrialLoad], list[TrialState]] = defaultdict(list)
    for trial in history.study.trials.values():
        if trial.sample is not None:
            groups[fingerprint_of(trial), trial.started.load].append(trial)
    rows: list[tuple[Inline, ...]] = []
    for (fingerprint, _), runs in groups.items():
        values = [v for run in runs if (v := _value(run, metric, kind)) is not None]
        if len(values) < 2:
            continue
        mean = math.fsum(values) / len(values)
        sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
        name = PageLink(history.names[fingerprint], history.pages[runs[0].started.trial_id])
        rows.append((name, load_text(runs[0]), str(len(values)), figure(mean), share_figure(sd / mean)))
    return rows


def _value(trial: TrialState, metric: str, kind: WindowKind) -> float | None:
    window = trial.sample.measurement.window(kind) if trial.sample is not None else None
    return None if window is None else METRICS[metric].read(window)


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
    if study.stopped is not None:
        items.append(
            t(
                "The study stopped: {reason}. {detail}",
                reason=t.label(study.stopped.reason),
                detail=study.stopped.detail,
            )
        )
    return items + _open_questions(history, t)


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
    costs = stage_costs(history)
    total = sum(c.seconds for c in costs)
    formal = formal_window_seconds(history)
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
    loop = loop_figures(history)
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
