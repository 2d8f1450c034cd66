"""tuneloop audit: a clean workspace is clean, and each kind of damage is named with exit code 1."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.goal_text import goal_text
from tests.acceptance.served import TUNELOOP
from tests.acceptance.testbed import PoolBed, make_study, open_pool, read, run_to_end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, PoolBed]]:
    """A study of two trials that ended, and its hosts."""
    folder = tmp_path_factory.mktemp("audit")
    pool = open_pool(folder / "pool")
    workspace = make_study(folder / "study", pool, goal_text(trials=2))
    assert run_to_end(workspace) == 0
    yield workspace.root, pool
    pool.close()


def audit(root: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run([TUNELOOP, "audit", str(root), *options], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_study_that_ended_is_clean(ended: tuple[Path, PoolBed]) -> None:
    """Chain, trials, every artifact's bytes, both hosts and the clients' counter were looked at."""
    code, said = audit(ended[0])

    assert code == 0, said
    assert "entries (chain intact), 2 trials" in said
    assert "NOT_OBSERVED" not in said
    assert said.splitlines()[-1] == "no invariant is violated"


def test_what_was_not_asked_is_said(ended: tuple[Path, PoolBed]) -> None:
    """Offline, the hosts' listings are not observed."""
    code, said = audit(ended[0], "--offline")

    assert code == 0
    assert "NOT_OBSERVED  the hosts' job listings" in said
    assert said.splitlines()[-1] == "no invariant is violated as far as was observed"


def test_a_flipped_byte_of_a_raw_file_is_found(ended: tuple[Path, PoolBed]) -> None:
    """The file behind a number is not what was collected: its name is in the message."""
    artifact = next((ended[0] / "artifacts").glob("*/client.log"))
    kept = artifact.read_bytes()
    artifact.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    code, said = audit(ended[0], "--offline")
    artifact.write_bytes(kept)

    assert code == 1
    assert f"VIOLATED  I3 {artifact.parent.name}: artifact client.log is not what was collected" in said


def test_a_missing_raw_file_is_found(ended: tuple[Path, PoolBed]) -> None:
    """A file that is gone is named as gone."""
    artifact = next((ended[0] / "artifacts").glob("*/prefill.log"))
    kept = artifact.read_bytes()
    artifact.unlink()
    code, said = audit(ended[0], "--offline")
    artifact.write_bytes(kept)

    assert code == 1
    assert "artifact prefill.log is gone" in said


def test_a_second_start_on_the_host_is_found(ended: tuple[Path, PoolBed]) -> None:
    """The client's own counter is believed before our own records are."""
    trial_id = next(iter(read_study(ended)))
    counter = ended[1].folder / "runs.jsonl"
    kept = counter.read_text()
    counter.write_text(kept + f'{{"run": "{trial_id}"}}\n')
    code, said = audit(ended[0])
    counter.write_text(kept)

    assert code == 1
    assert f"VIOLATED  I1 {trial_id}: its client counted 2 starts" in said


def test_an_entry_that_was_edited_is_found(ended: tuple[Path, PoolBed], tmp_path: Path) -> None:
    """A hand in the database breaks the chain: nothing that it says is relied on, and the row is named."""
    copy = tmp_path / "study"
    subprocess.run(["cp", "-a", str(ended[0]), str(copy)], check=True)
    with sqlite3.connect(copy / "tuneloop.db") as database:
        database.execute("update entries set payload = replace(payload, '\"simulated\":true', '\"simulated\":false')")
    database.close()
    code, said = audit(copy, "--offline")

    assert code == 1
    assert "Traceback" not in said
    assert "entry 1 (study_opened) was changed after it was written" in said


def test_a_folder_without_a_study_is_one_line(tmp_path: Path) -> None:
    """Nothing to audit is said in a sentence."""
    code, said = audit(tmp_path)

    assert code != 0
    assert len(said.splitlines()) == 1


def read_study(ended: tuple[Path, PoolBed]) -> list[str]:
    from agent.workspace import Workspace

    return list(read(Workspace(ended[0])).trials)
