"""One study in the ledger: opened once, read as a fold that only fetches what is new, appended under its position."""

from __future__ import annotations

from collections.abc import Sequence

from executor.failpoints import failpoint
from experiments.errors import LedgerConflict
from experiments.ledger import LedgerEntry
from experiments.lifecycle import check_entry
from experiments.ports import Ledger
from experiments.study import Study, extend, fold


class StudyStore:
    """Not shared between threads. Another writer is noticed by the position and refused, never overwritten."""

    def __init__(self, ledger: Ledger, study_id: str) -> None:
        self._ledger, self.study_id = ledger, study_id
        self._study: Study | None = None

    def read(self) -> Study:
        """The study as of now."""
        if self._study is None:
            self._study = fold(self._ledger.entries(self.study_id))
        else:
            extend(self._study, self._ledger.entries(self.study_id, after=self._study.position))
        return self._study

    def append(self, entries: Sequence[LedgerEntry]) -> Study:
        """Append what was decided on the study as last read. Raises LedgerConflict, then forgets what it read."""
        study = self.read()
        if entries:
            check_entry(study, entries[0])  # nothing that the lifecycle forbids is stored, whoever decided it
        kind = entries[-1].kind if entries else "nothing"
        failpoint(f"ledger.{kind}.before_append")
        try:
            self._ledger.append(self.study_id, entries, after=study.position)
        except LedgerConflict:
            self._study = None
            raise
        failpoint(f"ledger.{kind}.appended")
        return self.read()
