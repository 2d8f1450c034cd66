"""Several processes on one database: no append is lost, none is doubled, and a kill leaves a whole ledger."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess

import pytest

from experiments.ledger import OperatorSpoke
from state.database import open_database
from state.errors import DriverRefused
from tests.contract import writer
from tests.contract.writer import STUDY
from tests.factories import an_opening

# Forked from a warm process, because a fresh interpreter takes a second to start. No connection is open at the fork.
FORK = multiprocessing.get_context("fork")


def opened(url: str) -> int:
    with open_database(url) as database:
        return database.ledger().append(STUDY, [an_opening()], after=0)


def start(what: Callable[..., None], *arguments: object) -> BaseProcess:
    process = FORK.Process(target=what, args=arguments)
    process.start()
    return process


def finish(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def spoken(url: str) -> list[OperatorSpoke]:
    with open_database(url) as database:
        return [e for e in database.ledger().entries(STUDY) if isinstance(e, OperatorSpoke)]


def test_no_append_of_four_processes_is_lost(database_url: str) -> None:
    """Whoever meets a conflict reads again and tries again: all entries are there, each once, in one chain."""
    opened(database_url)
    finish([start(writer.append, database_url, name, 25) for name in "abcd"])
    expected = sorted((name, str(number)) for name in "abcd" for number in range(25))
    assert expected == sorted((e.by, e.reason) for e in spoken(database_url))
    with open_database(database_url) as database:
        assert database.ledger().verify(STUDY) == 101


def test_two_services_never_drive_together(database_url: str) -> None:
    """Three processes fight for one study: an epoch writes under one name only, and epochs never go back."""
    opened(database_url)
    finish([start(writer.drive, database_url, name, 1.0) for name in "abc"])
    entries = spoken(database_url)
    epochs = [int(e.reason) for e in entries]
    assert epochs == sorted(epochs)
    assert len({(e.by, e.reason) for e in entries}) == len(set(epochs)) > 1


def test_a_study_of_a_killed_service_is_taken_over_within_its_lease(database_url: str) -> None:
    """kill -9 of the driver: refused while its lease lives, taken over when it has run out, and its epoch is spent."""
    ttl = 2.0
    opened(database_url)
    told, tell = os.pipe()
    process = start(writer.hold, database_url, "a", ttl, tell)
    os.close(tell)
    with os.fdopen(told) as answers:
        first = int(answers.readline())
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        killed_at = time.monotonic()
    process.join(60)
    refusals, epoch = 0, None
    with open_database(database_url) as database:
        drivers = database.drivers(writer.now)
        while epoch is None:
            try:
                epoch = drivers.acquire(STUDY, "b", timedelta(seconds=60))
            except DriverRefused:
                refusals += 1
                time.sleep(0.05)
        waited = time.monotonic() - killed_at
        with pytest.raises(DriverRefused, match="lost it"):
            database.ledger(first).append(STUDY, [writer.said("a", "late")], after=1)
        database.ledger(epoch).append(STUDY, [writer.said("b", "now")], after=1)

    assert refusals > 0
    assert epoch == first + 1
    assert waited < ttl + 5.0  # the room is for a loaded machine


@pytest.mark.parametrize("round_", range(6))
def test_a_kill_at_any_instant_leaves_what_was_acknowledged(database_url: str, round_: int) -> None:
    """After kill -9 the chain verifies, and nothing that the process had been told is stored has gone."""
    url = database_url
    before = opened(url)
    told, tell = os.pipe()
    process = start(writer.append, url, "a", 100_000, tell)
    os.close(tell)
    with os.fdopen(told) as answers:
        first = answers.readline()
        time.sleep(0.0017 * round_)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        lines = [first, *answers]
    process.join(60)
    acknowledged = int([line for line in lines if line.endswith("\n")][-1])
    with open_database(url) as database:
        stored = database.ledger().verify(STUDY)
    assert before < acknowledged <= stored <= acknowledged + 1
