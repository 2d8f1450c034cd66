"""The noise floor and how it was measured, and whether the pool held still."""

from __future__ import annotations

import math
from collections import defaultdict

from agent.ledger.document import Block, Bullets, Heading, Inline, PageLink, Paragraph, Span, Table
from agent.ledger.effects import load_text
from agent.ledger.figures import change_figure, figure, share_figure
from agent.ledger.history import History, fingerprint_of
from agent.ledger.words import Words
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.study import TrialState
from experiments.trial import TrialLoad
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
    return blocks + _shift_blocks(history, t)


def _shift_blocks(history: History, t: Words) -> list[Block]:
    """Shifts of the pool: from each on, only later runs are compared with one another."""
    drift = history.study.drift
    known = [(shift, t("shown by two runs")) for shift in drift.shifts]
    if drift.suspected is not None:
        known.append((drift.suspected, t("suspected; nothing is kept until it is settled")))
    if not known:
        return [Paragraph(t("No drift of the pool was seen in the incumbent's own runs."))]
    items = [
        (
            t(
                "N={n}, C={c}: {change} against its own earlier runs, ",
                n=s.load.requests,
                c=s.load.concurrency,
                change=change_figure(s.change),
            ),
            state,
            ": ",
            *_with_commas([history.trial_link(trial_id) for trial_id in s.trial_ids]),
        )
        for s, state in known
    ]
    return [Paragraph(t("Drift of the pool:")), Bullets(tuple(items))]


def _with_commas(links: list[PageLink]) -> list[Span]:
    spans: list[Span] = []
    for link in links:
        spans += [", ", link] if spans else [link]
    return spans


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
