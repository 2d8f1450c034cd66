"""What an operator says: pause, resume, stop and approve go to the control file, resolve and reopen to the ledger."""

from __future__ import annotations

import getpass
from pathlib import Path

from agent.records import open_for_reading
from agent.workspace import Workspace
from executor.clock import SystemClock
from experiments.card import Card
from experiments.control import ControlState, Mode
from experiments.errors import InputError
from experiments.ledger import Finding, StudyReopened, TrialResolved
from experiments.study import Study, fold
from state.control import ControlFile


def set_mode(root: Path, mode: str, *, reason: str, by: str) -> str:
    """Change the mode in the control file and leave everything else in it as it is."""
    workspace = Workspace(root.resolve())
    who = by or getpass.getuser()

    def change(state: ControlState) -> ControlState:
        return state.model_copy(update={"mode": Mode(mode), "reason": reason, "by": who})

    written = ControlFile(workspace.control_file).update(change)
    return f"{workspace.control_file}: mode {written.mode}, by {written.by}" + (f" ({reason})" if reason else "")


def approve_card(root: Path, card: str, *, by: str) -> str:
    """Put a card's digest into the control file. The approval opens this card only, once."""
    workspace = Workspace(root.resolve())
    study = read_study(workspace)
    found = [digest for digest in study.cards if digest.startswith(card)]
    if len(card) < 8 or len(found) != 1:
        known = ", ".join(f"{c.name} {d[:12]}" for d, c in study.cards.items() if d not in study.closed) or "none"
        raise InputError("approve", 0, 0, f"{card!r} names {len(found)} cards; write 8 or more digits. Open: {known}")
    who = by or getpass.getuser()

    def change(state: ControlState) -> ControlState:
        return state.model_copy(update={"approve": (*state.approve, found[0]), "by": who})

    ControlFile(workspace.control_file).update(change)
    return f"card {study.cards[found[0]].name} ({found[0][:12]}) is approved by {who}"


def resolve_trial(root: Path, trial: str, chosen: list[str], *, reason: str, by: str) -> str:
    """Record what a person found out about a trial whose end is unknown."""
    if len(chosen) != 1:
        raise InputError("resolve", 0, 0, "say exactly one of --finished, --never-ran and --dead")
    if not reason.strip():
        raise InputError("resolve", 0, 0, "--reason says how you know; it goes into the ledger")
    workspace = Workspace(root.resolve())
    with open_for_reading(workspace) as record:
        database, study_id = record.database, record.study_id()
        study = fold(database.ledger().entries(study_id))
        state = study.trials.get(trial)
        if state is None or not state.is_held:
            held = study.held_trial.started.trial_id if study.held_trial else "none"
            raise InputError("resolve", 0, 0, f"{trial} is not a trial with an unknown end; held: {held}")
        who = by or getpass.getuser()
        entry = TrialResolved(
            at=SystemClock().now(), trial_id=trial, finding=Finding(chosen[0]), by=who, reason=reason.strip()
        )
        database.ledger().append(study_id, [entry], after=study.position)
    return f"trial {trial}: {chosen[0].replace('_', ' ')}, said by {who}. Go on with: tuneloop run {root}"


def reopen_study(root: Path, *, reason: str, by: str) -> str:
    """Let an ended study go on: its budget of trials and hours, and what it counts against patience, begin anew."""
    if not reason.strip():
        raise InputError("reopen", 0, 0, "--reason says why; it goes into the ledger")
    workspace = Workspace(root.resolve())
    with open_for_reading(workspace) as record:
        ledger, study_id = record.database.ledger(), record.study_id()
        study = fold(ledger.entries(study_id))
        if study.stopped is None:
            raise InputError("reopen", 0, 0, f"study {study_id} has not ended; go on with: tuneloop run {root}")
        who = by or getpass.getuser()
        ledger.append(
            study_id, [StudyReopened(at=SystemClock().now(), by=who, reason=reason.strip())], after=study.position
        )
    budget = study.goal.budget
    return (
        f"study {study_id} goes on for {budget.trials} more trials within {budget.hours:g} hours, said by {who}; "
        f"it had ended with {study.stopped.reason}. Go on with: tuneloop run {root}"
    )


def write_ledger(root: Path, lang: str) -> str:
    from agent.bootstrap import read_pool
    from agent.pages import write_pages

    workspace = Workspace(root.resolve())
    if lang not in ("en", "zh"):
        raise InputError("--lang", 0, 0, f"{lang!r}: there are en and zh")
    with open_for_reading(workspace) as record:
        database, study_id = record.database, record.study_id()
        write_pages(workspace, database.ledger().entries(study_id), read_pool(workspace), lang)
    return f"{workspace.ledger / 'index.md'}"


def cards_called(study: Study, wanted: str) -> list[Card]:
    """By number (c03), name, or eight and more digits of the digest."""
    return [
        card
        for digest, card in study.cards.items()
        if wanted in (card.name, card.name.split("-")[0]) or (len(wanted) >= 8 and digest.startswith(wanted))
    ]


def read_study(workspace: Workspace) -> Study:
    """The study of a workspace, for reading. NoStudy if none was opened yet."""
    with open_for_reading(workspace) as record:
        return fold(record.database.ledger().entries(record.study_id()))
