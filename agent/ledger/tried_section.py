"""What was tried and why it ended: one row per card; faults apart, because they say nothing about a configuration."""

from __future__ import annotations

from agent.ledger.document import Block, Brief, Code, Heading, Inline, Label, Mood, PageLink, Paragraph, Span, Table
from agent.ledger.effects import outcome_label, tier_effect
from agent.ledger.history import Attempt, History, Incident
from agent.ledger.words import Words
from experiments.ledger import CardRejected
from experiments.trial import Reason, Route, Tier

MAX_REJECTED = 200
_TOLD_BY_EFFECT = frozenset({Reason.GAIN, Reason.SLOWER, Reason.NO_SIGNIFICANT_GAIN, Reason.NOT_EXCLUDED})


def tried_blocks(history: History, t: Words) -> list[Block]:
    head = (
        t("card"),
        t("change"),
        t("wall and mechanism"),
        t("screening effect"),
        t("confirmation effect"),
        t("outcome"),
        t("what it decides"),
    )
    rows = tuple(_row(history, attempt, t) for attempt in history.attempts)
    blocks: list[Block] = [Heading(2, t("What was tried"), "tried")]
    if not rows:
        return [*blocks, Paragraph(t("No card was run."))]
    return [*blocks, Table(head, rows)]


def _row(history: History, attempt: Attempt, t: Words) -> tuple[Inline, ...]:
    draft = attempt.card.draft
    return (
        PageLink(attempt.name, attempt.page),
        str(draft.change),
        (t.label(draft.wall), ": ", Brief(draft.mechanism)),
        tier_effect(attempt, Tier.SCREENING, history, t),
        tier_effect(attempt, Tier.CONFIRMATION, history, t),
        _outcome_cell(attempt, t),
        decided(attempt, t),
    )


def _outcome_cell(attempt: Attempt, t: Words) -> Inline:
    """The outcome; where no effect says why, the reason in the classifier's words."""
    label = outcome(attempt, t)
    closed = attempt.closed
    if closed is None or closed.classification.reason in _TOLD_BY_EFFECT:
        return label
    return (label, " ", Brief(closed.classification.explanation))


def outcome(attempt: Attempt, t: Words) -> Label:
    if attempt.closed is not None:
        return outcome_label(attempt.closed.classification, t, kept=attempt.closed.kept)
    if any(trial.is_held for trial in attempt.trials):
        return Label(t("held: end unknown"), Mood.FAULT)
    return Label(t("open"))


def decided(attempt: Attempt, t: Words) -> Span:
    """The decision that this outcome led to, in the words of the card."""
    closed = attempt.closed
    if closed is None:
        return t("nothing yet")
    match closed.classification.route:
        case Route.ORCHESTRATION_FAULT:
            return t("nothing about the configuration; it may be tried again")
        case Route.VALID_NEGATIVE:
            return Brief(attempt.card.draft.if_negative)
        case Route.PROMISING:
            return t("the incumbent changed")


def fault_blocks(history: History, t: Words) -> list[Block]:
    incidents = history.incidents()
    blocks: list[Block] = [
        Heading(2, t("Faults"), "faults"),
        Paragraph(t("A fault is never a number: none of these counts for or against a configuration.")),
    ]
    if not incidents:
        return [*blocks, Paragraph(t("None."))]
    head = (
        t("trial"),
        t("card"),
        t("stage"),
        t("attempt"),
        t("reason"),
        t("formal load sent"),
        t("repair"),
        t("detail"),
    )
    return [*blocks, Table(head, tuple(_fault_row(history, i, t) for i in incidents), frozenset({3}))]


def _fault_row(history: History, incident: Incident, t: Words) -> tuple[Inline, ...]:
    started, fault = incident.trial.started, incident.fault
    attempt = history.attempt(started.card_digest)
    name = history.name_of(started.config) if attempt is None else attempt.name
    return (
        history.trial_link(started.trial_id),
        name,
        t.label(fault.stage),
        str(fault.attempt),
        Label(t.label(fault.reason), Mood.FAULT),
        t.label(fault.sent),
        repair_text(incident, t),
        fault.detail,
    )


def repair_text(incident: Incident, t: Words) -> str:
    if incident.fault.repaired:
        return t("repaired: {how}", how=incident.fault.repair or t("a later attempt of the stage succeeded"))
    return t("not repaired; it ended the trial") if incident.ended_trial else t("not repaired")


def refused_blocks(history: History, t: Words) -> list[Block]:
    """Drafts that admission refused and proposers that gave no answer: neither cost a run."""
    study = history.study
    if not study.rejected and not study.proposer_failures:
        return []
    blocks: list[Block] = [Heading(2, t("Refused before running"), "refused")]
    if study.rejected:
        head = (t("proposed by"), t("change"), t("reason"))
        rows = tuple(_refused_row(r, t) for r in study.rejected[-MAX_REJECTED:])
        blocks.append(Table(head, rows))
        if len(study.rejected) > MAX_REJECTED:
            more = len(study.rejected) - MAX_REJECTED
            blocks.append(Paragraph(t("{n} earlier ones are in experiments.json.", n=more)))
    if study.proposer_failures:
        n = len(study.proposer_failures)
        last = study.proposer_failures[-1]
        blocks.append(
            Paragraph(
                t(
                    "A proposer gave no usable answer {n} times; the last was {source}: {detail}.",
                    n=n,
                    source=t.label(last.source),
                    detail=last.detail,
                )
            )
        )
    return blocks


def _refused_row(rejected: CardRejected, t: Words) -> tuple[Inline, ...]:
    codes = Code(", ".join(rejected.codes))
    return (t.label(rejected.draft.source), str(rejected.draft.change), (codes, " ", "; ".join(rejected.messages)))
