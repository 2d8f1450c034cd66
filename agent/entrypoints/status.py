"""`tuneloop status` and `show`: what runs, why it waits, whether the machines may be taken, and single items."""

from __future__ import annotations

from pathlib import Path

from agent.bootstrap import Application
from agent.entrypoints.operate import read_study
from agent.workspace import Workspace
from executor.clock import SystemClock
from experiments.agenda import Close, Continue, Hold, Measure, Propose, Step, Stop, next_step
from experiments.errors import InputError
from experiments.study import Study
from state.control import ControlFile, write_status


def describe_status(root: Path) -> str:
    workspace = Workspace(root.resolve())
    study, now = read_study(workspace), SystemClock().now()
    reading = ControlFile(workspace.control_file).read()
    step = next_step(study, now)
    budget = study.goal.budget
    used = (now - study.opened.at).total_seconds() / 3600
    lines = [
        f"study      {study.study_id}" + ("  (SIMULATED pool)" if study.opened.simulated else ""),
        f"control    {reading.problem or f'{reading.state.mode}, by {reading.state.by} {reading.state.reason}'}",
        f"next       {describe_step(step)}",
        f"incumbent  {study.kept[-1].name if study.kept else 'the baseline'}",
        f"cards      {len(study.closed)} closed, {len(study.kept)} kept" + _open_card(study),
        f"budget     {len(study.trials)} of {budget.trials} trials, {used:.1f} of {budget.hours:g} h",
        f"last       {_last(study)}",
        f"machines   {machines_sentence(study, step)}",
    ]
    return "\n".join(lines)


def describe_step(step: Step) -> str:
    match step:
        case Measure():
            return f"{step.tier}: {step.why}"
        case Continue():
            return f"trial {step.trial_id} is under way"
        case Propose():
            return "ask the proposers for a card"
        case Close():
            return f"close the {step.tier} of card {step.card.name}"
        case Hold():
            return f"HELD: the end of trial {step.trial_id} is unknown: {step.detail}"
        case Stop():
            return f"ended ({step.reason}: {step.detail})"


def machines_sentence(study: Study, step: Step) -> str:
    """Whether somebody may take the machines now, and if not, why."""
    if isinstance(step, Hold):
        return "NOT safe to take: a load may still run on them"
    if study.open_trial is not None:
        return "NOT safe to take: a trial is under way (tuneloop pause, then wait for its end)"
    if isinstance(step, Stop):
        return "safe to take: the study ended and its servers were ended"
    return "safe to take between two trials while paused; servers may be up"


def _open_card(study: Study) -> str:
    card = study.open_card
    return f", open: {card.name} ({card.digest[:12]}, {card.cost})" if card is not None else ""


def _last(study: Study) -> str:
    if not study.phases:
        return "no card was judged yet"
    phase = study.phases[-1]
    card = study.cards.get(phase.card_digest or "")
    name = card.name if card is not None else "incumbent"
    return f"{name}: {phase.classification.route} ({phase.classification.reason})"


def write_status_file(application: Application, waiting: str) -> None:
    """The short reply to the operator's file."""
    study = application.store.read()
    step = next_step(study, application.clock.now())
    reading = application.authority.read()
    write_status(
        application.workspace.status_file,
        {
            "study": study.study_id,
            "mode": str(reading.state.mode),
            "problem": reading.problem or "",
            "next": describe_step(step),
            "waiting": waiting,
            "machines": machines_sentence(study, step),
            "simulated": study.opened.simulated,
            "at": application.clock.now().isoformat(timespec="seconds"),
        },
    )


def show_item(root: Path, wanted: str) -> str:
    """A card by number, name or digest; a trial by its id or the end of it."""
    workspace = Workspace(root.resolve())
    study = read_study(workspace)
    for digest, card in study.cards.items():
        if wanted in (card.name, card.name.split("-")[0]) or (len(wanted) >= 8 and digest.startswith(wanted)):
            page = workspace.ledger / "cards" / f"{card.name}.md"
            return page.read_text(encoding="utf-8") if page.exists() else card.model_dump_json(indent=2)
    for trial_id, state in study.trials.items():
        if trial_id == wanted or trial_id.endswith(f"-{wanted}"):
            record = state.record
            return state.started.model_dump_json(indent=2) if record is None else record.model_dump_json(indent=2)
    names = ", ".join([*(c.name for c in study.cards.values()), *study.trials])
    raise InputError("show", 0, 0, f"{wanted!r} is neither a card nor a trial; there are {names}")
