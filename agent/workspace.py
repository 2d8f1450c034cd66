"""The folder of a study's data, named by the user: goal, pool, control file, database, artifacts, ledger, logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.errors import InputError
from experiments.goal import Goal, parse_baseline, parse_goal
from experiments.serving_config import ServingConfig


@dataclass(frozen=True)
class Workspace:
    root: Path

    @property
    def goal_file(self) -> Path:
        return self.root / "goal.yaml"

    @property
    def pool_file(self) -> Path:
        return self.root / "pool.yaml"

    @property
    def control_file(self) -> Path:
        return self.root / "state.yaml"

    @property
    def status_file(self) -> Path:
        return self.root / "status.yaml"

    @property
    def database(self) -> Path:
        return self.root / "tuneloop.db"

    @property
    def study_file(self) -> Path:
        return self.root / "study.id"

    @property
    def notified_file(self) -> Path:
        return self.root / ".notified"

    @property
    def checkpoints(self) -> Path:
        return self.root / "graph.db"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    @property
    def kept(self) -> Path:
        return self.root / "kept"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def lock(self) -> Path:
        return self.root / ".tuneloop.lock"

    def read_goal(self) -> Goal:
        return parse_goal(read_input(self.goal_file), str(self.goal_file))

    def read_baseline(self, goal: Goal) -> ServingConfig:
        path = self.root / goal.baseline.file
        return parse_baseline(read_input(path), str(path))


def read_input(path: Path) -> bytes:
    """The bytes of a file that a person wrote. InputError, never a traceback, if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(str(path), 0, 0, f"cannot be read: {error.strerror}") from error
