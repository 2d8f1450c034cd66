"""From the journal of a trial to its record. Pure: the record can be made again from the rows at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from executor.standing import DONE
from experiments.evidence import ServingEvidence
from experiments.ledger import QualityOutcome
from experiments.live import RankLive
from experiments.measurement import Measurement
from experiments.ports import JournalRow
from experiments.profile import ServerProfile
from experiments.trial import (
    Artifact,
    Reason,
    Sent,
    Stage,
    StageFault,
    StageTime,
    TrialRecord,
)


def record_of(trial_id: str, rows: Sequence[JournalRow]) -> TrialRecord:
    """The record of a trial whose last stage ended. Raises ValueError for a trial that is still open."""
    faults = _faults(rows)
    # Leases that could not be given back run out by themselves: that is no fault of the trial.
    last_fault = next((f for f in reversed(faults) if not f.repaired and f.stage is not Stage.RELEASE), None)
    measured = _payload(rows, Stage.ANALYSE)
    if measured is None and last_fault is None:
        raise ValueError(f"trial {trial_id} is still open")
    checked = _payload(rows, Stage.CHECK) or {}
    fitted = _payload(rows, Stage.FIT) or {}
    ready = _payload(rows, Stage.READY) or {}
    collected = _payload(rows, Stage.COLLECT) or {}
    return TrialRecord(
        trial_id=trial_id,
        measurement=None if measured is None else Measurement.model_validate(measured["measurement"]),
        evidence=None if measured is None else ServingEvidence.model_validate(measured["evidence"]),
        failure=None if measured is not None else last_fault,
        configuration_caused=measured is None and _configuration_caused(rows),
        sent=Sent.FINISHED if measured is not None or last_fault is None else last_fault.sent,
        faults=tuple(faults),
        stages=_stage_times(rows),
        artifacts=tuple(
            Artifact.model_validate(a) for a in (*fitted.get("artifacts", []), *collected.get("artifacts", []))
        ),
        adjusted=tuple(ready.get("adjusted", [])),
        server_version=ready.get("version"),
        host_checks=tuple(checked.get("engine", [])),
        sources=(*checked.get("sources", []), *fitted.get("sources", []), *ready.get("sources", [])),
        profiles=tuple(
            ServerProfile.model_validate(p) for p in (_payload(rows, Stage.PROFILE) or {}).get("profiles", [])
        ),
        live=tuple(RankLive.model_validate(rank) for rank in (measured or {}).get("live", [])),
    )


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """How an evaluation ended. `not_evaluated`: it gave no answer, and `detail` says why."""

    outcome: QualityOutcome
    detail: str
    score: float | None = None
    seconds: float | None = None
    log: Artifact | None = None


def evaluated_of(rows: Sequence[JournalRow]) -> Evaluated:
    """The end of an evaluation. Raises ValueError for one that is still open."""
    found = _payload(rows, Stage.EVALUATE)
    if found is not None:
        log = None if found["log"] is None else Artifact.model_validate(found["log"])
        return Evaluated(
            outcome=found["outcome"], detail=found["detail"], score=found["score"], seconds=found["seconds"], log=log
        )
    fault = next((f for f in reversed(_faults(rows)) if f.stage is not Stage.RELEASE), None)
    if fault is None:
        raise ValueError("the evaluation is still open")
    return Evaluated(outcome="not_evaluated", detail=f"{fault.stage}: {fault.reason}: {fault.detail}")


def _payload(rows: Sequence[JournalRow], stage: Stage) -> dict[str, Any] | None:
    """What a stage left behind when it was done; None if it never was."""
    return next((r.payload for r in reversed(rows) if r.stage is stage and r.outcome == DONE), None)


def _faults(rows: Sequence[JournalRow]) -> list[StageFault]:
    return [_fault(row, rows) for row in rows if row.outcome not in (None, DONE)]


def _fault(row: JournalRow, rows: Sequence[JournalRow]) -> StageFault:
    later = [r for r in rows if r.stage is row.stage and r.attempt > row.attempt and r.outcome == DONE]
    return StageFault(
        stage=row.stage,
        attempt=row.attempt,
        reason=Reason(row.outcome or ""),
        sent=Sent(str(row.payload["sent"])),
        detail=str(row.payload["detail"]),
        repaired=bool(later),
        repair=f"attempt {later[0].attempt}: {later[0].payload.get('note') or 'done'}" if later else "",
    )


def _configuration_caused(rows: Sequence[JournalRow]) -> bool:
    return any(bool(r.payload.get("configuration_caused")) for r in rows if r.outcome not in (None, DONE))


def _stage_times(rows: Sequence[JournalRow]) -> tuple[StageTime, ...]:
    return tuple(
        StageTime(
            stage=row.stage,
            attempt=row.attempt,
            began=row.began,
            seconds=(row.ended - row.began).total_seconds(),
            note=str(row.payload.get("note", "")),
        )
        for row in rows
        if row.ended is not None
    )
