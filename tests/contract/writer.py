"""What the processes of `test_processes` do: append to one ledger, or fight for one study."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from experiments.errors import LedgerConflict
from experiments.ledger import OperatorSpoke
from state.database import Database, open_database
from state.errors import DriverRefused

STUDY = "night-1"


def now() -> datetime:
    return datetime.now(UTC)


def said(by: str, reason: str) -> OperatorSpoke:
    return OperatorSpoke(at=now(), mode="run", by=by, reason=reason, file_digest="0" * 64)


def append(url: str, name: str, count: int, tell: int | None = None) -> None:
    """`count` entries, reading again after each conflict; `tell` is a pipe for the positions that were acknowledged."""
    with open_database(url) as database:
        ledger = database.ledger()
        position = ledger.position(STUDY)
        for number in range(count):
            entry = said(name, str(number))
            position = _append(lambda after, entry=entry: ledger.append(STUDY, [entry], after=after), position)
            if tell is not None:
                os.write(tell, f"{position}\n".encode())


def _append(write: Callable[[int], int], position: int) -> int:
    while True:
        try:
            return write(position)
        except LedgerConflict as conflict:
            position = conflict.actual


def hold(url: str, name: str, ttl_s: float, tell: int) -> None:
    """Drive the study and renew the lease until killed; `tell` is a pipe for the epoch."""
    with open_database(url) as database:
        drivers, ttl = database.drivers(now), timedelta(seconds=ttl_s)
        epoch = drivers.acquire(STUDY, name, ttl)
        os.write(tell, f"{epoch}\n".encode())
        while True:
            time.sleep(ttl_s / 3)
            drivers.renew(STUDY, epoch, ttl)


def drive(url: str, name: str, seconds: float) -> None:
    """Take the study whenever it is free, and write under a lease that is too short for what is done with it."""
    with open_database(url) as database:
        _drive(database, name, seconds)


def _drive(database: Database, name: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    drivers = database.drivers(now)
    while time.monotonic() < end:
        try:
            epoch = drivers.acquire(STUDY, name, timedelta(milliseconds=40))
        except DriverRefused:
            time.sleep(0.005)
            continue
        _write_until_refused(database, name, epoch)


def _write_until_refused(database: Database, name: str, epoch: int) -> None:
    ledger = database.ledger(epoch)
    for _ in range(12):
        try:
            ledger.append(STUDY, [said(name, str(epoch))], after=ledger.position(STUDY))
        except (DriverRefused, LedgerConflict):
            return
        time.sleep(0.01)
