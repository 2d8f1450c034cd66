"""What the journal rows of a trial mean to a process that enters it again. Pure.

Guards two rules: a trial that ended with a fault is not started over, and nothing before the formal load may turn a
trial whose load was perhaps sent into one that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from executor.stage_result import Faulted, Payload
from experiments.ports import JournalRow
from experiments.trial import Reason, Sent, Stage

DONE = "done"
ATTEMPTS = 2  # of a repairable stage, since it was last done
# Made again where the servers are gone: a paused study gives its machines back.
SERVING = (Stage.LAUNCH, Stage.READY, Stage.CANARY, Stage.WARM_UP)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The rows of one trial, in the order in which they began."""

    rows: tuple[JournalRow, ...]

    def of(self, stage: Stage) -> list[JournalRow]:
        return [row for row in self.rows if row.stage is stage]

    def open_row(self, stage: Stage) -> JournalRow | None:
        """The attempt that began and has no outcome; at most one."""
        return next((row for row in self.of(stage) if row.outcome is None), None)

    def payload(self, stage: Stage) -> Payload | None:
        """What the stage left behind, if it was done last."""
        ended = [row for row in self.of(stage) if row.outcome is not None]
        return ended[-1].payload if ended and ended[-1].outcome == DONE else None

    @property
    def load_began(self) -> bool:
        """The intent to send the formal load was committed: from here on only the host knows."""
        return bool(self.of(Stage.MEASURE))

    def next_attempt(self, stage: Stage) -> int:
        open_row = self.open_row(stage)
        return open_row.attempt if open_row is not None else len(self.of(stage)) + 1

    def is_exhausted(self, stage: Stage) -> bool:
        """Whether its last fault is one after which it is not tried again."""
        faults = 0
        for row in self.of(stage):
            faults = 0 if row.outcome == DONE else faults + (row.outcome is not None)
        last = self.last_fault(stage)
        return last is not None and (faults >= ATTEMPTS or not last.repairable)

    def last_fault(self, stage: Stage) -> Faulted | None:
        """The fault that the stage ended with last; None if it was done last, never ended, or is open again."""
        rows = self.of(stage)
        if not rows or rows[-1].outcome in (None, DONE):
            return None
        return fault_of_row(rows[-1])

    @property
    def ending(self) -> Faulted | None:
        """The fault that ended the trial."""
        stages = {row.stage for row in self.rows} - {Stage.RELEASE}
        return next((self.last_fault(stage) for stage in Stage if stage in stages and self.is_exhausted(stage)), None)

    def last_repair_reason(self, stage: Stage) -> Reason | None:
        """Why the attempt before this one failed: what a repair has to repair."""
        ended = [row for row in self.of(stage) if row.outcome is not None]
        return Reason(ended[-1].outcome or "") if ended and ended[-1].outcome != DONE else None


def standing_of(rows: Sequence[JournalRow]) -> Standing:
    return Standing(rows=tuple(rows))


def fault_payload(fault: Faulted) -> dict[str, object]:
    return {
        "detail": fault.detail,
        "sent": str(fault.sent),
        "repairable": fault.repairable,
        "configuration_caused": fault.configuration_caused,
    }


def fault_of_row(row: JournalRow) -> Faulted:
    return Faulted(
        reason=Reason(row.outcome or ""),
        detail=str(row.payload["detail"]),
        sent=Sent(str(row.payload["sent"])),
        repairable=bool(row.payload.get("repairable")),
        configuration_caused=bool(row.payload.get("configuration_caused")),
    )
