"""Whose turn it is on a pool: one study at a time, from its first trial until it waits or ends.

Three guards, from the quick one to the last one: this process's own list, a lease in each database, and the hosts'
leases. A pool on which any study has an unfinished trial is nobody else's, however long ago that was: a load may still
run there. Pools are told apart by their names.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.drive import Drive
from experiments.errors import TuningError
from state.database import Database
from state.drivers import SqlDrivers
from state.errors import DriverRefused
from state.views import StudyRow

PREFIX = "pool:"


class PoolTurns:
    """What one process knows of all its studies. `databases`: every one that a study of a shared pool may be in."""

    def __init__(self, databases: Sequence[Database] = ()) -> None:
        self._databases = tuple(databases)
        self._holders: dict[str, str] = {}
        self._lock = threading.Lock()

    def is_wanted(self, pool: str, study_id: str) -> bool:
        """Whether another study, which has not ended, is on this pool."""
        return any(study.id != study_id and study.stop_reason is None for study in self._on(pool))

    def claim(self, pool: str, study_id: str) -> str | None:
        with self._lock:
            holder = self._holders.setdefault(pool, study_id)
        return None if holder == study_id else f"pool {pool} is in use by study {holder}"

    def unfinished(self, pool: str, study_id: str) -> str | None:
        """Why the pool is not free although nobody has its turn: an unfinished trial of another study."""
        for study in self._on(pool):
            if study.id == study_id:
                continue
            for database in self._databases:
                trial = database.views().unfinished(study.id)
                if trial is not None:
                    return f"pool {pool} is not free: trial {trial.trial_id} is {trial.state}"
        return None

    def drop(self, pool: str, study_id: str) -> None:
        with self._lock:
            if self._holders.get(pool) == study_id:
                del self._holders[pool]

    def _on(self, pool: str) -> list[StudyRow]:
        return [study for database in self._databases for study in database.views().studies() if study.pool == pool]


@dataclass
class PoolTurn:
    """One study's turn on its pool. `take` is asked again and again; it is cheap once the turn is ours."""

    turns: PoolTurns
    drivers: SqlDrivers
    pool: str
    study_id: str
    _drive: Drive | None = field(default=None, init=False)

    @property
    def is_ours(self) -> bool:
        return self._drive is not None and not self._drive.is_lost

    def take(self) -> str | None:
        """None if the turn is ours now, else why not."""
        if self.is_ours:
            return None
        why = self.turns.claim(self.pool, self.study_id)
        if why is None:
            why = self._acquire()
        if why is not None:
            self.give_back()
        return why

    def renew(self) -> None:
        drive = self._drive
        if drive is not None:
            drive.renew()

    def give_back(self) -> None:
        if self._drive is not None:
            self._drive.release()
        self._drive = None
        self.turns.drop(self.pool, self.study_id)

    def forget(self) -> None:
        """Leave the lease to run out: what the study started may still run."""
        if self._drive is not None:
            self._drive.stop()
        self._drive = None
        self.turns.drop(self.pool, self.study_id)

    def _acquire(self) -> str | None:
        try:
            self._drive = Drive(self.drivers, PREFIX + self.pool, self.study_id)
            return self.turns.unfinished(self.pool, self.study_id)
        except DriverRefused:
            holder = self.drivers.current(PREFIX + self.pool)
            return (
                f"pool {self.pool} is in use by study {holder.owner}" if holder else f"pool {self.pool} was just taken"
            )
        except TuningError as error:
            return f"pool {self.pool}: who uses it cannot be learned: {error}"
