"""The command line: wrong input is one line and exit code 2; what an operator says lands in the file, atomically."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TUNELOOP = str(Path(sys.executable).with_name("tuneloop"))


def tuneloop(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TUNELOOP, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "night"
    done = tuneloop("init", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def test_init_makes_a_paused_workspace_that_checks(workspace: Path) -> None:
    """A new workspace reads well, and nothing of it can start before the operator says so."""
    done = tuneloop("check", str(workspace), "--offline")

    assert done.returncode == 0
    assert "mode pause" in done.stdout


def test_init_never_overwrites(workspace: Path) -> None:
    """A second init is refused and names the file in the way."""
    done = tuneloop("init", str(workspace))

    assert done.returncode == 2
    assert done.stderr.strip().endswith("goal.yaml: exists; take another folder, or remove it first")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tpot_mean < 20 ms", "tpot_mean < 20 tokens", "tokens"),
        ("concurrency: 128", "concurrency: 0", "concurrency"),
        ("direction: maximize", "direction: up", "direction"),
        ("name: flash", "nmae: flash", "nmae"),
    ],
)
def test_a_broken_goal_is_one_line_with_its_place(workspace: Path, old: str, new: str, message: str) -> None:
    """`goal.yaml:line:col: message`, exit code 2, no traceback, nothing lost."""
    goal = workspace / "goal.yaml"
    goal.write_text(goal.read_text().replace(old, new, 1))

    done = tuneloop("check", str(workspace), "--offline")

    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert "goal.yaml:" in lines[0]
    assert message in lines[0]


def test_pause_and_resume_change_the_mode_alone(workspace: Path) -> None:
    """The rest of the operator's file stays as it was."""
    before = (workspace / "state.yaml").read_text()
    resumed = tuneloop("resume", str(workspace), "--reason", "good night", "--by", "ops")
    paused = tuneloop("pause", str(workspace), "--reason", "handing over", "--by", "ops")

    after = (workspace / "state.yaml").read_text()
    assert (resumed.returncode, paused.returncode) == (0, 0)
    assert "mode: pause" in after
    assert "handing over" in after
    lease = next(line for line in before.splitlines() if line.startswith("authorized_until"))
    assert lease in after


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("approve", "deadbeef", "-w"),
        ("show", "c01", "-w"),
        ("ledger",),
    ],
)
def test_a_workspace_without_a_study_is_said_in_one_line(workspace: Path, arguments: tuple[str, ...]) -> None:
    """No traceback where there is nothing to show yet."""
    done = tuneloop(*arguments, str(workspace))

    assert done.returncode in (1, 2)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_an_unknown_shipped_goal_names_those_that_exist(tmp_path: Path) -> None:
    """The message is the list to choose from."""
    done = tuneloop("init", str(tmp_path / "x"), "--goal", "nope")

    assert done.returncode == 2
    assert "16k-zero-cache" in done.stderr


def test_a_wrong_option_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """Typer's own errors follow the same rule."""
    done = tuneloop("run", "--no-such-option")

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
