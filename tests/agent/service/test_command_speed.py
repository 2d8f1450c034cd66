"""How long a command takes as a whole process, in CPU time: other work on the machine does not count.

The bounds are twice what docs/operations.md says of a quiet machine. Bytecode is cached, as after any first start.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from agent.entrypoints.make_workspace import write_control
from state.database import open_database
from state.models import STUDIES, TRIALS
from tests.factories import an_opening
from tests.state.test_ten_thousand import COUNT, STUDY, _row

TUNELOOP = str(Path(sys.executable).with_name("tuneloop"))
HEAVY = {"paramiko", "httpx", "numpy", "scipy", "langgraph", "openai", "optuna", "matplotlib", "alembic", "fastapi"}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace whose study has 10,000 trials."""
    root = tmp_path_factory.mktemp("crowded")
    root.chmod(0o755)
    with open_database(root / "tuneloop.db") as database:
        database.ledger().append(STUDY, [an_opening()], after=0)
        with database._store.writing() as connection:
            connection.execute(sa.insert(TRIALS), [_row(number) for number in range(COUNT)])
            connection.execute(sa.update(STUDIES).values(trials=COUNT))
    write_control(root, by="test", reason="a test")
    return root


def cpu_seconds(folder: Path, *arguments: str, tries: int = 4) -> tuple[float, str]:
    """The least of some runs, and what the last one printed. The first fills the cache of bytecode."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}
    times = []
    for _ in range(tries):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [TUNELOOP, *arguments], capture_output=True, text=True, env=environment, timeout=60, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(times), done.stdout


def test_status_of_ten_thousand_experiments(crowded: Path, tmp_path: Path) -> None:
    """`tuneloop status`, interpreter and all, takes less than a second (0.4 s on a quiet machine)."""
    seconds, said = cpu_seconds(tmp_path, "status", str(crowded))

    print(f"tuneloop status with {COUNT} trials: {seconds:.3f} s of CPU")
    assert f"{COUNT} trials" in said
    assert "safe to take" in said
    assert seconds < 1.0


def test_the_command_line_starts_at_once(tmp_path: Path) -> None:
    """`tuneloop --help` takes less than 0.3 s (0.1 s on a quiet machine)."""
    seconds, said = cpu_seconds(tmp_path, "--help")

    print(f"tuneloop --help: {seconds:.3f} s of CPU")
    assert "serve" in said
    assert seconds < 0.3


@pytest.mark.parametrize("module", ["agent.entrypoints.cli", "agent.entrypoints.status"])
def test_reading_commands_import_nothing_that_runs_trials(module: str) -> None:
    """Neither SSH, nor HTTP, nor numbers, nor the graph: they are what makes a start slow."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert HEAVY & set(done.stdout.split()) == set()
