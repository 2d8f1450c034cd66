"""What a change of C costs beyond the formal load: two trials on a running service, over SSH, timed stage by stage.

The load itself is simulated in virtual time; every other stage is the real work of the controller.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from agent.bootstrap import connect_hosts, read_pool
from agent.entrypoints.demo import start_pool
from agent.entrypoints.make_workspace import copy_goal
from agent.workspace import Workspace
from executor.clock import SystemClock
from executor.runner import Runner
from executor.service import tear_down
from executor.simulated.pool import write_pool_files
from executor.trial_plan import TrialPlan
from experiments.goal import starting_config
from experiments.tier_load import CONCURRENCY
from experiments.trial import Stage, Tier, TrialLoad, TrialRecord
from state.memory import MemoryDatabase

REQUESTS = 160


def measure() -> dict[str, float]:
    """Seconds per stage of a hot C change, and their sum without the formal load and the cache preparation."""
    root = Path(tempfile.mkdtemp(prefix="tuneloop-hot-"))
    try:
        return _measure(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _measure(root: Path) -> dict[str, float]:
    copy_goal(root, "16k-zero-cache")
    pool_file = write_pool_files(root / "pool")
    (root / "pool.yaml").write_bytes(pool_file.read_bytes())
    process = start_pool(root / "pool")
    workspace = Workspace(root)
    clock = SystemClock()
    hosts = connect_hosts(read_pool(workspace), clock)
    try:
        runner = Runner(
            pool=read_pool(workspace),
            hosts=hosts,
            journal=MemoryDatabase().journal(clock.now),
            clock=clock,
            report=lambda progress: None,
            artifacts=workspace.artifacts,
        )
        cold = _plan(workspace, 1, 64)
        _run(runner, cold)
        hot = _run(runner, replace(cold, trial_id="bench-t002", **_changed(cold, 48)))
        tear_down(hosts, "bench", 60.0)
        return _figures(hot)
    finally:
        for host in hosts.values():
            host.close()
        process.terminate()
        process.wait(timeout=10)


def _plan(workspace: Workspace, number: int, concurrency: int) -> TrialPlan:
    goal = workspace.read_goal()
    config = starting_config(goal, workspace.read_baseline(goal)).with_value(CONCURRENCY, concurrency)
    return TrialPlan(
        study_id="bench",
        trial_id=f"bench-t{number:03d}",
        tier=Tier.BASELINE,
        config=config,
        scenario=goal.scenario,
        load=TrialLoad(requests=REQUESTS, concurrency=concurrency, rate=6.0, cache="zero"),
        floor=goal.window_floor,
        native_rule=goal.native_rule,
    )


def _changed(plan: TrialPlan, concurrency: int) -> dict[str, object]:
    return {
        "config": plan.config.with_value(CONCURRENCY, concurrency),
        "load": plan.load.model_copy(update={"concurrency": concurrency}),
    }


def _run(runner: Runner, plan: TrialPlan) -> TrialRecord:
    record = runner.run(plan, lambda expected_s: None)
    if not isinstance(record, TrialRecord) or record.measurement is None:
        raise RuntimeError(f"trial {plan.trial_id} has no measurement: {record}")
    return record


def _figures(record: TrialRecord) -> dict[str, float]:
    figures = {f"{time.stage}_s": round(time.seconds, 4) for time in record.stages}
    beyond = [t.seconds for t in record.stages if t.stage not in (Stage.MEASURE, Stage.CACHE)]
    return {**figures, "controller_beyond_the_load_s": round(sum(beyond), 3)}
