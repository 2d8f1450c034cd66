"""`tuneloop status` and `show`: what runs, why it waits, whether the machines may be taken, and single items."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from agent.entrypoints.console import printable
from agent.records import open_for_reading
from agent.status_report import Running, StatusReport, held_advice, read_report
from agent.workspace import Workspace
from executor.clock import SystemClock
from experiments.errors import InputError
from experiments.trial import NOT_OBSERVED
from state.views import CardRow, TrialRow

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

WIDTH = 110


def describe_status(root: Path, *, colour: bool = False) -> str:
    """As a table of two columns, and the stages of the running trial below it."""
    from rich.console import Console, Group
    from rich.table import Table

    workspace = Workspace(root.resolve())
    with open_for_reading(workspace) as record:
        report = read_report(record, SystemClock().now())
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(report):
        table.add_row(name, text)
    parts: list[RenderableType] = [table]
    if report.running is not None:
        parts.append(_stages(report.running))
    console = Console(file=StringIO(), width=WIDTH, force_terminal=colour, no_color=not colour, highlight=False)
    with console.capture() as capture:
        console.print(Group(*parts))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    if report.study.held_trial_id is not None:
        lines += ["", held_advice(report.study.held_trial_id, _held_detail(report))]
    return "\n".join(lines)


def _rows(report: StatusReport) -> Iterator[tuple[str, Text]]:
    from rich.text import Text

    study, cards = report.study, report.cards
    simulated = "  (SIMULATED pool)" if study.simulated else f"  on pool {study.pool}"
    may_take, why = report.may_take
    plain = {
        "study": f"{study.id}{simulated}",
        "control": _control(report),
        "driver": report.driver.owner if report.driver is not None else "nobody: no service drives this study",
        "now": _now(report),
        "next": _next(report),
        "queue": _queue(report.open_card),
        "incumbent": _incumbent(report),
        "cards": f"{cards.closed} closed, {cards.kept} kept; {study.trials} trials",
        "budget": _budget(report),
        "last": _last(report.last),
    }
    for name, text in plain.items():
        yield name, Text(printable(text))
    yield (
        "machines",
        Text.assemble(
            ("safe to take: yes" if may_take else "NOT safe to take", "bold green" if may_take else "bold red"),
            printable(f"; {why}"),
        ),
    )


def _control(report: StatusReport) -> str:
    reading = report.control
    if reading.problem is not None:
        return f"PAUSED: {reading.problem}"
    state = reading.state
    until = state.authorized_until.isoformat(timespec="minutes") if state.authorized_until else "not set"
    reason = f" ({state.reason})" if state.reason else ""
    only = f", only {state.only.card}" if state.only is not None else ""
    return f"{state.mode}{only}, by {state.by}{reason}; the machines are lent until {until}"


def _now(report: StatusReport) -> str:
    if report.study.held_trial_id is not None:
        return f"HELD: the end of trial {report.study.held_trial_id} is unknown"
    if report.study.stop_reason is not None:
        return f"ended ({report.study.stop_reason}): {report.study.stop_detail}"
    if report.running is None:
        return f"waits: {report.waiting}" if report.waiting else "between two trials"
    trial = report.running.trial
    return f"trial {trial.trial_id} ({trial.tier}: {trial.why}): {_progress(report)}; ends {_eta(report.running)}"


def _progress(report: StatusReport) -> str:
    """The stage of the journal, with the driver's own words about it; older words are about an earlier one."""
    lines = report.running.stages if report.running is not None else ()
    stage = next((str(line.stage) for line in lines if line.is_running), "between two stages")
    told = str(report.told.get("running") or "").partition(": ")[2] if report.is_fresh else ""
    return told if told.startswith(stage) else stage


def _eta(running: Running) -> str:
    return f"in about {_duration(running.eta_s)}" if running.eta_s is not None else NOT_OBSERVED


def _next(report: StatusReport) -> str:
    if report.is_fresh and report.told.get("next"):
        return str(report.told["next"])
    return NOT_OBSERVED + ": the service says it, and none does now"


def _queue(card: CardRow | None) -> str:
    if card is None:
        return "empty: the next card is asked for when it can be run"
    return f"{card.name} ({card.digest[:12]}, {card.cost}): {card.from_value} → {card.to_value}"


def _incumbent(report: StatusReport) -> str:
    digest = report.study.incumbent_card
    return f"card {digest[:12]}, kept" if digest is not None else "the baseline"


def _budget(report: StatusReport) -> str:
    budget = report.budget
    tokens = report.told.get("tokens_used")
    parts = [
        f"{report.trials_left} of {budget.trials} trials left",
        f"{report.hours_left:.1f} of {budget.hours:g} h left",
    ]
    if budget.llm_tokens:
        left = f"{max(0, budget.llm_tokens - tokens):,}" if isinstance(tokens, int) else NOT_OBSERVED
        parts.append(f"{left} of {budget.llm_tokens:,} tokens left")
    if budget.llm_cost is not None:
        cost = report.told.get("llm_cost")
        left = f"{max(0.0, budget.llm_cost - cost):.2f}" if isinstance(cost, int | float) else NOT_OBSERVED
        parts.append(f"{left} of {budget.llm_cost:g} left for the language model")
    return ", ".join(parts)


def _last(trial: TrialRow | None) -> str:
    if trial is None:
        return "no trial has ended yet"
    name = trial.card_name or "incumbent"
    if trial.route is None:
        return f"{trial.trial_id} ({name}): not judged yet"
    return f"{trial.trial_id} ({name}): {trial.route} ({trial.reason}): {trial.explanation or ''}"


def _stages(running: Running) -> RenderableType:
    from rich.table import Table

    table = Table(title=f"stages of {running.trial.trial_id}", title_justify="left", box=None)
    for heading, justify in (("stage", "left"), ("took", "right"), ("usually", "right"), ("", "left")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for line in running.stages:
        took = _duration(line.took_s) if line.took_s is not None else ""
        usual = _duration(line.expected_s) if line.expected_s is not None else NOT_OBSERVED
        table.add_row(str(line.stage), took, usual, "runs" if line.is_running else "")
    return table


def _held_detail(report: StatusReport) -> str:
    return (report.running.trial.detail or "") if report.running is not None else ""


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 60 else f"{seconds:.1f} s"


def show_item(root: Path, wanted: str) -> str:
    """A card by number, name or digest; a trial by its id or the end of it."""
    from agent.entrypoints.operate import cards_called, read_study

    workspace = Workspace(root.resolve())
    study = read_study(workspace)
    card = next(iter(cards_called(study, wanted)), None)
    if card is not None:
        page = workspace.ledger / "cards" / f"{card.name}.md"
        return page.read_text(encoding="utf-8") if page.exists() else card.model_dump_json(indent=2)
    for trial_id, state in study.trials.items():
        if trial_id == wanted or trial_id.endswith(f"-{wanted}"):
            record = state.record
            return state.started.model_dump_json(indent=2) if record is None else record.model_dump_json(indent=2)
    names = ", ".join([*(c.name for c in study.cards.values()), *study.trials])
    raise InputError("show", 0, 0, f"{wanted!r} is neither a card nor a trial; there are {names}")
