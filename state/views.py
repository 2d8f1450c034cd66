"""Read models for status and dashboard: small rows, newest first, paged by position. They decide nothing.

A page costs the same at ten experiments and at ten thousand, because it is cut by an index and never by an offset.
`None` is a value that was not observed. A row without a valid measurement has no figures at all.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, case, func, select

from experiments.ledger import StopReason, StudyReopened
from experiments.measurement import WindowKind
from experiments.serving_config import ServingConfig
from experiments.trial import Artifact, Reason, Route, Sent, Stage, Tier
from state.engine import Store
from state.models import ARTIFACTS, CARDS, ENTRIES, KEPT_CONFIGURATIONS, STAGE_JOURNAL, STUDIES, TRIALS

PAGE = 50
MOST = 500


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """One study in the list."""

    id: str
    name: str
    pool: str
    simulated: bool
    objective_metric: str
    objective_window: WindowKind
    opened_at: datetime
    last_at: datetime
    position: int
    trials: int
    kept: int
    incumbent_card: str | None  # digest; None: the starting configuration
    held_trial_id: str | None
    stop_reason: StopReason | None
    stop_detail: str | None


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One experiment in the list. The figures are of `window_kind`; the whole record is entry `finish_position`."""

    trial_id: str
    study_id: str
    position: int
    finish_position: int | None
    tier: Tier
    card_digest: str | None
    card_name: str | None
    role: str | None
    knob: str | None
    from_value: object
    to_value: object
    config_fingerprint: str
    why: str
    requests: int
    concurrency: int
    rate: float | None
    cache: str
    started_at: datetime
    finished_at: datetime | None
    state: str  # running, held, valid, invalid
    detail: str | None
    sent: Sent | None
    simulated: bool
    route: Route | None
    reason: Reason | None
    explanation: str | None
    window_kind: WindowKind
    meets_floor: bool | None
    n_failed: int | None
    n_requests: int | None
    duration_s: float | None
    output_tok_s_per_card: float | None
    request_per_s: float | None
    ttft_mean_s: float | None
    tpot_mean_ms: float | None
    e2e_mean_s: float | None
    accept_length: float | None


@dataclass(frozen=True, kw_only=True)
class CardRow:
    """One card and its last word."""

    digest: str
    number: int
    name: str
    source: str
    cost: str
    wall: str
    parent_fingerprint: str
    role: str
    knob: str
    from_value: object
    to_value: object
    position: int
    admitted_at: datetime
    closed_at: datetime | None
    route: Route | None
    reason: Reason | None
    explanation: str | None
    kept: bool


@dataclass(frozen=True, kw_only=True)
class KeptRow:
    """A configuration to return to by name."""

    name: str
    position: int
    kept_at: datetime
    card_digest: str
    fingerprint: str
    config: ServingConfig
    trial_ids: tuple[str, ...]
    quality: str


@dataclass(frozen=True, kw_only=True)
class CardCounts:
    admitted: int
    closed: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class TrialPage:
    """`before` asks for the next older page; None: this was the last."""

    rows: tuple[TrialRow, ...]
    total: int  # of the study, whatever the filter
    before: int | None


class BudgetStart(NamedTuple):
    """From where budgets count: the opening of a study, or the last time that it was reopened."""

    at: datetime
    trials: int  # begun before it


class Pulse(NamedTuple):
    """Changes whenever something happens in a study: cheap to ask for, to be compared with the last answer."""

    position: int
    begun: int  # stages of the running trial
    ended: int


class Views:
    """Every method is one snapshot of the database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def studies(self) -> tuple[StudyRow, ...]:
        """All studies, the one that was written last first."""
        rows = self._rows(_studies().order_by(STUDIES.c.last_at.desc(), STUDIES.c.id))
        return tuple(map(_study, rows))

    def study(self, study_id: str) -> StudyRow | None:
        rows = self._rows(_studies().where(STUDIES.c.id == study_id))
        return _study(rows[0]) if rows else None

    def page(
        self,
        study_id: str,
        *,
        before: int | None = None,
        limit: int = PAGE,
        route: Route | None = None,
        tier: Tier | None = None,
    ) -> TrialPage:
        """The newest trials that were started before position `before`, at most `limit` (no more than 500)."""
        limit = max(1, min(limit, MOST))
        query = _trials().where(TRIALS.c.study_id == study_id)
        if before is not None:
            query = query.where(TRIALS.c.position < before)
        if route is not None:
            query = query.where(TRIALS.c.route == route)
        if tier is not None:
            query = query.where(TRIALS.c.tier == tier)
        query = query.order_by(TRIALS.c.position.desc()).limit(limit + 1)
        total = select(STUDIES.c.trials).where(STUDIES.c.id == study_id)
        with self._store.reading() as connection:
            found = connection.execute(query).mappings().all()
            count = connection.execute(total).scalar_one_or_none() or 0
        rows = tuple(_trial(row) for row in found[:limit])
        return TrialPage(rows=rows, total=count, before=rows[-1].position if len(found) > limit else None)

    def trial(self, trial_id: str) -> TrialRow | None:
        rows = self._rows(_trials().where(TRIALS.c.trial_id == trial_id))
        return _trial(rows[0]) if rows else None

    def unfinished(self, study_id: str) -> TrialRow | None:
        """The trial that runs or is held; at most one."""
        query = _trials().where(TRIALS.c.study_id == study_id, TRIALS.c.finish_position.is_(None))
        rows = self._rows(query.order_by(TRIALS.c.position.desc()).limit(1))
        return _trial(rows[0]) if rows else None

    def cards(self, study_id: str, *, before: int | None = None, limit: int = PAGE) -> tuple[CardRow, ...]:
        """Cards, newest first."""
        query = select(CARDS).where(CARDS.c.study_id == study_id)
        if before is not None:
            query = query.where(CARDS.c.position < before)
        query = query.order_by(CARDS.c.position.desc()).limit(max(1, min(limit, MOST)))
        return tuple(map(_card, self._rows(query)))

    def open_card(self, study_id: str) -> CardRow | None:
        """The card without a last word; at most one, and always the newest."""
        newest = self.cards(study_id, limit=1)
        return newest[0] if newest and newest[0].closed_at is None else None

    def count_cards(self, study_id: str) -> CardCounts:
        kept = func.coalesce(func.sum(case((CARDS.c.kept, 1), else_=0)), 0)
        query = select(func.count(), func.count(CARDS.c.closed_at), kept).where(CARDS.c.study_id == study_id)
        with self._store.reading() as connection:
            admitted, closed, count = connection.execute(query).one()
        return CardCounts(admitted=admitted, closed=closed, kept=count)

    def kept(self, study_id: str) -> tuple[KeptRow, ...]:
        """Every kept configuration, oldest first."""
        query = select(KEPT_CONFIGURATIONS).where(KEPT_CONFIGURATIONS.c.study_id == study_id)
        return tuple(map(_kept, self._rows(query.order_by(KEPT_CONFIGURATIONS.c.position))))

    def artifacts(self, trial_id: str) -> tuple[Artifact, ...]:
        query = select(ARTIFACTS.c.name, ARTIFACTS.c.sha256, ARTIFACTS.c.size)
        query = query.where(ARTIFACTS.c.trial_id == trial_id, ARTIFACTS.c.removed_at.is_(None))
        return tuple(Artifact(**row) for row in self._rows(query.order_by(ARTIFACTS.c.name)))

    def tally(self, study_id: str) -> Mapping[tuple[Route, Reason], int]:
        """How many trials took which route, for which reason."""
        columns = (TRIALS.c.route, TRIALS.c.reason)
        query = select(*columns, func.count().label("n")).where(
            TRIALS.c.study_id == study_id, TRIALS.c.route.is_not(None)
        )
        rows = self._rows(query.group_by(*columns).order_by(*columns))
        return {(Route(row["route"]), Reason(row["reason"])): row["n"] for row in rows}

    def stage_seconds(self, study_id: str, latest: int = 20) -> Mapping[Stage, Sequence[float]]:
        """How long the stages of the latest trials took that ended well, newest first: what estimates rest on."""
        recent = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
        recent = recent.order_by(TRIALS.c.position.desc()).limit(latest)
        query = select(STAGE_JOURNAL.c.stage, STAGE_JOURNAL.c.began, STAGE_JOURNAL.c.ended)
        query = query.where(STAGE_JOURNAL.c.trial_id.in_(recent), STAGE_JOURNAL.c.outcome == "done")
        seconds: dict[Stage, list[float]] = defaultdict(list)
        for row in self._rows(query.order_by(STAGE_JOURNAL.c.id.desc())):
            seconds[Stage(row["stage"])].append((row["ended"] - row["began"]).total_seconds())
        return dict(seconds)

    def reopened(self, study_id: str) -> BudgetStart | None:
        """The last time that the study was reopened; None: never."""
        query = select(ENTRIES.c.position, ENTRIES.c.at)
        query = query.where(
            ENTRIES.c.study_id == study_id, ENTRIES.c.kind == StudyReopened.model_fields["kind"].default
        )
        before = select(func.count()).where(TRIALS.c.study_id == study_id)
        with self._store.reading() as connection:
            found = connection.execute(query.order_by(ENTRIES.c.position.desc()).limit(1)).first()
            if found is None:
                return None
            trials = connection.execute(before.where(TRIALS.c.position < found.position)).scalar_one()
        return BudgetStart(at=found.at, trials=trials)

    def pulse(self, study_id: str) -> Pulse:
        running = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id, TRIALS.c.finish_position.is_(None))
        stages = select(func.count(), func.count(STAGE_JOURNAL.c.outcome)).where(STAGE_JOURNAL.c.trial_id.in_(running))
        head = select(STUDIES.c.position).where(STUDIES.c.id == study_id)
        with self._store.reading() as connection:
            position = connection.execute(head).scalar_one_or_none() or 0
            begun, ended = connection.execute(stages).one()
        return Pulse(position, begun, ended)

    def _rows(self, query: Select[*tuple[Any, ...]]) -> Sequence[Mapping[Any, Any]]:
        with self._store.reading() as connection:
            return connection.execute(query).mappings().all()


def _studies() -> Select[*tuple[Any, ...]]:
    return select(*(STUDIES.c[name] for name in StudyRow.__dataclass_fields__))


def _study(row: Mapping[Any, Any]) -> StudyRow:
    stopped = row["stop_reason"]
    known = {
        "objective_window": WindowKind(row["objective_window"]),
        "stop_reason": StopReason(stopped) if stopped else None,
    }
    return StudyRow(**{**row, **known})


_OF_CARD = ("role", "knob", "from_value", "to_value")


def _trials() -> Select[*tuple[Any, ...]]:
    own = [TRIALS.c[name] for name in TrialRow.__dataclass_fields__ if name not in (*_OF_CARD, "card_name")]
    cards = [CARDS.c.name.label("card_name"), *(CARDS.c[name] for name in _OF_CARD)]
    same_card = (CARDS.c.study_id == TRIALS.c.study_id) & (CARDS.c.digest == TRIALS.c.card_digest)
    return select(*own, *cards).select_from(TRIALS.outerjoin(CARDS, same_card))


def _trial(row: Mapping[Any, Any]) -> TrialRow:
    known = {
        "tier": Tier(row["tier"]),
        "sent": Sent(row["sent"]) if row["sent"] else None,
        "window_kind": WindowKind(row["window_kind"]),
        **_change(row),
        **_verdict(row),
    }
    return TrialRow(**{**row, **known})


def _card(row: Mapping[Any, Any]) -> CardRow:
    values = {name: row[name] for name in CardRow.__dataclass_fields__}
    return CardRow(**{**values, **_change(row), **_verdict(row)})


def _change(row: Mapping[Any, Any]) -> dict[str, Any]:
    ends = ("from_value", "to_value")
    return {name: json.loads(row[name]) if row[name] is not None else None for name in ends}


def _verdict(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        "route": Route(row["route"]) if row["route"] else None,
        "reason": Reason(row["reason"]) if row["reason"] else None,
    }


def _kept(row: Mapping[Any, Any]) -> KeptRow:
    values = {name: row[name] for name in KeptRow.__dataclass_fields__}
    known = {
        "config": ServingConfig.model_validate_json(row["config"]),
        "trial_ids": tuple(json.loads(row["trial_ids"])),
    }
    return KeptRow(**{**values, **known})
