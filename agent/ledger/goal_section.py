"""The top of the index: what was asked, in which scenario, and whether the numbers come from real machines."""

from __future__ import annotations

from agent.ledger.document import Banner, Block, Heading, Paragraph, Strong, Table
from agent.ledger.figures import moment, rate_text, share_figure
from agent.ledger.history import History
from agent.ledger.words import Words
from experiments.goal import Goal
from experiments.scenario import CacheState


def simulation_banner(history: History, t: Words) -> list[Block]:
    if not history.simulated:
        return []
    return [Banner(t("SIMULATED POOL — no number on this page was measured on hardware"))]


def goal_blocks(history: History, t: Words) -> list[Block]:
    opened = history.study.opened
    return [
        *simulation_banner(history, t),
        Paragraph(
            t(
                "Study {study} on pool {pool}, as of {at}: {cards} cards, {trials} trials, {entries} ledger entries.",
                study=opened.study_id,
                pool=opened.pool,
                at=moment(history.study.last_at),
                cards=len(history.attempts),
                trials=len(history.study.trials),
                entries=len(history.entries),
            )
        ),
        Heading(2, t("Goal"), "goal"),
        Paragraph(Strong(goal_line(opened.goal, opened.cards, t))),
        Table((t("Scenario"), ""), tuple(_scenario_rows(history, t))),
    ]


def goal_line(goal: Goal, cards: int, t: Words) -> str:
    """The goal in one sentence, limits included."""
    objective = goal.objective
    limits = t(" and ").join(str(c) for c in goal.constraints) or t("no constraint")
    target = ""
    if objective.target is not None:
        target = t(", target {bound}", bound=objective.target.text(objective.of.unit))
    sentence = "Maximise {metric} ({window} window{target}) subject to {limits}; per card = divided by {cards} cards."
    if not objective.of.maximise:
        sentence = (
            "Minimise {metric} ({window} window{target}) subject to {limits}; per card = divided by {cards} cards."
        )
    return t(
        sentence,
        metric=t.metric(objective.metric),
        window=t.label(objective.window),
        target=target,
        limits=limits,
        cards=cards,
    )


def _scenario_rows(history: History, t: Words) -> list[tuple[str, str]]:
    opened, goal = history.study.opened, history.study.goal
    scenario, load, floor = goal.scenario, goal.scenario.load, goal.window_floor
    return [
        (t("model"), scenario.model),
        (t("deployment"), scenario.deployment),
        (
            t("input"),
            t(
                "{body} tokens of body, {encoded} as encoded, {task} task",
                body=scenario.input.body_tokens,
                encoded=scenario.input.encoded_tokens,
                task=scenario.input.task,
            ),
        ),
        (t("output"), t("exactly {n} tokens", n=scenario.output_tokens)),
        (t("prefix cache"), _cache_text(scenario.cache, t)),
        (
            t("formal load"),
            f"{load.client}, N={load.requests}, C={load.concurrency}, r={rate_text(load.rate)}, "
            + t("{n} warm-up requests, seed {seed}", n=load.warmup, seed=load.seed),
        ),
        (
            t("screening"),
            t(
                "N={n}, judged in the {window} window",
                n=goal.screening.requests,
                window=t.label(goal.screening.window),
            ),
        ),
        (
            t("window floor"),
            t("at least {n} requests and {s:g} s", n=floor.requests, s=floor.seconds),
        ),
        (t("native window rule"), goal.native_rule),
        (t("scenario digest"), opened.scenario_digest[:16]),
    ]


def _cache_text(cache: CacheState, t: Words) -> str:
    if cache.state == "zero":
        return t("zero: no request may reuse a prefix")
    return t(
        "warm: every request reaches at least {share}; {seed} seed and {check} check requests",
        share=share_figure(cache.per_request_min),
        seed=cache.seed_requests,
        check=cache.check_requests,
    )
