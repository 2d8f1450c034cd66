"""One formal load of a simulated client: run it, show progress, tell the engines, apply the ordered faults."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from executor.simulated.client_faults import RECORD_FAULTS, fail_after, spoil
from executor.simulated.client_records import ClientRecord, all_failed, clip, records_of
from executor.simulated.faults import Injector
from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.trace import RunTrace
from executor.simulated.model.workload import Load, Request
from executor.simulated.virtual_pool import (
    LoadFailed,
    VirtualPool,
    account,
    drift_factor,
    noise_seed,
    report_progress,
    run_load,
    run_out_of_memory,
)

_DEATH = (
    "Scheduler hit an exception: Traceback (most recent call last):\n"
    "RuntimeError: ACL stream synchronize failed, error code:507035"
)


@dataclass(frozen=True, kw_only=True)
class LoadOutcome:
    """Records in order of completion, and the virtual length of the run."""

    records: list[ClientRecord]
    duration: float


def send_load(
    pool: VirtualPool, requests: Sequence[Request], load: Load, runs_before: int, injector: Injector, label: str
) -> LoadOutcome:
    """The measured run. A client that is to be killed half-way does not come back."""
    for engine in {pool.prefill.url: pool.prefill, pool.decode.url: pool.decode}.values():
        engine.post("begin")
    slow = injector.take("slow_run")
    factor = drift_factor(runs_before) * (float(slow.get("factor", 1.5)) if slow else 1.0)
    try:
        if injector.take("oom_at_load"):
            run_out_of_memory(pool)
        trace, caches = run_load(pool, list(requests), load, noise_seed(runs_before), factor)
    except LoadFailed as failure:
        return LoadOutcome(records=all_failed(requests, failure.message), duration=1.0)
    if injector.take("client_killed_halfway"):
        _die_halfway(pool, trace, caches, label)
    report_progress(pool, trace, label)
    if injector.take("client_hangs_in_run"):
        time.sleep(3600)
    records = _after_deaths(pool, trace, caches, records_of(trace, requests), injector)
    fault = injector.take(*RECORD_FAULTS)
    return LoadOutcome(records=spoil(records, fault) if fault else records, duration=trace.duration)


def _die_halfway(pool: VirtualPool, trace: RunTrace, caches: list[PrefixCache], label: str) -> None:
    half = clip(trace, trace.duration / 2)
    report_progress(pool, half, label)
    account(pool, half, caches)
    os.kill(os.getpid(), signal.SIGKILL)


def _after_deaths(
    pool: VirtualPool, trace: RunTrace, caches: list[PrefixCache], records: list[ClientRecord], injector: Injector
) -> list[ClientRecord]:
    """Account for the run; where an engine was to die in its middle, only for the first half."""
    died = injector.take("decode_dies_in_run", "prefill_dies_in_run")
    if not died:
        account(pool, trace, caches)
        return records
    account(pool, clip(trace, trace.duration / 2), caches)
    engine = pool.decode if died["fault"] == "decode_dies_in_run" else pool.prefill
    engine.post("die", {"lines": _DEATH})
    return fail_after(records, trace.duration / 2, "Bad Gateway")
