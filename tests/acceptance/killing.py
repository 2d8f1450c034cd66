"""Kill services at named boundaries and at random instants, and count what was lost or sent twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from agent.workspace import Workspace
from executor.failpoints import VARIABLE
from experiments.study import Study
from experiments.trial import Reason, Stage
from tests.acceptance.goal_text import goal_text
from tests.acceptance.service import RESUMED, SEQUENCE
from tests.acceptance.testbed import (
    PoolBed,
    Service,
    make_study,
    open_pool,
    read,
    run_to_end,
    start_service,
    violations,
)

IN_START = 0.15  # share of the random kills that may come before the service has said a word
# A machine that is busy must not look like a fault of ours.
PATIENT = {"ready": 120.0, "canary": 60.0, "warm_up": 120.0, "cache": 120.0, "measure": 120.0, "collect": 120.0}
ROOT = Path(__file__).parents[2]
PLACES = ("before_intent", "begun", "before_outcome", "recorded")
SERVERS = ("prefill", "decode", "router")
SENDS = {
    Stage.LAUNCH: [f"launch.{role}.{side}_send" for role in SERVERS for side in ("before", "after")],
    Stage.WARM_UP: ["warm_up.before_send", "warm_up.after_send"],
    Stage.MEASURE: ["measure.before_send", "measure.after_send"],
}  # fmt: skip


def boundaries() -> list[str]:
    """Every named place of one trial on a cold pool, in the order in which it is reached."""
    found = ["ledger.trial_started.before_append", "ledger.trial_started.appended"]
    for stage in SEQUENCE:
        before, begun, *after = (f"{stage}.{place}" for place in PLACES)
        found += [before, begun, *SENDS.get(stage, []), *after]
    return [*found, "ledger.trial_finished.before_append", "ledger.trial_finished.appended"]


@dataclass
class Tally:
    """What a series of kills came to. `resumed_s`: from asking for the service to being where the trial was."""

    kills: int = 0
    studies: int = 0
    trials: int = 0
    duplicated: int = 0
    lost: int = 0
    losses: list[str] = field(default_factory=list)  # what the lost ones ended with
    violations: list[str] = field(default_factory=list)
    resumed_s: list[float] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.kills += other.kills
        self.studies += other.studies
        self.trials += other.trials
        self.duplicated += other.duplicated
        self.lost += other.lost
        self.losses += other.losses
        self.violations += other.violations
        self.resumed_s += other.resumed_s
        self.unreached += other.unreached

    def resumed_at(self, share: float) -> float:
        ordered = sorted(self.resumed_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def judge(workspace: Workspace, pool: PoolBed) -> Tally:
    """Hold what is left of a study against the clients' own counter and the ten invariants. Nothing was injected but
    kills, so a trial without numbers is a lost one, unless the installed engine said that it could teach nothing.
    """
    study = read(workspace)
    starts = Counter(pool.starts())
    resumed = workspace.root / RESUMED
    losses = [_loss(study, trial_id) for trial_id in study.trials if _is_lost(study, trial_id)]
    return Tally(
        studies=1,
        trials=len(study.trials),
        duplicated=sum(starts[trial_id] > 1 for trial_id in study.trials),
        lost=len(losses),
        losses=losses,
        violations=[str(violation) for violation in violations(workspace, pool)],
        resumed_s=[json.loads(line) for line in resumed.read_text().splitlines()] if resumed.exists() else [],
    )


def _is_lost(study: Study, trial_id: str) -> bool:
    record = study.trials[trial_id].record
    if record is None or record.failure is None:
        return record is None
    return (record.failure.stage, record.failure.reason) != (Stage.CHECK, Reason.NO_SIGNIFICANT_GAIN)


def _loss(study: Study, trial_id: str) -> str:
    record = study.trials[trial_id].record
    failure = record.failure if record is not None else None
    if failure is None:
        return f"{trial_id}: open"
    return f"{trial_id}: {failure.stage}, {failure.reason}, {failure.sent}: {failure.detail}"


def kill_at(workspace: Workspace, pool: PoolBed, places: list[str]) -> Tally:
    """One trial, one kill at each place in turn, then to its end."""
    unreached = []
    for place in places:
        code = run_to_end(workspace, **{VARIABLE: place})
        if code != -signal.SIGKILL:
            unreached.append(f"{place}: exit {code}")
    code = run_to_end(workspace)
    tally = judge(workspace, pool)
    tally.kills, tally.unreached = len(places) - len(unreached), unreached
    if code != 0:
        tally.violations.append(f"the study did not end: exit {code}")
    return tally


def kill_at_random(folder: Path, kills: int, seed: int, most_s: float = 1.6) -> Tally:
    """Studies on a pool of their own, each service killed after a random time, until `kills` were done."""
    pool = open_pool(folder / "pool", PATIENT)
    chance = random.Random(seed)
    total = Tally()
    try:
        while total.kills < kills:
            goal = goal_text(f"kills-{total.studies}", trials=12, repeats=4)
            workspace = make_study(folder / f"study-{total.studies}", pool, goal)
            total.kills += _kill_until_it_ends(workspace, chance, kills - total.kills, most_s)
            total.add(judge(workspace, pool))
    finally:
        pool.close()
    return total


def _kill_until_it_ends(workspace: Workspace, chance: random.Random, most: int, most_s: float) -> int:
    """Most instants lie in the work of a service that is up; some in its start, which is as good a time to die."""
    killed = 0
    while killed < most:
        service = start_service(workspace)
        if chance.random() > IN_START:
            _wait_until_up(service)
        service.process.join(chance.uniform(0.0, most_s))
        if service.process.exitcode is not None:
            service.wait()
            return killed
        killed += service.kill() == -signal.SIGKILL
    run_to_end(workspace, 180.0)
    return killed


def _wait_until_up(service: Service, within_s: float = 60.0) -> None:
    """Until it has said its first word."""
    log = service.workspace.root / "service.log"
    before = log.stat().st_size if log.exists() else 0
    until = time.monotonic() + within_s
    while time.monotonic() < until and service.process.is_alive():
        if log.exists() and log.stat().st_size > before:
            return
        service.process.join(0.01)


def in_lanes(folder: Path, kills: int, seed: int, lanes: int = 2) -> Tally:
    """The random kills in parallel lanes, each with a pool of its own."""
    total, lock = Tally(), threading.Lock()

    def lane(number: int) -> None:
        found = kill_at_random(folder / f"lane-{number}", -(-kills // lanes), seed + number)
        with lock:
            total.add(found)

    with ThreadPoolExecutor(lanes) as threads:
        for done in [threads.submit(lane, number) for number in range(lanes)]:
            done.result()
    return total


def cold_start_s(tuneloop: str) -> float:
    """What a service pays that is not forked from a warm parent: a new interpreter, and the imports of `run`."""
    python = str(Path(tuneloop).with_name("python"))
    began = time.monotonic()
    subprocess.run([python, "-c", "import agent.entrypoints.run, agent.graph"], check=True, cwd=ROOT)
    return time.monotonic() - began
