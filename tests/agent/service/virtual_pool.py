"""A pool in virtual time, at the port of the trial runner: the journal is real, the machines are a table.

Machines outlive every service. They count what is started on them, as the real bench clients' own counter does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.clock import Clock
from executor.pool import Pool
from executor.runner import ORDER, SENDING, Held, TrialEnd, Waiting
from executor.trial_context import Progress, Report
from executor.trial_plan import TrialPlan, measure_job
from experiments.history import HostJob
from experiments.ledger import Finding
from experiments.ports import Gate, Journal
from experiments.serving_config import Kind, Role
from experiments.serving_config import Path as SettingPath
from experiments.trial import Reason, Sent, Stage, StageFault, StageTime, TrialRecord
from tests.agent.service.virtual_clock import VirtualClock
from tests.factories import Performance, a_measurement, a_record

CAP = SettingPath(Role.PREFILL, Kind.FLAG, "prefill-max-requests")
LOAD_S = 720.0
POLL_S = 180.0
STAGE_S = {Stage.LAUNCH: 60.0, Stage.READY: 180.0, Stage.WARM_UP: 60.0}


@dataclass(frozen=True, kw_only=True)
class Load:
    """One formal load that was started."""

    trial_id: str
    began_s: float
    boot: int


@dataclass
class Machines:
    """The hosts of one pool, shared by every service that reaches them."""

    name: str
    clock: VirtualClock
    loads: list[Load] = field(default_factory=list)
    boot: int = 0
    reboots: dict[int, float] = field(default_factory=dict)  # the boot that ended, and when
    cancelled: dict[str, float] = field(default_factory=dict)  # trials, and when
    loses: set[str] = field(default_factory=set)  # ends of trials that nobody will learn
    at_start: dict[int, Callable[[], None]] = field(default_factory=dict)  # what happens as the nth load starts
    speed: Callable[[float], float] = lambda seconds: 1.0  # of a load that began then
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, trial_id: str) -> None:
        with self._lock:
            assert not self.running(), f"a second load on {self.name}: {trial_id} beside {self.running()}"
            self.loads.append(Load(trial_id=trial_id, began_s=self.clock.monotonic(), boot=self.boot))
        happens = self.at_start.get(len(self.loads))
        if happens is not None:
            happens()

    def load_of(self, trial_id: str) -> Load | None:
        return next((load for load in self.loads if load.trial_id == trial_id), None)

    def running(self) -> list[str]:
        return [load.trial_id for load in self.loads if self.status(load) == "running"]

    def status(self, load: Load) -> str:
        over = load.began_s + LOAD_S
        if load.trial_id in self.cancelled:
            return "cancelled"
        if self.reboots.get(load.boot, float("inf")) < over:
            return "lost_reboot"
        return "exited" if self.clock.monotonic() >= over else "running"

    def reboot(self) -> None:
        self.reboots[self.boot] = self.clock.monotonic()
        self.boot += 1

    def jobs(self) -> tuple[HostJob, ...]:
        return tuple(
            HostJob(
                host=self.name,
                job_id=f"{load.trial_id}.measure",
                status=self.status(load),
                exit_code=0 if self.status(load) == "exited" else None,
                started_boot_s=load.began_s,
            )
            for load in self.loads
        )


class VirtualRunner:
    """The signature of `executor.runner.Runner`, and its promise: called again, it goes on and sends nothing twice."""

    def __init__(
        self,
        machines: Mapping[str, Machines],
        *,
        pool: Pool,
        hosts: Mapping[str, Any],
        journal: Journal,
        clock: Clock,
        report: Report,
        artifacts: Path,
    ) -> None:
        self._machines, self._journal, self._clock, self._report = machines[pool.name], journal, clock, report

    def run(self, plan: TrialPlan, gate: Gate, finding: Finding | None = None) -> TrialEnd:
        done = {row.stage for row in self._journal.rows(plan.trial_id) if row.outcome == "done"}
        for stage in ORDER:
            if stage in done:
                continue
            end = self._stage(plan, stage, gate, finding)
            if end is not None:
                return end
        self._brief(plan, Stage.RELEASE)
        return self._record(plan)

    def ask_again(self, plan: TrialPlan) -> str | None:
        """The host never learns how a lost load ended."""
        return None

    def _stage(self, plan: TrialPlan, stage: Stage, gate: Gate, finding: Finding | None) -> TrialEnd | None:
        blocked = gate(LOAD_S if stage is Stage.MEASURE else 60.0) if stage in SENDING else None
        load = self._machines.load_of(plan.trial_id)
        if blocked is not None and not (stage is Stage.MEASURE and load is not None):
            return Waiting(why=blocked.reason)
        if stage is not Stage.MEASURE:
            self._brief(plan, stage)
            return None
        return self._measure(plan, gate, finding)

    def _brief(self, plan: TrialPlan, stage: Stage) -> None:
        self._journal.begin(plan.trial_id, stage, 1, {})
        self._say(plan, stage, "")
        self._clock.sleep(STAGE_S.get(stage, 5.0))
        self._journal.end(plan.trial_id, stage, 1, "done", {})

    def _measure(self, plan: TrialPlan, gate: Gate, finding: Finding | None) -> TrialEnd | None:
        trial, machines = plan.trial_id, self._machines
        self._journal.begin(trial, Stage.MEASURE, 1, {"job_id": measure_job(plan)})
        self._journal.claim_formal_send(trial, measure_job(plan), machines.name)
        if machines.load_of(trial) is None:
            machines.start(trial)
        load = machines.load_of(trial)
        assert load is not None
        while machines.status(load) == "running":
            self._say(plan, Stage.MEASURE, f"{self._clock.monotonic() - load.began_s:.0f} s")
            self._clock.sleep(POLL_S)
            blocked = gate(0.0)
            if blocked is not None and blocked.cancel:
                machines.cancelled[trial] = self._clock.monotonic()
                return self._fault(plan, Reason.CANCELLED, blocked.reason)
        if trial in machines.loses and finding is None:
            return Held(stage=Stage.MEASURE, detail="the host does not say how it ended")
        if machines.status(load) == "lost_reboot" or finding is Finding.DEAD:
            detail = "the host rebooted while the load ran" if finding is None else "said to be dead"
            return self._fault(plan, Reason.ENVIRONMENT, detail)
        self._journal.end(trial, Stage.MEASURE, 1, "done", {"exit_code": 0})
        return None

    def _fault(self, plan: TrialPlan, reason: Reason, detail: str) -> TrialRecord:
        self._journal.end(plan.trial_id, Stage.MEASURE, 1, str(reason), {"detail": detail})
        self._brief(plan, Stage.RELEASE)
        fault = StageFault(stage=Stage.MEASURE, attempt=1, reason=reason, sent=Sent.UNKNOWN, detail=detail)
        return self._as_it_was(a_record(plan.trial_id, failure=fault, began=self._clock.now()))

    def _record(self, plan: TrialPlan) -> TrialRecord:
        wobble = 1 + 0.002 * (int(plan.trial_id.rpartition("-t")[2]) % 5 - 2)
        fast = plan.config.get(CAP) != 1
        load = self._machines.load_of(plan.trial_id)
        speed = self._machines.speed(load.began_s) if load is not None else 1.0
        performance = Performance(per_card=(236.8 if fast else 179.0) * wobble * speed)
        measurement = a_measurement(performance, requests=plan.load.requests)
        return self._as_it_was(a_record(plan.trial_id, measurement=measurement, began=self._clock.now()))

    def _as_it_was(self, record: TrialRecord) -> TrialRecord:
        """Without files, and with the times that the stages took here: what fits before a lease's end rests on them."""
        rows = [row for row in self._journal.rows(record.trial_id) if row.ended is not None]
        stages = tuple(
            StageTime(
                stage=row.stage,
                attempt=row.attempt,
                began=row.began,
                seconds=0.0 if row.ended is None else (row.ended - row.began).total_seconds(),
            )
            for row in rows
        )
        return record.model_copy(update={"artifacts": (), "stages": stages})

    def _say(self, plan: TrialPlan, stage: Stage, text: str) -> None:
        self._report(Progress(trial_id=plan.trial_id, stage=stage, text=text))
