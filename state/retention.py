"""Which raw files may be removed, and the record that they were. Their hashes stay: what stood there can be proved."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import select, update

from experiments.trial import Artifact
from state.engine import Store
from state.models import ARTIFACTS, KEPT_CONFIGURATIONS, TRIALS


class SqlRetention:
    """Files of a trial that stands behind a kept configuration are never offered for removal."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now

    def removable(
        self, finished_before: datetime, limit: int = 1000, *, study_id: str | None = None
    ) -> Sequence[tuple[str, Artifact]]:
        """Trial and file, oldest trial first; of one study only, where it is named."""
        columns = (ARTIFACTS.c.trial_id, ARTIFACTS.c.name, ARTIFACTS.c.sha256, ARTIFACTS.c.size)
        query = (
            select(*columns)
            .join(TRIALS, TRIALS.c.trial_id == ARTIFACTS.c.trial_id)
            .where(TRIALS.c.finished_at < finished_before, ARTIFACTS.c.removed_at.is_(None))
            .order_by(TRIALS.c.finished_at, ARTIFACTS.c.trial_id, ARTIFACTS.c.name)
        )
        if study_id is not None:
            query = query.where(TRIALS.c.study_id == study_id)
        with self._store.reading() as connection:
            kept = connection.execute(select(KEPT_CONFIGURATIONS.c.trial_ids)).scalars()
            needed = {trial_id for ids in kept for trial_id in json.loads(ids)}
            rows = connection.execute(query.where(ARTIFACTS.c.trial_id.not_in(needed)).limit(limit)).all()
        return [(row.trial_id, Artifact(name=row.name, sha256=row.sha256, size=row.size)) for row in rows]

    def mark_removed(self, trial_id: str, names: Sequence[str]) -> None:
        """Record the removal. Call it before the files go: a file that is still there is harmless, a lie is not."""
        with self._store.writing() as connection:
            connection.execute(
                update(ARTIFACTS)
                .where(ARTIFACTS.c.trial_id == trial_id, ARTIFACTS.c.name.in_(names))
                .where(ARTIFACTS.c.removed_at.is_(None))
                .values(removed_at=self._now())
            )
