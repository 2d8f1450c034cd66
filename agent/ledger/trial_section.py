"""One trial on its card's page: windows side by side, checks, stages with times, faults, and the raw files."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

from agent.ledger.document import Block, Code, FileLink, Heading, Inline, Label, Mood, Paragraph, Table
from agent.ledger.effects import load_text, outcome_label
from agent.ledger.figures import MISSING, Figure, count_figure, duration_figure, figure, moment, size_figure
from agent.ledger.history import Incident, earlier_faults, trial_anchor
from agent.ledger.observed_section import observed_blocks
from agent.ledger.tried_section import repair_text
from agent.ledger.words import Words
from experiments.classification import classify_failure
from experiments.measurement import Measurement, WindowKind, WindowMetrics
from experiments.metric import METRICS, Metric
from experiments.study import TrialState
from experiments.trial import Artifact, TrialRecord

# Names that a link may be made of; any other stands as text only.
_TRIAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,120}(\.[A-Za-z0-9_-]+)*")
_PART_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,120}")


def trial_blocks(trial: TrialState, artifacts: str | None, t: Words) -> list[Block]:
    """`artifacts` is the folder of raw files as seen from the page; None leaves the links out."""
    started, record = trial.started, trial.record
    title = t("Trial {id}: {tier}", id=started.trial_id, tier=t.label(started.tier))
    blocks: list[Block] = [
        Heading(3, title, trial_anchor(started.trial_id)),
        Paragraph((_state(trial, t), f" {load_text(trial)} · {started.why} · {moment(started.at)}")),
    ]
    if trial.held is not None:
        blocks.append(Paragraph(_held_text(trial, t)))
    if record is None:
        return blocks
    if record.measurement is not None:
        blocks += _measurement_blocks(record.measurement, t)
    blocks += _fault_blocks(trial, record, t)
    if record.host_checks:
        answers = "; ".join(record.host_checks)
        blocks.append(Paragraph(t("The installed engine, asked before the launch: {answers}.", answers=answers)))
    if record.sources:
        blocks.append(Paragraph(t("Builds as the servers report them: {sources}.", sources="; ".join(record.sources))))
    if record.adjusted:
        blocks.append(Paragraph(t("Set otherwise by the server: {values}.", values="; ".join(record.adjusted))))
    blocks += observed_blocks(record, t)
    blocks += _stage_blocks(record, t)
    return blocks + _artifact_blocks(record, artifacts, t)


def _state(trial: TrialState, t: Words) -> Label:
    record = trial.record
    if trial.is_held:
        return Label(t("held: end unknown"), Mood.FAULT)
    if record is None:
        return Label(t("running"))
    if record.failure is not None:
        return outcome_label(classify_failure(record), t)
    return Label(t("measured"), Mood.GOOD)


def _held_text(trial: TrialState, t: Words) -> str:
    held, resolved = trial.held, trial.resolved
    if held is None:
        return ""
    text = t("End unknown at stage {stage}: {detail}.", stage=t.label(held.stage), detail=held.detail)
    if resolved is None:
        return text
    settled = t(
        " Settled as {finding} by {by}: {reason}.",
        finding=t.label(resolved.finding),
        by=resolved.by,
        reason=resolved.reason,
    )
    return text + settled


def _measurement_blocks(measurement: Measurement, t: Words) -> list[Block]:
    version = measurement.client_version or "NOT_OBSERVED"
    return [
        window_table(measurement, t),
        Paragraph(
            t(
                "{ok} of {planned} requests succeeded, {failed} failed; {input} input, {output} output and {cached} "
                "cached tokens; accept length {al} over the whole run; {client}, version {version}.",
                ok=measurement.n_succeeded,
                planned=measurement.n_planned,
                failed=measurement.n_failed,
                input=count_figure(measurement.input_tokens),
                output=count_figure(measurement.output_tokens),
                cached=count_figure(measurement.cached_tokens),
                al=figure(measurement.accept_length),
                client=measurement.client,
                version=version,
            )
        ),
        Paragraph((t("Per-request records behind these numbers: sha256 "), Code(measurement.raw_sha256))),
        Table(
            (t("check"), t("result"), t("what it saw")),
            tuple((c.name.replace("_", " "), _check_label(c.passed, t), c.detail) for c in measurement.checks),
        ),
    ]


def _check_label(passed: bool | None, t: Words) -> Label:
    if passed is None:
        return Label("NOT_OBSERVED", Mood.FAULT)
    return Label(t("passed"), Mood.GOOD) if passed else Label(t("failed"), Mood.BAD)


def window_table(measurement: Measurement, t: Words) -> Table:
    """All windows side by side, because a figure of one is never compared with a figure of another."""
    windows = {kind: measurement.window(kind) for kind in WindowKind}
    rows: list[tuple[Inline, ...]] = [
        (t("rule"), *(_or_missing(w, lambda w: w.rule) for w in windows.values())),
        (
            t("meets the floor"),
            *(_or_missing(w, lambda w: t("yes") if w.meets_floor else t("no")) for w in windows.values()),
        ),
        (t("requests"), *(_or_missing(w, lambda w: count_figure(w.n_requests)) for w in windows.values())),
        (t("duration"), *(_or_missing(w, lambda w: figure(w.duration_s, "s")) for w in windows.values())),
    ]
    for metric in METRICS.values():
        if metric.field is not None:
            rows.append((t(metric.label), *(_value(w, metric) for w in windows.values())))
    return Table((t("window"), *(t.label(kind) for kind in windows)), tuple(rows), frozenset({1, 2, 3}))


def _or_missing(window: WindowMetrics | None, read: Callable[[WindowMetrics], str]) -> str:
    return MISSING if window is None else read(window)


def _value(window: WindowMetrics | None, metric: Metric) -> Figure:
    return figure(None if window is None else metric.read(window), metric.unit.symbol)


def _fault_blocks(trial: TrialState, record: TrialRecord, t: Words) -> list[Block]:
    faults = [*earlier_faults(record), *([record.failure] if record.failure is not None else [])]
    if not faults:
        return []
    rows = tuple(
        (
            t.label(fault.stage),
            count_figure(fault.attempt),
            t.label(fault.reason),
            t.label(fault.sent),
            t("the configuration did it")
            if record.configuration_caused and fault == record.failure
            else repair_text(Incident(trial=trial, fault=fault, ended_trial=fault == record.failure), t),
            fault.detail,
        )
        for fault in faults
    )
    head = (t("stage"), t("attempt"), t("reason"), t("formal load sent"), t("repair"), t("detail"))
    return [Table(head, rows, frozenset({1}))]


def _stage_blocks(record: TrialRecord, t: Words) -> list[Block]:
    if not record.stages:
        return []
    rows = tuple(
        (t.label(s.stage), count_figure(s.attempt), moment(s.began), duration_figure(s.seconds), s.note)
        for s in record.stages
    )
    total = duration_figure(sum(s.seconds for s in record.stages))
    return [
        Table((t("stage"), t("attempt"), t("began"), t("wall time"), t("note")), rows, frozenset({1, 3})),
        Paragraph(t("Stages together: {total}.", total=total)),
    ]


def _artifact_blocks(record: TrialRecord, artifacts: str | None, t: Words) -> list[Block]:
    if not record.artifacts:
        return []
    rows = tuple(
        (file_link(record.trial_id, a, artifacts), size_figure(a.size), Code(a.sha256)) for a in record.artifacts
    )
    return [Table((t("raw file"), t("size"), "sha256"), rows, frozenset({1}))]


def file_link(trial_id: str, artifact: Artifact, artifacts: str | None) -> Inline:
    """The raw file's name, linked where the folder of raw files is known."""
    href = None if artifacts is None else artifact_href(artifacts, trial_id, artifact.name)
    return Code(artifact.name) if href is None else FileLink(artifact.name, href)


def artifact_href(artifacts: str, trial_id: str, name: str) -> str | None:
    """The link to one raw file; None for a name that could lead anywhere else."""
    parts = name.split("/")
    if not _TRIAL_NAME.fullmatch(trial_id) or not all(_PART_NAME.fullmatch(part) for part in parts):
        return None
    return f"{artifacts}/{quote(trial_id)}/{quote(name)}"
