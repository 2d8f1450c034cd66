"""Which service process drives a study. At most one does, and an epoch tells the present one from all before it.

The epoch is checked inside the transaction of every append that carries one, so that a process which slept through
the end of its lease writes nothing. Clocks decide only when a takeover may begin, never whether a write is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from state.engine import Store
from state.errors import DriverRefused
from state.models import DRIVERS


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Who drives a study, or drove it last."""

    study_id: str
    owner: str
    epoch: int
    acquired_at: datetime
    expires_at: datetime

    def is_live(self, now: datetime) -> bool:
        return now < self.expires_at


def refuse_taken(driver: Driver, now: datetime) -> DriverRefused:
    left = (driver.expires_at - now).total_seconds()
    return DriverRefused(
        f"study {driver.study_id} is driven by {driver.owner} for another {left:.0f} s; wait, or stop that process"
    )


def refuse_stale(study_id: str, epoch: int, current: Driver | None) -> DriverRefused:
    now_by = f"{current.owner} drives it (epoch {current.epoch})" if current else "nobody drives it"
    return DriverRefused(f"study {study_id}: this process lost it (epoch {epoch}); {now_by}. Nothing was written")


class SqlDrivers:
    """`owner` names one service; the same owner that comes back after a crash takes over at once, with a new epoch."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now

    def acquire(self, study_id: str, owner: str, ttl: timedelta) -> int:
        """Become the driver and return the epoch. Raises DriverRefused while another owner's lease is live."""
        now = self._now()
        try:
            with self._store.writing() as connection:
                current = _read(connection, study_id)
                if current is not None and current.owner != owner and current.is_live(now):
                    raise refuse_taken(current, now)
                return _take(connection, study_id, owner, now, now + ttl, current)
        except IntegrityError:
            raise DriverRefused(f"study {study_id}: another process became its driver just now") from None

    def renew(self, study_id: str, epoch: int, ttl: timedelta) -> None:
        """Extend the lease. Raises DriverRefused if another epoch is current, even after our own lease ran out."""
        with self._store.writing() as connection:
            check_epoch(connection, study_id, epoch)
            expires = self._now() + ttl
            connection.execute(update(DRIVERS).where(DRIVERS.c.study_id == study_id).values(expires_at=expires))

    def release(self, study_id: str, epoch: int) -> None:
        """Stop driving. The epoch is spent: nothing that still carries it is accepted."""
        with self._store.writing() as connection:
            check_epoch(connection, study_id, epoch)
            connection.execute(
                update(DRIVERS).where(DRIVERS.c.study_id == study_id).values(epoch=epoch + 1, expires_at=self._now())
            )

    def current(self, study_id: str) -> Driver | None:
        """Who drives the study, or None if nobody ever did or the lease is over."""
        with self._store.reading() as connection:
            driver = _read(connection, study_id, lock=False)
        return driver if driver is not None and driver.is_live(self._now()) else None


def check_epoch(connection: Connection, study_id: str, epoch: int) -> None:
    """Refuse a stale epoch, and hold off a takeover until this transaction ends."""
    current = _read(connection, study_id)
    if current is None or current.epoch != epoch:
        raise refuse_stale(study_id, epoch, current)


def _read(connection: Connection, study_id: str, *, lock: bool = True) -> Driver | None:
    query = select(DRIVERS).where(DRIVERS.c.study_id == study_id)
    row = connection.execute(query.with_for_update() if lock else query).mappings().one_or_none()
    return Driver(**row) if row is not None else None


def _take(
    connection: Connection, study_id: str, owner: str, now: datetime, until: datetime, current: Driver | None
) -> int:
    epoch = current.epoch + 1 if current is not None else 1
    values = {"owner": owner, "epoch": epoch, "acquired_at": now, "expires_at": until}
    if current is None:
        connection.execute(insert(DRIVERS).values(study_id=study_id, **values))
    else:
        connection.execute(update(DRIVERS).where(DRIVERS.c.study_id == study_id).values(**values))
    return epoch
