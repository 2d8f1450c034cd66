"""One page per card: what was believed, on which figures, what exactly changed, what came out, and what it decides."""

from __future__ import annotations

from agent.ledger.answer_section import evidence_table
from agent.ledger.document import (
    Block,
    Bullets,
    Code,
    Heading,
    Inline,
    Page,
    PageLink,
    Paragraph,
    Span,
    Strong,
    Table,
)
from agent.ledger.effects import comparison_text, load_text, outcome_label, requests_of
from agent.ledger.figures import (
    change_figure,
    duration_figure,
    interval_figure,
    metric_figure,
    moment,
    share_figure,
    value_text,
)
from agent.ledger.goal_section import goal_line, simulation_banner
from agent.ledger.history import START, START_PAGE, Attempt, History
from agent.ledger.trial_section import file_link, trial_blocks
from agent.ledger.tried_section import decided, outcome
from agent.ledger.words import Words
from experiments.comparison import Comparison
from experiments.ledger import QualityEvaluated, TrialsClassified
from experiments.metric import METRICS
from experiments.serving_config import ServingConfig, diff
from experiments.study import TrialState
from experiments.trial import NOT_OBSERVED, Tier


def card_page(history: History, attempt: Attempt, artifacts: str | None, t: Words) -> Page:
    name = attempt.name
    blocks: list[Block] = [
        *simulation_banner(history, t),
        Paragraph((PageLink(t("← index"), "index"), " · ", outcome(attempt, t), " · ", decided(attempt, t))),
        *_hypothesis_blocks(history, attempt, t),
        Heading(2, t("Evidence"), "evidence"),
        evidence_table(history, attempt, t),
        Heading(2, t("Exact difference"), "difference"),
        _difference(attempt, t),
        *_prediction_blocks(attempt, t),
        *_verdict_blocks(history, attempt, artifacts, t),
        Heading(2, t("Runs of this card"), "runs"),
        *(block for trial in attempt.trials for block in trial_blocks(trial, artifacts, t)),
        *_incumbent_blocks(history, name, artifacts, t),
    ]
    if attempt.kept is not None:
        blocks += [Heading(2, t("Whole configuration"), "configuration"), settings_table(attempt.card.config, t)]
    return Page(path=attempt.page, title=t("Card {name}", name=name), blocks=tuple(blocks))


def start_page(history: History, artifacts: str | None, t: Words) -> Page:
    """The starting configuration and its runs: what the first cards were compared with."""
    blocks: list[Block] = [
        *simulation_banner(history, t),
        Paragraph(
            (PageLink(t("← index"), "index"), " · ", goal_line(history.study.goal, history.study.opened.cards, t))
        ),
        *_incumbent_blocks(history, START, artifacts, t),
        Heading(2, t("Whole configuration"), "configuration"),
        settings_table(history.study.opened.starting, t),
    ]
    return Page(path=START_PAGE, title=t("Starting configuration"), blocks=tuple(blocks))


def _hypothesis_blocks(history: History, attempt: Attempt, t: Words) -> list[Block]:
    card, draft = attempt.card, attempt.card.draft
    rows: list[tuple[Inline, ...]] = [
        (t("single change") if len(draft.change.parts) == 1 else t("declared bundle"), Strong(str(draft.change))),
        (t("of"), _parent_link(history, attempt)),
        (t("wall"), t.label(draft.wall)),
        (t("mechanism"), draft.mechanism),
        (t("if promising"), draft.if_promising),
        (t("if negative"), draft.if_negative),
        (t("cost class"), t.label(card.cost)),
        (t("changes the numerics of the model"), t("yes") if card.alters_numerics else t("no")),
        (t("proposed by"), _source(attempt, t)),
        (t("admitted"), moment(attempt.admitted_at)),
        (t("decided"), _decided_at(attempt, t)),
        (t("card digest"), Code(card.digest)),
        (t("scenario digest"), Code(card.scenario_digest)),
    ]
    return [Heading(2, t("Hypothesis"), "hypothesis"), Table((t("field"), t("value")), tuple(rows))]


def _parent_link(history: History, attempt: Attempt) -> Inline:
    fingerprint = attempt.card.parent_fingerprint
    name = history.names.get(fingerprint)
    return Code(fingerprint) if name is None else PageLink(name, f"cards/{name}")


def _source(attempt: Attempt, t: Words) -> str:
    draft = attempt.card.draft
    text = t.label(draft.source)
    if draft.tokens:
        text += t(", {n} tokens", n=draft.tokens)
    if draft.prompt_digest:
        text += t(", prompt {digest}", digest=draft.prompt_digest)
    return text


def _decided_at(attempt: Attempt, t: Words) -> str:
    if attempt.closed is None:
        return t("not yet")
    waited = (attempt.closed.at - attempt.admitted_at).total_seconds()
    return t("{at}, {waited} after admission", at=moment(attempt.closed.at), waited=duration_figure(waited))


def _difference(attempt: Attempt, t: Words) -> Table:
    rows = tuple(
        (Code(str(c.path)), Code(value_text(c.from_value)), Code(value_text(c.to_value)))
        for c in diff(attempt.card.parent, attempt.card.config)
    )
    return Table((t("setting"), t("parent"), t("card")), rows)


def _prediction_blocks(attempt: Attempt, t: Words) -> list[Block]:
    prediction = attempt.card.draft.prediction
    measured = attempt.comparison(Tier.CONFIRMATION) or attempt.comparison(Tier.SCREENING)
    rows: list[tuple[Inline, ...]] = [
        (t("predicted"), interval_figure(prediction.low, prediction.high)),
        (t("chance given to a gain"), share_figure(prediction.probability)),
        (t("measured"), _measured(measured)),
        (t("inside the prediction"), _inside(prediction.low, prediction.high, measured, t)),
    ]
    return [
        Heading(2, t("Predicted and measured"), "prediction"),
        Table((t("effect on the objective"), t("value")), tuple(rows)),
    ]


def _measured(comparison: Comparison | None) -> str:
    if comparison is None:
        return "NOT_OBSERVED"
    return f"{change_figure(comparison.gain)} {interval_figure(comparison.low, comparison.high)}"


def _inside(low: float, high: float, comparison: Comparison | None, t: Words) -> str:
    if comparison is None:
        return "NOT_OBSERVED"
    return t("yes") if low <= comparison.gain <= high else t("no")


def _verdict_blocks(history: History, attempt: Attempt, artifacts: str | None, t: Words) -> list[Block]:
    blocks: list[Block] = [Heading(2, t("Verdict"), "verdict")]
    if not attempt.phases:
        blocks.append(Paragraph(t("No phase is decided.")))
    for phase in attempt.phases.values():
        blocks += _phase_blocks(history, phase, t)
    if len(attempt.card.draft.change.parts) > 1:
        blocks.append(Paragraph(t("The effect belongs to the combination, not to either part.")))
    return blocks + _quality_blocks(history, attempt, artifacts, t)


def _phase_blocks(history: History, phase: TrialsClassified, t: Words) -> list[Block]:
    classification, comparison = phase.classification, phase.classification.comparison
    head: tuple[Span, ...] = (Strong(t.label(phase.tier)), ": ", outcome_label(classification, t))
    if comparison is None:
        blocks: list[Block] = [Paragraph((*head, " ", classification.explanation))]
    else:
        requests = requests_of(history, phase.trial_ids)
        blocks = [Paragraph((*head, " ", comparison_text(comparison, requests, t), "."))]
        if classification.explanation and classification.reason == "slo_violated":
            blocks.append(Paragraph(classification.explanation))
        blocks.append(_runs_table(history, comparison, t))
        blocks.append(Paragraph(_basis_of_interval(comparison, t)))
    if classification.refusal is not None:
        blocks.append(Bullets(classification.refusal.reasons))
    return blocks


def _basis_of_interval(comparison: Comparison, t: Words) -> str:
    """What the interval was made from; while a comparison is looked at repeatedly it is wider than a single look's."""
    noise = share_figure(comparison.noise_relative_sd)
    text = t("Noise of one run: {sd}; window rule {rule}.", sd=noise, rule=comparison.rule)
    if comparison.planned_pairs is not None:
        text += t(
            " Planned for {n} pairs; the interval allows for every look before that.",
            n=comparison.planned_pairs,
        )
    return text


def _quality_blocks(history: History, attempt: Attempt, artifacts: str | None, t: Words) -> list[Block]:
    evaluations = history.study.evaluations.get(attempt.card.digest, [])
    if not evaluations:
        return []
    rows = tuple((moment(e.at), t(e.outcome.replace("_", " ")), e.detail, _printed(e, artifacts)) for e in evaluations)
    return [
        Heading(3, t("Quality of the outputs")),
        Table((t("evaluated"), t("result"), t("detail"), t("what it printed")), rows),
    ]


def _printed(evaluation: QualityEvaluated, artifacts: str | None) -> Inline:
    if evaluation.log is None or evaluation.evaluation_id is None:
        return NOT_OBSERVED
    return file_link(evaluation.evaluation_id, evaluation.log, artifacts)


def _runs_table(history: History, comparison: Comparison, t: Words) -> Table:
    """Every run that stands behind an interval, with its value, window and N."""
    sides = ((t("incumbent"), comparison.incumbent_trials), (t("card"), comparison.challenger_trials))
    rows: list[tuple[Inline, ...]] = []
    for side, trial_ids in sides:
        rows += [_run_row(history, history.study.trials[i], side, comparison) for i in trial_ids]
    head = (t("side"), t("run"), t("load"), t("requests"), t("duration"), t.metric(comparison.metric))
    return Table(head, tuple(rows), frozenset({3, 4, 5}))


def _run_row(history: History, trial: TrialState, side: str, comparison: Comparison) -> tuple[Inline, ...]:
    trial_id = trial.started.trial_id
    link = history.trial_link(trial_id)
    window = trial.sample.measurement.window(comparison.window) if trial.sample is not None else None
    if window is None:
        return (side, link, load_text(trial), *("NOT_OBSERVED",) * 3)
    value = metric_figure(comparison.metric, METRICS[comparison.metric].read(window))
    return (side, link, load_text(trial), str(window.n_requests), f"{window.duration_s:.2f} s", value)


def _incumbent_blocks(history: History, name: str, artifacts: str | None, t: Words) -> list[Block]:
    runs = history.incumbent_runs.get(name, [])
    if not runs:
        return []
    return [
        Heading(2, t("Runs as the incumbent"), "reference"),
        *(block for trial in runs for block in trial_blocks(trial, artifacts, t)),
    ]


def settings_table(config: ServingConfig, t: Words) -> Table:
    rows = tuple((Code(key), Code(value_text(config.settings[key]))) for key in sorted(config.settings))
    return Table((t("setting"), t("value")), rows)
