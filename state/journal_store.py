"""The stage journal in a database: intents before contact, outcomes before anything depends on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, RowMapping, insert, select, update
from sqlalchemy.exc import IntegrityError

from experiments.errors import InvalidTransition
from experiments.ports import JournalRow
from experiments.trial import Stage, study_of_evaluation
from state.chain import canonical_json
from state.drivers import check_epoch
from state.engine import Store
from state.errors import DriverRefused
from state.models import FORMAL_SENDS, STAGE_JOURNAL, STUDIES, TRIALS


class SqlJournal:
    """`now` gives the times of the rows. `epoch`: write only while this process drives the study of the trial."""

    def __init__(self, store: Store, now: Callable[[], datetime], epoch: int | None = None) -> None:
        self._store, self._now, self._epoch = store, now, epoch

    def rows(self, trial_id: str) -> Sequence[JournalRow]:
        query = select(STAGE_JOURNAL).where(STAGE_JOURNAL.c.trial_id == trial_id).order_by(STAGE_JOURNAL.c.id)
        with self._store.reading() as connection:
            return [_row(found) for found in connection.execute(query).mappings()]

    def begin(self, trial_id: str, stage: Stage, attempt: int, payload: dict[str, object]) -> None:
        """See `experiments.ports.Journal`. Raises InvalidTransition if the attempt has ended."""
        try:
            with self._writing(trial_id) as connection:
                found = _find(connection, trial_id, stage, attempt)
                if found is None:
                    values = {"trial_id": trial_id, "stage": stage, "attempt": attempt}
                    connection.execute(
                        insert(STAGE_JOURNAL).values(**values, began=self._now(), payload=canonical_json(payload))
                    )
                else:
                    check_begin(_row(found))
        except IntegrityError:
            raise InvalidTransition(
                f"trial {trial_id}: {stage} attempt {attempt} was begun by another process just now"
            ) from None

    def end(self, trial_id: str, stage: Stage, attempt: int, outcome: str, payload: dict[str, object]) -> None:
        """See `experiments.ports.Journal`. The row keeps the keys of the intent; those of the outcome win."""
        with self._writing(trial_id) as connection:
            found = _find(connection, trial_id, stage, attempt)
            row = check_end(_row(found) if found is not None else None, trial_id, stage, attempt, outcome)
            if found is not None and row.outcome is None:
                values = {"outcome": outcome, "payload": canonical_json(row.payload | payload)}
                connection.execute(
                    update(STAGE_JOURNAL).where(STAGE_JOURNAL.c.id == found["id"]).values(ended=self._now(), **values)
                )

    def claim_formal_send(self, trial_id: str, job_id: str, host: str) -> bool:
        """Claim the one formal send of a trial: True if it is ours now, False if this very job claimed it before.

        Raises InvalidTransition if another job holds the claim: the load of a trial is sent once, ever.
        """
        try:
            with self._writing(trial_id) as connection:
                claimed = self._claimed(connection, trial_id)
                if claimed is None:
                    values = {"trial_id": trial_id, "job_id": job_id, "host": host}
                    connection.execute(insert(FORMAL_SENDS).values(**values, claimed_at=self._now()))
                    return True
        except IntegrityError:
            with self._store.reading() as connection:
                claimed = self._claimed(connection, trial_id)
        check_claim(trial_id, claimed, job_id)
        return False

    def formal_send(self, trial_id: str) -> str | None:
        """The job that holds the claim."""
        with self._store.reading() as connection:
            return self._claimed(connection, trial_id)

    def _claimed(self, connection: Connection, trial_id: str) -> str | None:
        query = select(FORMAL_SENDS.c.job_id).where(FORMAL_SENDS.c.trial_id == trial_id)
        return connection.execute(query).scalar_one_or_none()

    @contextmanager
    def _writing(self, trial_id: str) -> Iterator[Connection]:
        with self._store.writing() as connection:
            if self._epoch is not None:
                check_epoch(connection, _study_of(connection, trial_id), self._epoch)
            yield connection


def check_begin(row: JournalRow) -> None:
    if row.outcome is not None:
        raise InvalidTransition(
            f"trial {row.trial_id}: {row.stage} attempt {row.attempt} ended as {row.outcome}; take the next attempt"
        )


def check_end(row: JournalRow | None, trial_id: str, stage: Stage, attempt: int, outcome: str) -> JournalRow:
    if row is None:
        raise InvalidTransition(f"trial {trial_id}: {stage} attempt {attempt} ends as {outcome}, but never began")
    if row.outcome not in (None, outcome):
        raise InvalidTransition(
            f"trial {trial_id}: {stage} attempt {attempt} ended as {row.outcome}, it cannot end as {outcome}"
        )
    return row


def check_claim(trial_id: str, claimed: str | None, job_id: str) -> None:
    if claimed != job_id:
        raise InvalidTransition(
            f"trial {trial_id}: its formal load was claimed by job {claimed}; job {job_id} may not send it again"
        )


def _study_of(connection: Connection, trial_id: str) -> str:
    """The study whose ledger started the trial, or which an evaluation is named after."""
    query = select(TRIALS.c.study_id).where(TRIALS.c.trial_id == trial_id)
    evaluated = study_of_evaluation(trial_id)
    if evaluated is not None:
        query = select(STUDIES.c.id).where(STUDIES.c.id == evaluated)
    study_id = connection.execute(query).scalar_one_or_none()
    if study_id is None:
        raise DriverRefused(f"trial {trial_id}: no ledger has started it, so nobody may work on it")
    return str(study_id)


def _find(connection: Connection, trial_id: str, stage: Stage, attempt: int) -> RowMapping | None:
    query = select(STAGE_JOURNAL).where(
        STAGE_JOURNAL.c.trial_id == trial_id,
        STAGE_JOURNAL.c.stage == stage,
        STAGE_JOURNAL.c.attempt == attempt,
    )
    return connection.execute(query.with_for_update()).mappings().one_or_none()


def _row(found: RowMapping) -> JournalRow:
    return JournalRow(
        trial_id=found["trial_id"],
        stage=Stage(found["stage"]),
        attempt=found["attempt"],
        began=found["began"],
        ended=found["ended"],
        outcome=found["outcome"],
        payload=json.loads(found["payload"]),
    )
