"""check, reserve, prepare: everything that can be refused before a server starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from executor.engines.release import parse_release
from executor.engines.size_rules import check_sizes
from executor.engines.violation import Severity
from executor.layouts import place_layouts
from executor.remote_host import Lease
from executor.stage_result import Done, Faulted, StageResult, Waiting
from executor.stages.dataset import ensure_dataset
from executor.stages.host_check import ask_engine
from executor.trial_context import LEASE_TTL_S, TrialContext
from executor.trial_plan import trial_directory, workload_of
from experiments.errors import LeaseRefused
from experiments.trial import Reason

MIN_FREE_BYTES = 2 << 30


def check(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """The configuration against the engine's size rules, and every host against what it must have."""
    version = context.pool.engine.version
    config = place_layouts(context.pool, context.plan.config)
    found = check_sizes(config, parse_release(version), workload_of(context.plan.scenario))
    invalid = [v for v in found if v.severity is Severity.INVALID]
    if invalid:
        detail = "; ".join(v.message for v in invalid)
        return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=detail, configuration_caused=True)
    facts = {}
    for name, host in context.hosts.items():
        seen = host.facts()
        if seen.disk_free_bytes < MIN_FREE_BYTES:
            free = seen.disk_free_bytes >> 20
            return Waiting(why=f"host {name}: only {free} MiB are free in the workdir; make room there")
        facts[name] = {"boot_id": seen.boot_id, "root_id": seen.root_id, "python": seen.python_version}
    try:
        said = ask_engine(context)
    except LeaseRefused as error:
        return _theirs(error)
    if said.refusals:
        detail = "; ".join(said.refusals)
        return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=detail, configuration_caused=True)
    if said.unreachable is not None:
        return Faulted(reason=Reason.NO_SIGNIFICANT_GAIN, detail=said.unreachable, configuration_caused=True)
    return Done(payload={"hosts": facts, "engine": list(said.notes), "sources": list(said.sources)})


def reserve(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Leases on all hosts in name order, all or none. What another owner holds is waited for, and is no fault."""
    taken: dict[str, Lease] = {}
    for name in sorted(context.hosts):
        try:
            taken[name] = context.hosts[name].acquire(context.plan.study_id, LEASE_TTL_S)
        except LeaseRefused as error:
            for other, lease in taken.items():
                context.hosts[other].release(lease)
            return _theirs(error)
    context.leases = taken
    return Done(payload={"epochs": {name: lease.epoch for name, lease in taken.items()}})


def _theirs(error: LeaseRefused) -> Waiting:
    return Waiting(why=f"{error}; nothing of theirs is touched, and the host is asked again")


def prepare(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """The trial's folders, and the scenario's frozen dataset on the host that sends the load."""
    for name, host in context.hosts.items():
        host.make_directory(trial_directory(context.plan, context.pool.workdir_of(name)))
    return ensure_dataset(context)
