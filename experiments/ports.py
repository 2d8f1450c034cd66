"""What the outer packages provide to one another. Each port has a database or remote implementation and a twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from experiments.ledger import LedgerEntry
from experiments.trial import Stage


class Ledger(Protocol):
    """Append-only entries of one study. Positions count from 1."""

    def entries(self, study_id: str, after: int = 0) -> Sequence[LedgerEntry]: ...

    def append(self, study_id: str, entries: Sequence[LedgerEntry], *, after: int) -> int:
        """Append in one transaction and return the new position.

        Raises LedgerConflict, having written nothing, unless the study is exactly at position `after`.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class JournalRow:
    """One attempt of one stage: begun when `outcome` is None, else ended. `payload` is plain JSON data."""

    trial_id: str
    stage: Stage
    attempt: int
    began: datetime
    ended: datetime | None
    outcome: str | None  # "done", or a Reason
    payload: dict[str, object]


class Journal(Protocol):
    """The truth about effects: intent is durable before contact, outcome before anything depends on it."""

    def rows(self, trial_id: str) -> Sequence[JournalRow]:
        """Rows of a trial in the order in which they began."""
        ...

    def begin(self, trial_id: str, stage: Stage, attempt: int, payload: dict[str, object]) -> None:
        """Commit the intent. Repeating it for a row that has begun and not ended changes nothing."""
        ...

    def end(self, trial_id: str, stage: Stage, attempt: int, outcome: str, payload: dict[str, object]) -> None:
        """Commit the outcome. Raises InvalidTransition if the row never began or ended otherwise before."""
        ...

    def claim_formal_send(self, trial_id: str, job_id: str, host: str) -> bool:
        """The controller's own guard against a second send. False: this very job was claimed before (a repeat).

        Raises InvalidTransition if the trial claimed another job.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Why nothing new may be sent now."""

    reason: str
    cancel: bool = False  # the operator said stop: the running stage is to be cancelled safely


Gate = Callable[[float], Blocked | None]
"""Asked immediately before anything new is sent, with the seconds it is expected to take. None means go."""
