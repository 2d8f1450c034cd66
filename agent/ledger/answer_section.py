"""The answer in three lines, how to launch it, and the evidence that led to it."""

from __future__ import annotations

from urllib.parse import quote

from agent.ledger.document import Block, Bullets, Code, FileLink, Heading, Inline, PageLink, Paragraph, Strong, Table
from agent.ledger.effects import comparison_text, requests_of
from agent.ledger.figures import change_figure, count_figure, figure, metric_figure, value_text
from agent.ledger.history import START_PAGE, Attempt, History, mean_of
from agent.ledger.words import Words
from experiments.comparison import Comparison
from experiments.ledger import ConfigurationKept
from experiments.metric import METRICS
from experiments.serving_config import ServingConfig, diff
from experiments.study import TrialState
from experiments.tier_load import load_of
from experiments.trial import Tier


def answer_blocks(history: History, t: Words) -> list[Block]:
    kept = history.study.kept
    lines = _kept_lines(history, kept[-1], t) if kept else _nothing_lines(history, t)
    return [Heading(2, t("Answer"), "answer"), Bullets(tuple(lines))]


def _kept_lines(history: History, kept: ConfigurationKept, t: Words) -> list[Inline]:
    attempt = history.attempt(kept.card_digest)
    if attempt is None:
        return []
    comparison = attempt.comparison(Tier.CONFIRMATION)
    lines: list[Inline] = [
        (
            Strong(t("Keep {name}: {change}.", name=kept.name, change=attempt.card.draft.change)),
            " ",
            PageLink(t("card"), attempt.page),
        )
    ]
    if comparison is not None:
        requests = requests_of(history, kept.trial_ids)
        lines.append((comparison_text(comparison, requests, t), ". ", *_window_text(history, comparison, t)))
    lines.append(_goal_met(history, [history.study.trials[i] for i in kept.trial_ids], t))
    if len(history.study.kept) > 1:
        lines.append(_together(history, t))
    return lines


def _window_text(history: History, comparison: Comparison, t: Words) -> tuple[str | PageLink, ...]:
    """Requests and seconds of every window behind the kept figure."""
    spans: list[str | PageLink] = [t("Windows: ")]
    for trial_id in comparison.challenger_trials:
        trial = history.study.trials[trial_id]
        window = trial.sample.measurement.window(comparison.window) if trial.sample is not None else None
        if window is None:
            continue
        spans.append(history.trial_link(trial_id))
        spans.append(
            t(" {n} requests over {s:.2f} s; ", n=window.n_requests, s=window.duration_s),
        )
    if isinstance(spans[-1], str):
        spans[-1] = spans[-1].removesuffix("; ") + "."
    return tuple(spans)


def _goal_met(history: History, runs: list[TrialState], t: Words) -> str:
    """Target and constraints against the mean of the confirmation runs, in the window of the objective."""
    goal, kind = history.study.goal, history.study.goal.objective.window
    parts = []
    if goal.objective.target is not None:
        of = goal.objective.of
        value = None if of.field is None else mean_of(runs, of.field, kind)
        bound = goal.objective.target
        shown = metric_figure(of.id, value)
        parts.append(f"{of.id} {bound.text(of.unit)}: {shown}, {_held(bound.holds(value), t)}")
    for constraint in goal.constraints:
        of = METRICS[constraint.metric]
        value = failed_of(runs) if of.field is None else mean_of(runs, of.field, kind)
        shown = metric_figure(constraint.metric, value)
        parts.append(f"{constraint}: {shown}, {_held(constraint.bound.holds(value), t)}")
    quality = history.study.kept[-1].quality
    parts.append(t("quality: {state}", state=t(quality.replace("_", " "))))
    return (
        t("Against the goal ({window} window, mean of {n} runs): ", window=t.label(kind), n=len(runs))
        + "; ".join(parts)
        + "."
    )


def failed_of(runs: list[TrialState]) -> float | None:
    """The mean number of failed requests of the runs that were measured."""
    counts = [float(r.sample.measurement.n_failed) for r in runs if r.sample is not None]
    return sum(counts) / len(counts) if counts else None


def _held(holds: bool | None, t: Words) -> str:
    return t("NOT_OBSERVED") if holds is None else t("met") if holds else t("not met")


def _together(history: History, t: Words) -> str:
    """From the start to the last keep. Several changes: the combination gets the credit, no single one."""
    study, objective = history.study, history.study.goal.objective
    field, kind = objective.of.field or "", objective.window
    ends = []
    for config in (study.opened.starting, study.kept[-1].config):
        load = load_of(study, config, Tier.CONFIRMATION)
        ends.append(mean_of([study.trials[s.trial_id] for s in study.samples(config, load)], field, kind))
    before, after = ends
    gain = None
    if before is not None and after is not None and before > 0 and after > 0:
        gain = after / before - 1 if objective.of.maximise else before / after - 1
    return t(
        "All {n} kept changes together: {metric} {before} → {after} ({gain}; {window} window, N={requests}). "
        "The figure belongs to the combination, not to any one change.",
        n=len(study.kept),
        metric=t.metric(objective.metric),
        before=metric_figure(objective.metric, before),
        after=metric_figure(objective.metric, after),
        gain=change_figure(gain),
        window=t.label(kind),
        requests=study.goal.scenario.load.requests,
    )


def _nothing_lines(history: History, t: Words) -> list[Inline]:
    study, objective = history.study, history.study.goal.objective
    load = load_of(study, study.opened.starting, Tier.CONFIRMATION)
    runs = [study.trials[s.trial_id] for s in study.samples(study.opened.starting, load)]
    value = mean_of(runs, objective.of.field or "", objective.window)
    stopped = study.stopped
    return [
        (Strong(t("Nothing was kept: the starting configuration stands.")), " ", PageLink(t("its runs"), START_PAGE)),
        t(
            "It reaches {metric} {value} ({window} window, N={n}, {runs} runs).",
            metric=t.metric(objective.metric),
            value=metric_figure(objective.metric, value),
            window=t.label(objective.window),
            n=load.requests,
            runs=len(runs),
        ),
        t("The study goes on.")
        if stopped is None
        else t("The study stopped: {reason}. {detail}", reason=t.label(stopped.reason), detail=stopped.detail),
    ]


def launch_blocks(history: History, folder: str | None, t: Words) -> list[Block]:
    """What to set, and where the whole configuration is stored: `folder` as seen from the index."""
    study = history.study
    if not study.kept:
        return []
    kept = study.kept[-1]
    blocks: list[Block] = [Heading(2, t("How to launch it"), "launch")]
    attempt = history.attempt(kept.card_digest)
    if folder is not None and attempt is not None and attempt.name == attempt.card.name:
        file = FileLink(f"{kept.name}.yaml", f"{folder}/{quote(kept.name)}.yaml")
        blocks.append(Paragraph((t("The whole configuration is stored in "), file, ".")))
    blocks.append(Paragraph(t("Settings that differ from the start:")))
    blocks.append(_difference(study.opened.starting, kept.config, t))
    if attempt is not None:
        where = PageLink(t("all settings of the kept configuration"), attempt.page, "configuration")
        blocks.append(Paragraph((t("Everything else is as it was: "), where, ".")))
    return blocks


def _difference(before: ServingConfig, after: ServingConfig, t: Words) -> Table:
    rows = tuple(
        (Code(str(c.path)), Code(value_text(c.from_value)), Code(value_text(c.to_value))) for c in diff(before, after)
    )
    return Table((t("setting"), t("start"), t("kept")), rows)


def why_blocks(history: History, t: Words) -> list[Block]:
    """The figures of the incumbent on which each kept card was proposed."""
    kept = [a for k in history.study.kept if (a := history.attempt(k.card_digest)) is not None]
    if not kept:
        return []
    blocks: list[Block] = [Heading(2, t("Evidence that led to it"), "evidence")]
    for attempt in kept:
        draft = attempt.card.draft
        blocks.append(
            Paragraph(
                (
                    PageLink(attempt.name, attempt.page),
                    ": ",
                    t("wall: {wall}", wall=t.label(draft.wall)),
                    ". ",
                    draft.mechanism,
                )
            )
        )
        blocks.append(evidence_table(history, attempt, t))
    return blocks


def evidence_table(history: History, attempt: Attempt, t: Words) -> Table:
    """The figures a card cites, beside what the servers showed in the run that they come from."""
    source = history.evidence_run(attempt.card.parent_fingerprint, attempt.admitted_at)
    observed = {} if source is None else history.observations(source)
    rows = []
    for ref in attempt.card.draft.evidence:
        run: Inline = "NOT_OBSERVED"
        if source is not None and ref.id in observed:
            trial_id = source.started.trial_id
            run = history.trial_link(trial_id)
        n = observed.get(ref.id)
        rows.append((Code(ref.id), figure(ref.value), count_figure(n), run))
    return Table(
        (t("figure of the incumbent"), t("value"), t("observations"), t("run")), tuple(rows), frozenset({1, 2})
    )
