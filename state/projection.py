"""What the entries look like as rows: studies, cards, trials, kept configurations, artifacts.

Written in the transaction of the append. Holds no rule of the study; the one rule here is that a fault is never a
number: a row gets its metrics from a measurement, and loses them if the run turns out not to be comparable.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, delete, insert, select, update

from experiments.classification import Classification, classify_failure
from experiments.ledger import (
    CardAdmitted,
    CardClosed,
    ConfigurationKept,
    LedgerEntry,
    QualityEvaluated,
    StudyOpened,
    StudyReopened,
    StudyStopped,
    TrialFinished,
    TrialHeld,
    TrialResolved,
    TrialsClassified,
    TrialStarted,
)
from experiments.measurement import Measurement, WindowKind
from experiments.trial import Route, Tier, TrialLoad, TrialRecord
from state.chain import GENESIS, canonical_json
from state.models import ARTIFACTS, CARDS, KEPT_CONFIGURATIONS, METRIC_COLUMNS, STUDIES, TRIALS

_PROJECTED: tuple[Table, ...] = (KEPT_CONFIGURATIONS, CARDS, TRIALS)


class Place(NamedTuple):
    """Where an entry stands."""

    connection: Connection
    study_id: str
    position: int


def project(place: Place, entry: LedgerEntry) -> None:
    """Write what one entry changes in the projected tables."""
    write = _WRITERS.get(type(entry))
    if write is not None:
        write(place, entry)


def forget(connection: Connection, study_id: str) -> None:
    """Remove the projected rows of a study, to build them anew. The row of the study itself stays."""
    trials = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
    connection.execute(delete(ARTIFACTS).where(ARTIFACTS.c.trial_id.in_(trials)))
    for table in _PROJECTED:
        connection.execute(delete(table).where(table.c.study_id == study_id))
    fresh = {"trials": 0, "kept": 0, "incumbent_card": None, "held_trial_id": None}
    _set_study(Place(connection, study_id, 0), **fresh, stop_reason=None, stop_detail=None)


def opened_row(entry: StudyOpened) -> dict[str, Any]:
    """The row of a new study, before its first entry is in."""
    goal = entry.goal
    return {
        "id": entry.study_id,
        "name": goal.name,
        "pool": entry.pool,
        "scenario_digest": entry.scenario_digest,
        "simulated": entry.simulated,
        "objective_metric": goal.objective.metric,
        "objective_window": goal.objective.window,
        "screening_window": goal.screening.window,
        "formal_requests": goal.scenario.load.requests,
        "opened_at": entry.at,
        "last_at": entry.at,
        "position": 0,
        "head_hash": GENESIS,
        "trials": 0,
        "kept": 0,
    }


def _admitted(place: Place, entry: CardAdmitted) -> None:
    card, change = entry.card, entry.card.draft.change
    place.connection.execute(
        insert(CARDS).values(
            study_id=place.study_id,
            digest=card.digest,
            number=card.number,
            name=card.name,
            source=card.draft.source,
            cost=card.cost,
            wall=card.draft.wall,
            parent_fingerprint=card.parent_fingerprint,
            role=change.role,
            knob=change.name,
            from_value=json.dumps(change.from_value),
            to_value=json.dumps(change.to_value),
            position=place.position,
            admitted_at=entry.at,
            kept=False,
        )
    )


def _closed(place: Place, entry: CardClosed) -> None:
    place.connection.execute(
        update(CARDS)
        .where(CARDS.c.study_id == place.study_id, CARDS.c.digest == entry.card_digest)
        .values(closed_at=entry.at, kept=entry.kept, **_verdict(entry.classification))
    )


def _started(place: Place, entry: TrialStarted) -> None:
    study = place.connection.execute(select(STUDIES).where(STUDIES.c.id == place.study_id)).mappings().one()
    formal = entry.tier is not Tier.SCREENING and entry.load.requests == study["formal_requests"]
    place.connection.execute(
        insert(TRIALS).values(
            trial_id=entry.trial_id,
            study_id=place.study_id,
            position=place.position,
            tier=entry.tier,
            card_digest=entry.card_digest,
            config_fingerprint=entry.config.fingerprint(),
            why=entry.why,
            **_load(entry.load),
            started_at=entry.at,
            state="running",
            simulated=study["simulated"],
            window_kind=study["objective_window"] if formal else study["screening_window"],
        )
    )
    _set_study(place, trials=STUDIES.c.trials + 1)


def _load(load: TrialLoad) -> dict[str, Any]:
    return {
        "requests": load.requests,
        "concurrency": load.concurrency,
        "rate": load.rate,
        "cache": load.cache,
    }


def _finished(place: Place, entry: TrialFinished) -> None:
    record = entry.record
    values = _measured(place, record) if record.measurement is not None else _failed(record)
    _set_trial(place, record.trial_id, finished_at=entry.at, finish_position=place.position, sent=record.sent, **values)
    if record.artifacts:
        rows = [
            {"trial_id": record.trial_id, "name": a.name, "sha256": a.sha256, "size": a.size} for a in record.artifacts
        ]
        place.connection.execute(insert(ARTIFACTS), rows)


def _measured(place: Place, record: TrialRecord) -> dict[str, Any]:
    query = select(TRIALS.c.window_kind).where(TRIALS.c.trial_id == record.trial_id)
    window = place.connection.execute(query).scalar_one_or_none()
    if record.measurement is None or window is None:
        return {}
    return {"state": "valid", "detail": None, **_metrics(record.measurement, WindowKind(window))}


def _metrics(measurement: Measurement, kind: WindowKind) -> dict[str, Any]:
    window = measurement.window(kind)
    values: dict[str, Any] = {name: getattr(window, name, None) for name in METRIC_COLUMNS}
    return {
        **values,
        "accept_length": measurement.accept_length,
        "meets_floor": window.meets_floor if window is not None else None,
        "n_failed": measurement.n_failed,
        "simulated": measurement.simulated,
    }


def _failed(record: TrialRecord) -> dict[str, Any]:
    detail = record.failure.detail if record.failure is not None else None
    return {"state": "invalid", "detail": detail, **_verdict(classify_failure(record))}


def _verdict(classification: Classification) -> dict[str, Any]:
    return {
        "route": classification.route,
        "reason": classification.reason,
        "explanation": classification.explanation,
    }


def _classified(place: Place, entry: TrialsClassified) -> None:
    """A failed run keeps the route of its own failure; a valid one takes the route of the phase it was judged in."""
    values = _verdict(entry.classification)
    if entry.classification.route is Route.ORCHESTRATION_FAULT:
        if entry.classification.refusal is None:
            return  # the phase ended by its failed runs; the valid ones were not judged
        values |= {"state": "invalid", "meets_floor": None, **dict.fromkeys(METRIC_COLUMNS)}
    place.connection.execute(
        update(TRIALS)
        .where(TRIALS.c.study_id == place.study_id, TRIALS.c.trial_id.in_(entry.trial_ids))
        .where(TRIALS.c.state == "valid")
        .values(**values)
    )


def _kept(place: Place, entry: ConfigurationKept) -> None:
    place.connection.execute(
        insert(KEPT_CONFIGURATIONS).values(
            study_id=place.study_id,
            name=entry.name,
            position=place.position,
            kept_at=entry.at,
            card_digest=entry.card_digest,
            fingerprint=entry.config.fingerprint(),
            config=canonical_json(entry.config.model_dump(mode="json")),
            trial_ids=json.dumps(entry.trial_ids),
            quality=entry.quality,
        )
    )
    _set_study(place, kept=STUDIES.c.kept + 1, incumbent_card=entry.card_digest)


def _evaluated(place: Place, entry: QualityEvaluated) -> None:
    """An evaluation after the keep. One before it is written with the configuration itself."""
    place.connection.execute(
        update(KEPT_CONFIGURATIONS)
        .where(KEPT_CONFIGURATIONS.c.study_id == place.study_id, KEPT_CONFIGURATIONS.c.card_digest == entry.card_digest)
        .values(quality=entry.outcome)
    )


def _held(place: Place, entry: TrialHeld) -> None:
    _set_trial(place, entry.trial_id, state="held", detail=f"{entry.stage}: {entry.detail}")
    _set_study(place, held_trial_id=entry.trial_id)


def _resolved(place: Place, entry: TrialResolved) -> None:
    _set_trial(place, entry.trial_id, state="running", detail=f"{entry.finding}: {entry.reason}")
    _set_study(place, held_trial_id=None)


def _stopped(place: Place, entry: StudyStopped) -> None:
    _set_study(place, stop_reason=entry.reason, stop_detail=entry.detail)


def _reopened(place: Place, _: StudyReopened) -> None:
    _set_study(place, stop_reason=None, stop_detail=None)


def _set_trial(place: Place, trial_id: str, **values: Any) -> None:
    place.connection.execute(
        update(TRIALS).where(TRIALS.c.study_id == place.study_id, TRIALS.c.trial_id == trial_id).values(**values)
    )


def _set_study(place: Place, **values: Any) -> None:
    place.connection.execute(update(STUDIES).where(STUDIES.c.id == place.study_id).values(**values))


def seal(place: Place, head_hash: str, at: datetime) -> None:
    """Record the head of the chain: what the next append is guarded by."""
    _set_study(place, position=place.position, head_hash=head_hash, last_at=at)


_WRITERS: dict[type, Callable[[Place, Any], None]] = {
    CardAdmitted: _admitted,
    CardClosed: _closed,
    TrialStarted: _started,
    TrialFinished: _finished,
    TrialsClassified: _classified,
    ConfigurationKept: _kept,
    QualityEvaluated: _evaluated,
    TrialHeld: _held,
    TrialResolved: _resolved,
    StudyStopped: _stopped,
    StudyReopened: _reopened,
}
