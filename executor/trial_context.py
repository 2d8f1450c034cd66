"""What every stage of a trial works with: the plan, the hosts, the leases, the journal's memory, and the gate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from executor.clock import Clock
from executor.pool import Pool
from executor.remote_host import Lease, RemoteHost
from executor.stage_result import Payload
from executor.trial_plan import TrialPlan
from experiments.ledger import Finding
from experiments.ports import Gate
from experiments.serving_config import Role
from experiments.trial import Reason, Stage

LEASE_TTL_S = 180.0
RENEW_AT = 2 / 3  # of the ttl that is left


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One line of news about a running trial, for status and console."""

    trial_id: str
    stage: Stage
    text: str
    done: int | None = None  # requests
    total: int | None = None


Report = Callable[[Progress], None]


@dataclass(kw_only=True)
class TrialContext:
    """Mutable only in its leases and in what finished stages left behind."""

    plan: TrialPlan
    pool: Pool
    hosts: Mapping[str, RemoteHost]
    gate: Gate
    clock: Clock
    report: Report
    artifacts: Path  # of this trial
    leases: dict[str, Lease] = field(default_factory=dict)
    payloads: dict[Stage, Payload] = field(default_factory=dict)
    stage: Stage = Stage.CHECK
    attempt: int = 1
    repairs: Reason | None = None  # why the attempt before this one failed
    finding: Finding | None = None  # what a person found out about an unknown end

    def host_of(self, role: Role) -> tuple[str, RemoteHost]:
        """The one host of a role."""
        name = self.host_name(role)
        return name, self.hosts[name]

    def host_name(self, role: Role) -> str:
        match role:
            case Role.ROUTER:
                return self.pool.router.on
            case Role.CLIENT:
                return self.pool.client.on
            case _:
                return next(iter(self.pool.hosts_of(role)))

    def lease_on(self, name: str) -> Lease:
        """A live lease, renewed if it is about to run out. Raises LeaseRefused if the host says no.

        One that was lost is never taken back here: whoever took it over drives the host now. One that this process
        never had, because it came back to a load that was sent before, is taken when something has to be changed.
        """
        lease = self.leases.get(name)
        if lease is None:
            lease = self.leases[name] = self.hosts[name].acquire(self.plan.study_id, LEASE_TTL_S)
        if lease.remaining_s(self.clock) < lease.ttl_s * (1 - RENEW_AT):
            lease = self.leases[name] = self.hosts[name].renew(lease)
        return lease

    def keep_leases(self) -> None:
        for name in self.leases:
            self.lease_on(name)

    def say(self, text: str, done: int | None = None, total: int | None = None) -> None:
        self.report(Progress(trial_id=self.plan.trial_id, stage=self.stage, text=text, done=done, total=total))

    def layout_digest(self, role: Role) -> str | None:
        """Of the named expert layout that this trial loads for a role; None for a role without one."""
        found = self.payloads.get(Stage.FIT, {}).get("layouts", {}).get(str(role))
        return None if found is None else str(found["sha256"])

    @property
    def timeout_s(self) -> float:
        return self.pool.timeouts.of(self.stage)


# Last "n/m" of a progress bar or board; both clients print one.
_COUNT = re.compile(rb"(\d+)\s*/\s*(\d+)")


def last_count(log_tail: bytes) -> tuple[int, int] | None:
    """Requests done and planned, from the tail of a client's log; for people only, no decision rests on it."""
    found = _COUNT.findall(log_tail)
    return (int(found[-1][0]), int(found[-1][1])) if found else None
