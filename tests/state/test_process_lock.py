"""One service process per workspace on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from state.errors import DriverRefused
from state.process_lock import ProcessLock

FORK = multiprocessing.get_context("fork")


def _hold(path: Path, tell: int) -> None:
    with ProcessLock(path):
        os.write(tell, b"held")
        signal.pause()


def test_a_second_process_is_told_who_holds_the_workspace(tmp_path: Path) -> None:
    """It does not wait; and a kill -9 of the holder frees the workspace at once."""
    path = tmp_path / "service.lock"
    told, tell = os.pipe()
    holder = FORK.Process(target=_hold, args=(path, tell))
    holder.start()
    assert os.read(told, 4) == b"held"
    with pytest.raises(DriverRefused, match=f"driven by process {holder.pid} on this machine"):
        ProcessLock(path).__enter__()
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(10)
    with ProcessLock(path):
        assert path.read_text() == f"{os.getpid()}\n"


def test_leaving_frees_the_workspace(tmp_path: Path) -> None:
    """One after another is fine; one inside another is not."""
    path = tmp_path / "service.lock"
    with ProcessLock(path), pytest.raises(DriverRefused):
        ProcessLock(path).__enter__()
    with ProcessLock(path):
        pass
