"""Why the raw files of a run cannot become a measurement: a reason of the classifier, the field, and the
finding.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.errors import TuningError
from experiments.trial import Reason


@dataclass(frozen=True)
class Problem:
    """`field` names the file, the figure or the check; `detail` says what was found there."""

    reason: Reason
    field: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.field}: {self.detail}"


class ResultUnreadable(TuningError):
    """Raised inside a client's reader; `read_measurement` turns it into its Problem."""

    def __init__(self, field: str, detail: str, reason: Reason = Reason.EVIDENCE_INCOMPLETE) -> None:
        self.problem = Problem(reason, field, detail)
        super().__init__(str(self.problem))
