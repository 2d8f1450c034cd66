"""`tuneloop check`: every file of a workspace read, every rule that needs no machine applied, every host asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.bootstrap import connect_hosts, read_pool
from agent.workspace import Workspace
from executor.clock import SystemClock
from executor.engines.release import parse_release
from executor.engines.size_rules import check_sizes
from executor.engines.violation import Severity
from executor.pool import Pool, check_fit
from executor.trial_plan import workload_of
from experiments.errors import InputError
from experiments.goal import Goal, starting_config
from experiments.serving_config import ServingConfig
from state.control import ControlFile


def check_workspace(root: Path, *, contact: bool) -> Iterator[str]:
    """One line per thing that is well; the first that is not is raised as InputError."""
    workspace = Workspace(root.resolve())
    goal = workspace.read_goal()
    yield f"goal.yaml       {goal.name}: {len(goal.knobs)} knobs, budget {goal.budget.trials} trials"
    config = starting_config(goal, workspace.read_baseline(goal))
    pool = read_pool(workspace)
    check_fit(pool, goal, str(workspace.pool_file))
    yield from _check_sizes(workspace, goal, config, pool)
    simulated = ", SIMULATED" if pool.simulated else ""
    yield f"pool.yaml       {pool.name}: {pool.cards.total} cards, {len(pool.hosts)} hosts{simulated}"
    reading = ControlFile(workspace.control_file).read()
    yield f"state.yaml      {reading.problem or f'mode {reading.state.mode}, by {reading.state.by}'}"
    if contact:
        yield from _ask_hosts(pool)


def _check_sizes(workspace: Workspace, goal: Goal, config: ServingConfig, pool: Pool) -> Iterator[str]:
    found = check_sizes(config, parse_release(pool.engine.version), workload_of(goal.scenario))
    invalid = [v for v in found if v.severity is Severity.INVALID]
    if invalid:
        file = str(workspace.root / goal.baseline.file)
        raise InputError(file, 0, 0, "; ".join(v.message for v in invalid))
    yield f"{goal.baseline.file:<15} {len(config.settings)} settings"
    for violation in found:
        yield f"                note: {violation.message}"


def _ask_hosts(pool: Pool) -> Iterator[str]:
    for name, host in connect_hosts(pool, SystemClock()).items():
        try:
            facts = host.facts()
        finally:
            host.close()
        free = facts.disk_free_bytes >> 30
        slow = f", slow login shell {facts.login_shell_ms:.0f} ms" if facts.login_shell_ms > 2000 else ""
        yield f"host {name:<10} python {facts.python_version}, {free} GiB free{slow}"
