"""`make lab`: the unchanged product on a real prefill/decode pair, and what must be true of what it leaves behind.

Four studies on the same two hosts. In the first nothing is disturbed: its ledger is made from real servers. In the
second the decode server is killed while the load runs: a fault of stage measure, without a number. In the third a
stranger listens on the decode server's port: a fault of stage launch, and the stranger is left alone. In the fourth a
model with experts gets a layout: recorded by the engine, fitted from its dump, loaded and attested.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent.entrypoints.make_workspace import write_control
from agent.entrypoints.operate import read_study
from agent.workspace import Workspace
from executor.engines.server_log import PrefillBatch, parse_server_log
from executor.pool import Pool, parse_pool
from experiments.study import Study, TrialState
from experiments.trial import Reason, Stage
from tests.lab.hosts import HERE, LAB, make_model, running_hosts, write_hosts

CAP = "prefill.flag.prefill-max-requests"
BATCHES = {1: 24, 2: 17}  # of 8 prompts of 2052 tokens at chunk 1024 and page 128, as of 16388 at 8192
STUDY_LIMIT_S = 3600.0
FAULT_LIMIT_S = 900.0


class LabFailed(Exception):
    """Something that must be true is not; the message says what was seen."""


@dataclass
class Outcome:
    """What the lab saw, for build/lab.json."""

    held: list[str] = field(default_factory=list)  # scenes in which everything was as it must be
    ledger: str = ""
    seconds: float = 0.0
    trials: int = 0
    measured: int = 0
    faults: list[dict[str, str]] = field(default_factory=list)
    cards: list[dict[str, str]] = field(default_factory=list)
    batches: dict[str, list[int]] = field(default_factory=dict)  # by cap: of every run of 8 requests
    live_samples: dict[str, int] = field(default_factory=dict)  # by server: over all loads of the study
    profiles: list[str] = field(default_factory=list)  # conclusions, or why there are none
    layout: dict[str, str] = field(default_factory=dict)
    killed_decode: dict[str, str] = field(default_factory=dict)
    orphan: dict[str, str] = field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/lab"), help="workspaces and hosts; kept and reused")
    parser.add_argument("--out", type=Path, default=Path("build/lab.json"))
    parser.add_argument("--only", choices=list(SCENES), action="append")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts and servers are ended on the way out
    folder, began, outcome = options.folder.resolve(), time.monotonic(), Outcome()
    chosen = options.only or list(SCENES)
    make_model()
    pool_file = write_hosts(folder / "hosts")
    pool = parse_pool(pool_file.read_bytes(), str(pool_file))
    try:
        with running_hosts(folder / "hosts"):
            for name in chosen:
                say(f"== {name}")
                SCENES[name](make_workspace(folder, name, pool_file), pool, outcome)
                outcome.held.append(name)
    finally:  # what was seen before something failed is worth reading
        outcome.seconds = round(time.monotonic() - began, 1)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(asdict(outcome), indent=1) + "\n")
    say(f"a ledger made from real servers: {outcome.ledger}" if outcome.ledger else "no study was asked for")
    say(f"figures: {options.out}")
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def make_workspace(folder: Path, name: str, pool_file: Path) -> Workspace:
    """A workspace as a user makes one: copies of the lab's files and an authorization."""
    root = folder / name
    if not root.exists():
        root.mkdir(parents=True)
        goal = "goal-layout.yaml" if name == "layout" else "goal.yaml"
        (root / "goal.yaml").write_text((HERE / goal).read_text())
        (root / "baseline.yaml").write_text((HERE / "baseline.yaml").read_text())
        pool = pool_file.read_text()
        (root / "pool.yaml").write_text(with_experts(pool) if name == "layout" else pool)
    (root / "state.yaml").unlink(missing_ok=True)
    write_control(root, by="lab", reason="real servers on this machine")
    return Workspace(root)


def with_experts(pool: str) -> str:
    """The same hosts with the model that has experts, and a layout to be made. Nothing is profiled here."""
    kept = [line for line in pool.splitlines() if not line.startswith("profile:")]
    layouts = "layouts: {fitted: {record: {requests: 8, concurrency: 4}, fit: {redundant_experts: 2}}}"
    return "\n".join([*kept, layouts, ""]).replace(f"{LAB}/model", f"{LAB}/model-experts")


# the four scenes


def undisturbed(workspace: Workspace, _: Pool, outcome: Outcome) -> None:
    """A whole study. Whatever its verdicts are, its records have to be right."""
    run_product(workspace, "check", limit_s=120)
    run_product(workspace, "run", limit_s=STUDY_LIMIT_S)
    run_product(workspace, "audit", limit_s=120)
    study = read_study(workspace)
    outcome.ledger = str(workspace.ledger / "index.md")
    outcome.trials = len(study.trials)
    outcome.measured = sum(t.sample is not None for t in study.trials.values())
    outcome.cards = [describe_card(study, digest) for digest in study.cards]
    outcome.faults = [f for t in study.trials.values() for f in faults_of(t)]
    outcome.batches = {str(cap): counts for cap, counts in prefill_batches(study, workspace).items()}
    outcome.live_samples = live_samples(study)
    outcome.profiles = [note for t in study.trials.values() for note in profile_notes(t)]
    judge_study(study, workspace, outcome)


def judge_study(study: Study, workspace: Workspace, outcome: Outcome) -> None:
    expect(not study.opened.simulated, "the pool is not simulated")
    expect(Path(outcome.ledger).is_file(), f"there is a ledger at {outcome.ledger}")
    caps = [c for c in study.cards.values() if str(c.draft.change.path) == CAP]
    expect(bool(caps), f"a card changes {CAP}; there are {[c['card'] for c in outcome.cards]}")
    expect(outcome.measured >= 6, f"six trials or more have a number; {outcome.measured} of {outcome.trials} have")
    for cap, wanted in BATCHES.items():
        counts = outcome.batches.get(str(cap), [])
        expect(bool(counts), f"prefill-max-requests {cap} was measured")
        seen = f"prefill-max-requests {cap}: {counts} batches of 8 requests in the servers' own logs, {wanted} expected"
        expect(set(counts) == {wanted}, seen)
    expect(all(outcome.live_samples.values()), f"both servers were sampled under load: {outcome.live_samples}")
    expect(bool(outcome.profiles), f"servers were profiled: {outcome.profiles}")
    for trial in study.trials.values():
        record = trial.record
        if record is not None and record.measurement is not None:
            expect(record.server_version is not None, f"{record.trial_id} knows the version of its servers")
            expect(not record.measurement.simulated, f"{record.trial_id} is not simulated")


def live_samples(study: Study) -> dict[str, int]:
    """How often each server answered about its queues while a load ran."""
    found = {"prefill": 0, "decode": 0}
    for trial in study.trials.values():
        for rank in () if trial.record is None else trial.record.live:
            found[rank.role] += rank.samples
    return found


def profile_notes(trial: TrialState) -> list[str]:
    record = trial.record
    return [] if record is None else [s.note for s in record.stages if s.stage is Stage.PROFILE]


def prefill_batches(study: Study, workspace: Workspace) -> dict[int, list[int]]:
    """Batches in the prefill server's own log of every measured run of 8 requests, by the cap.

    A health check of the router, which asks each worker for one token now and then, is a batch of one token.
    """
    found: dict[int, list[int]] = {}
    for name, trial in study.trials.items():
        log = workspace.artifacts / name / "prefill.log"
        if trial.sample is None or trial.started.load.requests != 8 or not log.is_file():
            continue
        records = parse_server_log(log.read_text(errors="replace").splitlines())
        count = sum(isinstance(r, PrefillBatch) and (r.new_tokens or 0) > 1 for r in records)
        found.setdefault(int(str(trial.started.config.settings[CAP])), []).append(count)
    return found


def decode_dies(workspace: Workspace, pool: Pool, outcome: Outcome) -> None:
    """SIGKILL to the decode server's process tree while the first formal load runs."""
    with Product(workspace, "run") as process:
        wait_for(lambda: load_is_running(workspace, pool), "the formal load to reach the servers", process)
        say("killing the decode server")
        kill_server(pool, "d0", "decode")
        wait_for(lambda: first_failure(workspace) is not None, "the trial to end", process)
    trial = first_failure(workspace)
    if trial is None or trial.record is None or trial.record.failure is None:
        raise LabFailed("the trial has no recorded failure")
    run_product(workspace, "audit", limit_s=120)
    outcome.killed_decode = describe_failure(trial)
    say(f"recorded: {outcome.killed_decode}")
    expect(trial.record.failure.stage is Stage.MEASURE, "the fault is one of stage measure")
    expect(trial.record.measurement is None, "there is no number")
    expect(trial.record.failure.reason in (Reason.ENVIRONMENT, Reason.CLIENT), "it is an orchestration fault")
    expect(not trial.record.configuration_caused, "the configuration is not blamed")
    expect("decode" in trial.record.failure.detail, "the fault names the decode server")


def stranger_on_the_port(workspace: Workspace, pool: Pool, outcome: Outcome) -> None:
    """A process that is not ours answers on the decode port before the study starts."""
    with socket.create_server(("127.0.0.1", pool.hosts["d0"].port)) as stranger:
        run_product(workspace, "run", limit_s=FAULT_LIMIT_S)
        expect(stranger.getsockname()[1] == pool.hosts["d0"].port, "the stranger still listens")
    trial = first_failure(workspace)
    if trial is None or trial.record is None or trial.record.failure is None:
        raise LabFailed("a study started beside a stranger")
    outcome.orphan = describe_failure(trial)
    say(f"recorded: {outcome.orphan}")
    expect(trial.record.failure.stage is Stage.LAUNCH, "the fault is one of stage launch")
    expect(trial.record.measurement is None, "there is no number")
    expect(str(pool.hosts["d0"].port) in trial.record.failure.detail, "the fault names the port")


def layout_on_experts(workspace: Workspace, pool: Pool, outcome: Outcome) -> None:
    """Record, fit and load with the engine's own recorder and loader, and a number at the end."""
    run_product(workspace, "run", limit_s=STUDY_LIMIT_S)
    run_product(workspace, "audit", limit_s=120)
    study = read_study(workspace)
    (card,) = study.cards.values()
    trials = [t for t in study.trials.values() if t.started.card_digest == card.digest and t.record is not None]
    record = trials[0].record
    assert record is not None
    times = {time.stage: time for time in record.stages}
    fitted = [source for source in record.sources if "layout fitted" in source]
    dumps = [a.name for a in record.artifacts if "expert_distribution_recorder_" in a.name]
    outcome.layout = {
        "card": card.name,
        "recorded": times[Stage.RECORD].note if Stage.RECORD in times else "",
        "seconds": f"record {times[Stage.RECORD].seconds:.0f}, fit {times[Stage.FIT].seconds:.0f}" if fitted else "",
        "fitted": "".join(fitted),
        "dump": "".join(dumps),
        "fault": "" if record.failure is None else f"{record.failure.stage}: {record.failure.detail}",
    }
    expect(
        record.failure is None, f"the layout was recorded, fitted and loaded; {outcome.layout['fault'] or 'no fault'}"
    )
    expect(len(dumps) == 1 and dumps[0].endswith(".pt"), f"the dump is the engine's own: {dumps}")
    expect(len(fitted) == 1 and "18 slots" in fitted[0], f"16 experts and 2 redundant ones: {fitted}")
    log = (workspace.artifacts / record.trial_id / "prefill.startup.log").read_text(errors="replace")
    expect("init_expert_location from init_by_mapping" in log, "the engine read the map")
    expect("expert_distribution_recorder_mode': None" in log, "no recorder was on in the formal run")
    expect(record.measurement is not None, "and the trial has a number")


SCENES: dict[str, Callable[[Workspace, Pool, Outcome], None]] = {
    "study": undisturbed,
    "kill": decode_dies,
    "orphan": stranger_on_the_port,
    "layout": layout_on_experts,
}


# the product, as its user runs it


class Product:
    """`tuneloop COMMAND DIR` as a process; interrupted at the end, and its servers ended."""

    def __init__(self, workspace: Workspace, command: str) -> None:
        self.workspace = workspace
        argv = [sys.executable, "-c", "from agent.entrypoints.cli import main; main()", command, str(workspace.root)]
        self.process = subprocess.Popen(argv, start_new_session=True)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is SystemExit:
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.poll() is None:
            write_control_mode(self.workspace, "stop")
            try:
                self.process.wait(timeout=300)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def run_product(workspace: Workspace, command: str, *, limit_s: float) -> None:
    with Product(workspace, command) as process:
        code = process.wait(timeout=limit_s)
    if code != 0:
        raise LabFailed(f"tuneloop {command} ended with {code}")


def write_control_mode(workspace: Workspace, mode: str) -> None:
    from agent.entrypoints.operate import set_mode

    set_mode(workspace.root, mode, reason="the scene is over", by="lab")


# looking


def wait_for(happened: Callable[[], bool], what: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + FAULT_LIMIT_S
    while not happened():
        if process.poll() is not None:
            raise LabFailed(f"tuneloop ended with {process.returncode} before {what}")
        if time.monotonic() > deadline:
            raise LabFailed(f"waited {FAULT_LIMIT_S:.0f} s for {what}")
        time.sleep(0.2)


def load_is_running(workspace: Workspace, pool: Pool) -> bool:
    """The measure job exists, and since the flush before it the prefill server has taken a whole chunk."""
    jobs = Path(pool.workdir_of("p0")) / ".tuneloop" / "jobs"
    log = newest_log(pool, "p0", "prefill")
    if log is None or not (jobs / f"{study_id(workspace)}-t001.measure").is_dir():
        return False
    return b"#new-token: 1024" in log.read_bytes().rpartition(b"Cache flushed successfully!")[2]


def study_id(workspace: Workspace) -> str:
    try:
        return read_study(workspace).study_id
    except Exception:
        return "no study yet"


def newest_log(pool: Pool, host: str, role: str) -> Path | None:
    jobs = Path(pool.workdir_of(host)) / ".tuneloop" / "jobs"
    logs = sorted(jobs.glob(f"*.{role}.*/out.log"), key=lambda path: path.stat().st_mtime)
    return logs[-1] if logs else None


def kill_server(pool: Pool, host: str, role: str) -> None:
    """SIGKILL to every process that holds the log of the newest server of this role open, as `kill -9` would."""
    log = newest_log(pool, host, role)
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and any(os.readlink(fd) == str(log) for fd in (entry / "fd").iterdir()):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"sglang" in b" ".join(words):
                    os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def first_failure(workspace: Workspace) -> TrialState | None:
    study = read_study(workspace)
    return next((t for t in study.trials.values() if t.record is not None and t.record.failure is not None), None)


def describe_failure(trial: TrialState) -> dict[str, str]:
    assert trial.record is not None
    assert trial.record.failure is not None
    failure = trial.record.failure
    return {"stage": failure.stage, "reason": failure.reason, "sent": failure.sent, "detail": failure.detail}


def faults_of(trial: TrialState) -> list[dict[str, str]]:
    record = trial.record
    return [] if record is None else [{"stage": f.stage, "reason": f.reason, "detail": f.detail} for f in record.faults]


def describe_card(study: Study, digest: str) -> dict[str, str]:
    card, closed = study.cards[digest], study.closed.get(digest)
    found: Any = None if closed is None else closed.classification
    return {
        "card": card.name,
        "source": card.draft.source,
        "route": "open" if found is None else found.route,
        "reason": "" if found is None else found.reason,
        "explanation": "" if found is None else found.explanation,
    }


def expect(true: bool, what: str) -> None:
    if not true:
        raise LabFailed(f"not so: {what}")
    say(f"ok: {what}")


if __name__ == "__main__":
    sys.exit(main())
