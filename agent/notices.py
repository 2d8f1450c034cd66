"""What people asked to be told of, taken from the ledger: each entry once, also over a restart of the service.

The position up to which all was settled is kept beside the study. Nothing private is in a notice: no host, no path.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from agent.bootstrap import Application
from agent.notify import Event, Notifier
from experiments.card import Card
from experiments.ledger import ConfigurationKept, LedgerEntry, StudyStopped, TrialHeld
from state.control import write_atomically


class Notice(StrEnum):
    KEPT = "kept"
    NEEDS_APPROVAL = "needs_approval"
    STOPPED = "stopped"
    UNKNOWN = "unknown"  # the end of a trial
    STUCK = "stuck"  # the watchdog


ALL = frozenset(Notice)


class Notices:
    """The notices of one study. Without a notifier it does nothing."""

    def __init__(self, notifier: Notifier | None = None, kinds: frozenset[Notice] = ALL) -> None:
        self._notifier, self._kinds = notifier, kinds
        self._position = 0
        self._asked: set[str] = set()

    def begin(self, app: Application) -> None:
        """From where the last service left off; a study that was never watched begins with what happens next."""
        if self._notifier is None:
            return
        file = app.workspace.notified_file
        self._position = _read_position(file) if file.exists() else app.store.read().position
        if not file.exists():
            _write_position(file, self._position)

    def collect(self, app: Application) -> None:
        """Hand over what the ledger says since the last time."""
        if self._notifier is None:
            return
        entries = app.database.ledger().entries(app.store.study_id, after=self._position)
        for position, entry in enumerate(entries, start=self._position + 1):
            told = _notice_of(entry)
            if told is not None and told[0] in self._kinds:
                event = _event(app, told[0], told[1], at=entry.at.isoformat(timespec="seconds"))
                if not self._notifier.send(event, _marking(app.workspace.notified_file, position)):
                    return
            self._position = position

    def needs_approval(self, app: Application, card: Card) -> None:
        """Asked once per card and process."""
        if self._notifier is None or Notice.NEEDS_APPROVAL not in self._kinds or card.digest in self._asked:
            return
        text = f"card {card.name} ({card.cost}) waits for: tuneloop approve {card.digest[:12]}"
        if self._notifier.send(_event(app, Notice.NEEDS_APPROVAL, text, card=card.digest)):
            self._asked.add(card.digest)

    def stuck(self, app: Application, text: str) -> None:
        if self._notifier is not None and Notice.STUCK in self._kinds:
            self._notifier.send(_event(app, Notice.STUCK, text))


def _notice_of(entry: LedgerEntry) -> tuple[Notice, str] | None:
    match entry:
        case ConfigurationKept():
            return Notice.KEPT, f"kept configuration {entry.name}, card {entry.card_digest[:12]}"
        case StudyStopped():
            return Notice.STOPPED, f"the study stopped ({entry.reason}): {entry.detail}"
        case TrialHeld():
            return Notice.UNKNOWN, f"the end of trial {entry.trial_id} is unknown ({entry.stage}); nothing new is sent"
        case _:
            return None


def _event(app: Application, notice: Notice, text: str, **more: str) -> Event:
    study = app.store.study_id
    now = app.clock.now().isoformat(timespec="seconds")
    return {"event": str(notice), "study": study, "simulated": app.pool.simulated, "text": text, "at": now, **more}


def _marking(file: Path, position: int) -> Callable[[], None]:
    def settled() -> None:
        with suppress(OSError):  # then it is told once more by the next service, which is better than not at all
            _write_position(file, position)

    return settled


def _read_position(file: Path) -> int:
    text = file.read_text().strip()
    return int(text) if text.isdigit() else 0


def _write_position(file: Path, position: int) -> None:
    write_atomically(str(file), f"{position}\n")
