"""The right to drive one study, kept alive while this process lives. A process that lost it writes nothing more."""

from __future__ import annotations

import threading
from datetime import timedelta

import structlog

from experiments.errors import TuningError
from state.drivers import SqlDrivers

log = structlog.get_logger(__name__)

TTL = timedelta(minutes=2)


class Drive:
    """Acquired when made, renewed in the background. Every append carries its epoch, so a lost drive is harmless."""

    def __init__(self, drivers: SqlDrivers, study_id: str, owner: str) -> None:
        self._drivers, self._study_id = drivers, study_id
        self.epoch = drivers.acquire(study_id, owner, TTL)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"drive-{study_id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing. The lease is left to run out or to be taken over by the same owner."""
        self._done.set()
        self._thread.join(timeout=TTL.total_seconds())

    def _renew(self) -> None:
        while not self._done.wait(TTL.total_seconds() / 3):
            try:
                self._drivers.renew(self._study_id, self.epoch, TTL)
            except TuningError as error:
                log.warning("drive.lost", study=self._study_id, error=str(error))
                return
