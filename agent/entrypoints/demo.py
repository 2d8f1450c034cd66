"""`tuneloop demo`: a whole study on a simulated pool on this machine, over SSH, with the production path above it.

The pool is a process of its own, so that a killed `tuneloop` finds its hosts again, as it would find real ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import typer

from agent.entrypoints.make_workspace import copy_goal, write_control
from agent.entrypoints.operate import read_study
from agent.entrypoints.run import run_study
from agent.workspace import Workspace
from executor.clock import SystemClock
from executor.simulated.pool import (
    FAULTS,
    MIXED_HOSTS,
    PD_HOSTS,
    READY_LINE,
    write_pool_files,
)
from experiments.errors import TuningError
from experiments.measurement import WindowKind
from experiments.study import Study

START_TIMEOUT_S = 20.0
# One real trap of the field is part of the demo: the client's summary fails after a good run, and must be repaired
# from the data without sending the load again.
DEMO_FAULTS = [{"fault": "client_summary_fails", "program": "bench", "times": 1, "match": "-t007/measure"}]


def run_demo(folder: Path, goal: str) -> int:
    folder = folder.resolve()
    workspace = Workspace(folder)
    if not workspace.goal_file.exists():
        _make(folder, goal)
    process = start_pool(folder / "pool")
    try:
        code = run_study(folder)
    finally:
        process.terminate()
        process.wait(timeout=10)
    typer.echo(summary(read_study(workspace), workspace))
    return code


def _make(folder: Path, goal: str) -> None:
    copy_goal(folder, goal)
    mixed = Workspace(folder).read_goal().scenario.deployment == "mixed"
    pool_file = write_pool_files(folder / "pool", MIXED_HOSTS if mixed else PD_HOSTS, pace_s=1.0)
    (folder / "pool" / FAULTS).write_text(json.dumps(DEMO_FAULTS))
    (folder / "pool.yaml").write_bytes(pool_file.read_bytes())
    write_control(folder, by="demo", reason="simulated pool")


def start_pool(folder: Path) -> subprocess.Popen[str]:
    """The SSH servers of the simulated hosts, ready to be connected to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "executor.simulated.pool", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt of the demo must not take its hosts away first
    )
    deadline = SystemClock().monotonic() + START_TIMEOUT_S
    while SystemClock().monotonic() < deadline and process.stdout is not None:
        line = process.stdout.readline()
        if line.strip() == READY_LINE:
            return process
        if not line and process.poll() is not None:
            break
    process.kill()
    raise TuningError(f"the simulated pool in {folder} did not start (exit {process.poll()})")


def summary(study: Study, workspace: Workspace) -> str:
    """The last lines: what was kept, its numbers, where to read on, and that nothing was measured on hardware."""
    lines = [""]
    if study.kept:
        kept = study.kept[-1]
        closed = study.closed[kept.card_digest].classification.comparison
        lines.append(f"kept configuration  {kept.name}")
        lines += [f"  change            {study.cards[k.card_digest].draft.change}" for k in study.kept]
        lines.append(f"  at the formal load {_numbers(study, kept.trial_ids[-1])}")
        if closed is not None:
            lines.append(
                f"  against the incumbent at the same load: {closed.gain:+.2%} [{closed.low:+.2%}, {closed.high:+.2%}]"
            )
        lines.append(f"  to start from it  {workspace.kept / (kept.name + '.yaml')}")
    else:
        lines.append("kept configuration  none: the baseline stands")
    lines.append(f"ledger              {workspace.ledger / 'index.md'}")
    if study.opened.simulated:
        lines.append(f"SIMULATED POOL {study.opened.pool}: no number above was measured on hardware")
    return "\n".join(lines)


def _numbers(study: Study, trial_id: str) -> str:
    sample = study.trials[trial_id].sample
    window = sample.measurement.window(study.goal.objective.window) if sample is not None else None
    if window is None or sample is None:
        return "NOT_OBSERVED"
    per_card = f"{window.output_tok_s_per_card:.2f}" if window.output_tok_s_per_card else "NOT_OBSERVED"
    tpot = f"{window.tpot_mean_ms:.2f}" if window.tpot_mean_ms else "NOT_OBSERVED"
    ttft = f"{window.ttft_mean_s:.2f}" if window.ttft_mean_s else "NOT_OBSERVED"
    kind = WindowKind(window.kind)
    return (
        f"{per_card} tok/s/card, TPOT {tpot} ms, TTFT {ttft} s "
        f"({kind} window: {window.n_requests} of N={sample.load.requests} requests in {window.duration_s:.1f} s)"
    )
