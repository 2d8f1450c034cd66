"""The disk of the service: full in the middle of a trial, and old raw files that go."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from agent.service.retention import remove_old_artifacts
from executor import artifacts
from executor.stages import preparation
from experiments.errors import StoreError
from experiments.trial import Stage
from tests.acceptance.desk import Desk, Hosts, open_desk, open_hosts, outcome
from tests.acceptance.goal_text import goal_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VALID = ("valid", "", "", "finished")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    opened = open_hosts(tmp_path / "pool")
    yield opened
    opened.close()


@contextlib.contextmanager
def a_desk(root: Path, hosts: Hosts) -> Iterator[Desk]:
    desk = open_desk(root, hosts, goal_text(trials=1000))
    try:
        yield desk
    finally:
        desk.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of sixteen megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this process may not mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Every byte of it."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    stream.write(b"\xa5" * size)
    return filler


def go_on(desk: Desk) -> str | None:
    """Why it waits: its own word, or an error of the record, after which a service opens the study again."""
    try:
        return desk.go_on()
    except StoreError as error:
        return str(error)


@pytest.mark.parametrize("stage", [Stage.LAUNCH, Stage.MEASURE, Stage.COLLECT])
def test_a_disk_that_fills_up_in_a_trial_costs_no_measurement(small_disk: Path, hosts: Hosts, stage: Stage) -> None:
    """Not one byte is left from some stage on: nothing is sent that is not on record; with room again it ends."""
    with a_desk(small_disk / "study", hosts) as desk:
        trial_id = desk.started()
        fillers: list[Path] = []
        with desk.at(stage, lambda: fillers.append(fill(small_disk))):
            waits = go_on(desk)
        again = go_on(desk)
        before = desk.hosts.starts().count(trial_id)
        fillers[0].unlink()
        desk.reopen()
        desk.go_on()
        trial = desk.study.trials[trial_id]

        assert waits is not None
        assert "full" in waits or "No space left" in waits
        assert again is not None
        assert before == (1 if stage is Stage.COLLECT else 0)
        assert outcome(trial) == VALID
        assert desk.starts_of(trial) == 1
        assert desk.violations() == ()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_raw_files_without_room_are_collected_later(
    tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The load is over and its data is on the host: the trial waits with the reason, and sends nothing again."""
    write = artifacts._write_durably

    def full(path: Path, data: bytes) -> None:
        raise OSError(code, os.strerror(code), str(path))

    with a_desk(tmp_path / "study", hosts) as desk:
        trial_id = desk.started()
        monkeypatch.setattr(artifacts, "_write_durably", full)
        waits = [desk.go_on(), desk.go_on()]
        monkeypatch.setattr(artifacts, "_write_durably", write)
        desk.go_on()
        trial = desk.study.trials[trial_id]

        assert waits == [f"this machine's disk: {os.strerror(code)}; make room, and the collect stage goes on"] * 2
        assert outcome(trial) == VALID
        assert desk.starts_of(trial) == 1
        assert desk.violations() == ()


def test_a_host_without_room_is_waited_for(tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name and what is free are said, nothing is sent, and no fault is recorded."""
    with a_desk(tmp_path / "study", hosts) as desk:
        trial_id = desk.started()
        monkeypatch.setattr(preparation, "MIN_FREE_BYTES", 1 << 60)
        waits = desk.go_on()
        monkeypatch.undo()
        desk.go_on()
        trial = desk.study.trials[trial_id]

        assert re.fullmatch(r"host [pd]0: only \d+ MiB are free in the workdir; make room there", str(waits))
        assert outcome(trial) == VALID
        assert desk.violations() == ()


def test_old_raw_files_go_and_what_they_were_stays(tmp_path: Path, hosts: Hosts) -> None:
    """Only those that are old enough; their hashes stand in the record, and the audit finds nothing amiss."""
    with a_desk(tmp_path / "study", hosts) as desk:
        trial_id = desk.run().started.trial_id
        folder = desk.workspace.artifacts / trial_id
        files = list_files(folder)
        young = remove_old_artifacts(desk.application, timedelta(days=1))
        between = list_files(folder)
        recorded = desk.application.database.views().artifacts(trial_id)
        old = remove_old_artifacts(desk.application, timedelta(0))

        assert files
        assert (young, between) == (0, files)
        assert (old, folder.exists()) == (len(recorded), False)
        assert remove_old_artifacts(desk.application, timedelta(0)) == 0
        assert desk.violations() == ()


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
