"""A right that one process has at a time, kept alive while it lives: to drive a study, or to work on a pool.

A process that lost it writes nothing more: every append carries its epoch, so that a lost right is harmless.
"""

from __future__ import annotations

import threading
from datetime import timedelta

import structlog

from experiments.errors import TuningError
from state.drivers import SqlDrivers
from state.errors import DriverRefused

log = structlog.get_logger(__name__)

TTL = timedelta(minutes=2)
RENEW_S = TTL.total_seconds() / 3


class Drive:
    """Acquired when made. Raises DriverRefused while another owner's lease is live."""

    def __init__(self, drivers: SqlDrivers, subject: str, owner: str) -> None:
        self._drivers, self.subject = drivers, subject
        self.epoch = drivers.acquire(subject, owner, TTL)
        self.is_lost = False
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def keep_alive(self) -> None:
        """Renew in the background, for a process that has nobody else to do it."""
        self._thread = threading.Thread(target=self._renew, name=f"drive-{self.subject}", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Extend the lease. A database that does not answer now is asked again next time."""
        if self.is_lost or self._done.is_set():
            return
        try:
            self._drivers.renew(self.subject, self.epoch, TTL)
        except DriverRefused as error:
            self.is_lost = True
            log.warning("drive.lost", subject=self.subject, error=str(error))
        except TuningError as error:
            log.warning("drive.not_renewed", subject=self.subject, error=str(error))

    def stop(self) -> None:
        """Stop renewing. The lease is left to run out or to be taken over by the same owner."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=TTL.total_seconds())

    def release(self) -> None:
        """Give the right back at once."""
        self.stop()
        if self.is_lost:
            return
        try:
            self._drivers.release(self.subject, self.epoch)
        except TuningError as error:
            log.warning("drive.not_released", subject=self.subject, error=str(error))

    def _renew(self) -> None:
        while not self._done.wait(RENEW_S):
            self.renew()
