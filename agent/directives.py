"""The operator's words in the ledger: every change of the control file, with who, when and what.

Written by the process that drives the study, before it acts on what it read. Words that could not be followed are
recorded too, with the reason.
"""

from __future__ import annotations

from agent.study_store import StudyStore
from executor.clock import Clock
from experiments.ledger import OperatorSpoke
from state.control import ControlReading


class Directives:
    """Hears every reading of the control file; only one that differs from the last recorded word is written."""

    def __init__(self, store: StudyStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._heard: tuple[str, str | None] | None = None

    def hear(self, reading: ControlReading) -> None:
        heard = (reading.sha256 or "", reading.problem)
        if heard == self._heard:
            return
        spoken = self._store.read().directives
        if not spoken or not _is_same(spoken[-1], reading):
            self._store.append([self._entry(reading)])
        self._heard = heard

    def _entry(self, reading: ControlReading) -> OperatorSpoke:
        state = reading.state
        return OperatorSpoke(
            at=self._clock.now(),
            mode=state.mode,
            by=state.by,
            reason=state.reason if reading.problem is None else reading.problem[:500],
            file_digest=reading.sha256 or "",
            control=state if reading.problem is None else None,
        )


def _is_same(spoken: OperatorSpoke, reading: ControlReading) -> bool:
    if reading.problem is None:
        return spoken.file_digest == reading.sha256 and spoken.control is not None
    return spoken.control is None and spoken.reason == reading.problem[:500]
