"""The store in memory: the same contracts as the database, for simulation and tests. Gone with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from experiments.errors import InvalidTransition, LedgerConflict
from experiments.ledger import LedgerEntry, TrialStarted
from experiments.ports import JournalRow
from experiments.trial import Stage, study_of_evaluation
from state.chain import GENESIS, Link, link, plain, read_entries, verify_chain
from state.drivers import Driver, refuse_stale, refuse_taken
from state.errors import DriverRefused
from state.journal_store import check_begin, check_claim, check_end
from state.ledger_store import check_opening

Key = tuple[str, Stage, int]


@dataclass(kw_only=True)
class _Shelf:
    """What the tables hold."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    links: dict[str, list[Link]] = field(default_factory=dict)
    study_of: dict[str, str] = field(default_factory=dict)
    journal: dict[Key, JournalRow] = field(default_factory=dict)
    sends: dict[str, str] = field(default_factory=dict)
    drivers: dict[str, Driver] = field(default_factory=dict)

    def check_epoch(self, study_id: str, epoch: int | None) -> None:
        current = self.drivers.get(study_id)
        if epoch is not None and (current is None or current.epoch != epoch):
            raise refuse_stale(study_id, epoch, current)


class MemoryDatabase:
    """The twin of `state.database.Database`."""

    def __init__(self) -> None:
        self._shelf = _Shelf()

    def ledger(self, epoch: int | None = None) -> MemoryLedger:
        return MemoryLedger(self._shelf, epoch)

    def journal(self, now: Callable[[], datetime], epoch: int | None = None) -> MemoryJournal:
        return MemoryJournal(self._shelf, now, epoch)

    def drivers(self, now: Callable[[], datetime]) -> MemoryDrivers:
        return MemoryDrivers(self._shelf, now)


class MemoryLedger:
    """The twin of `SqlLedger`. Keeps texts, so that an entry comes back as it would from a database."""

    def __init__(self, shelf: _Shelf, epoch: int | None = None) -> None:
        self._shelf, self._epoch = shelf, epoch

    def entries(self, study_id: str, after: int = 0) -> Sequence[LedgerEntry]:
        with self._shelf.lock:
            links = self._shelf.links.get(study_id, [])[after:]
        return read_entries(links)

    def position(self, study_id: str) -> int:
        with self._shelf.lock:
            return len(self._shelf.links.get(study_id, []))

    def append(self, study_id: str, entries: Sequence[LedgerEntry], *, after: int) -> int:
        shelf = self._shelf
        with shelf.lock:
            shelf.check_epoch(study_id, self._epoch)
            links = shelf.links.get(study_id, [])
            if len(links) != after:
                raise LedgerConflict(study_id, after, len(links))
            check_opening(study_id, after, entries)
            started = self._new_trials(study_id, entries)
            added = list(link(study_id, after, links[-1].hash if links else GENESIS, entries))
            if added:
                shelf.links[study_id] = links + added
            shelf.study_of.update(dict.fromkeys(started, study_id))
            return after + len(added)

    def verify(self, study_id: str) -> int:
        with self._shelf.lock:
            links = list(self._shelf.links.get(study_id, []))
        return verify_chain(study_id, links, len(links), links[-1].hash if links else GENESIS)

    def _new_trials(self, study_id: str, entries: Sequence[LedgerEntry]) -> list[str]:
        started = [entry.trial_id for entry in entries if isinstance(entry, TrialStarted)]
        for trial_id in started:
            if trial_id in self._shelf.study_of or started.count(trial_id) > 1:
                raise InvalidTransition(f"study {study_id}: trial {trial_id} exists already")
        return started


class MemoryJournal:
    """The twin of `SqlJournal`."""

    def __init__(self, shelf: _Shelf, now: Callable[[], datetime], epoch: int | None = None) -> None:
        self._shelf, self._now, self._epoch = shelf, now, epoch

    def rows(self, trial_id: str) -> Sequence[JournalRow]:
        with self._shelf.lock:
            return [row for key, row in self._shelf.journal.items() if key[0] == trial_id]

    def begin(self, trial_id: str, stage: Stage, attempt: int, payload: dict[str, object]) -> None:
        with self._shelf.lock:
            self._check_epoch(trial_id)
            found = self._shelf.journal.get((trial_id, stage, attempt))
            if found is not None:
                check_begin(found)
                return
            self._shelf.journal[trial_id, stage, attempt] = JournalRow(
                trial_id=trial_id,
                stage=stage,
                attempt=attempt,
                began=self._now(),
                ended=None,
                outcome=None,
                payload=plain(payload),
            )

    def end(self, trial_id: str, stage: Stage, attempt: int, outcome: str, payload: dict[str, object]) -> None:
        with self._shelf.lock:
            self._check_epoch(trial_id)
            key = (trial_id, stage, attempt)
            row = check_end(self._shelf.journal.get(key), trial_id, stage, attempt, outcome)
            if row.outcome is None:
                merged = plain(row.payload | payload)
                self._shelf.journal[key] = replace(row, ended=self._now(), outcome=outcome, payload=merged)

    def claim_formal_send(self, trial_id: str, job_id: str, host: str) -> bool:
        with self._shelf.lock:
            self._check_epoch(trial_id)
            if trial_id not in self._shelf.sends:
                self._shelf.sends[trial_id] = job_id
                return True
            check_claim(trial_id, self._shelf.sends[trial_id], job_id)
            return False

    def formal_send(self, trial_id: str) -> str | None:
        with self._shelf.lock:
            return self._shelf.sends.get(trial_id)

    def _check_epoch(self, trial_id: str) -> None:
        if self._epoch is None:
            return
        evaluated = study_of_evaluation(trial_id)
        study_id = evaluated if evaluated in self._shelf.links else self._shelf.study_of.get(trial_id)
        if study_id is None:
            raise DriverRefused(f"trial {trial_id}: no ledger has started it, so nobody may work on it")
        self._shelf.check_epoch(study_id, self._epoch)


class MemoryDrivers:
    """The twin of `SqlDrivers`."""

    def __init__(self, shelf: _Shelf, now: Callable[[], datetime]) -> None:
        self._shelf, self._now = shelf, now

    def acquire(self, study_id: str, owner: str, ttl: timedelta) -> int:
        now = self._now()
        with self._shelf.lock:
            current = self._shelf.drivers.get(study_id)
            if current is not None and current.owner != owner and current.is_live(now):
                raise refuse_taken(current, now)
            epoch = current.epoch + 1 if current is not None else 1
            self._shelf.drivers[study_id] = Driver(
                study_id=study_id, owner=owner, epoch=epoch, acquired_at=now, expires_at=now + ttl
            )
            return epoch

    def renew(self, study_id: str, epoch: int, ttl: timedelta) -> None:
        with self._shelf.lock:
            self._shelf.check_epoch(study_id, epoch)
            driver = self._shelf.drivers[study_id]
            self._shelf.drivers[study_id] = replace(driver, expires_at=self._now() + ttl)

    def release(self, study_id: str, epoch: int) -> None:
        with self._shelf.lock:
            self._shelf.check_epoch(study_id, epoch)
            driver = self._shelf.drivers[study_id]
            self._shelf.drivers[study_id] = replace(driver, epoch=epoch + 1, expires_at=self._now())

    def current(self, study_id: str) -> Driver | None:
        with self._shelf.lock:
            driver = self._shelf.drivers.get(study_id)
        return driver if driver is not None and driver.is_live(self._now()) else None
