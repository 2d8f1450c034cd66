"""Device memory before a launch: given patience after a kill, and back to idle before a successor starts.

A killed server frees its port at once and its device memory later; one that starts too early ends out of memory, which
would be taken for the configuration's fault. Hosts without `npu-smi` are not observed, and that is said.
"""

from __future__ import annotations

from executor.engines.npu_smi import NpuReport, parse_npu_smi
from executor.remote_host import HostRefused, ProbeName, RemoteHost
from executor.service import ServiceIntent
from executor.trial_context import TrialContext
from experiments.trial import NOT_OBSERVED

POLL_S = 2.0
SHOWN = 4  # devices named in a message
IDLE = "idle"


def await_idle_devices(context: TrialContext, intent: ServiceIntent) -> tuple[dict[str, str], list[str]]:
    """What was seen per host, and the hosts whose devices are still busy when patience ends.

    Asked on hosts where a server starts and none of ours lives: beside a living one, memory in use is no news.
    """
    seen: dict[str, str] = {}
    busy: list[str] = []
    for name in sorted(_empty_hosts(context, intent)):
        left = _await_idle(context, name)
        seen[name] = IDLE if left == "" else left or NOT_OBSERVED
        if left:
            busy.append(f"host {name}: {left}")
    return seen, busy


def _empty_hosts(context: TrialContext, intent: ServiceIntent) -> set[str]:
    starting = {server.host for server in intent.servers if not server.reused}
    living = {s.host for s in intent.servers if context.hosts[s.host].poll(s.job_id).is_live}
    return starting - living


def _await_idle(context: TrialContext, name: str) -> str | None:
    """Who still holds memory after the patience; empty when idle; None where it cannot be observed."""
    host = context.hosts[name]
    deadline = context.clock.monotonic() + context.pool.timeouts.devices_idle
    while True:
        report = _report(host)
        if report is None or not report.busy_dies():
            return None if report is None else ""
        if context.clock.monotonic() >= deadline:
            return _describe(report)
        context.say(f"waiting for the device memory of {name}: {_describe(report)}")
        context.keep_leases()
        context.clock.sleep(POLL_S)


def _report(host: RemoteHost) -> NpuReport | None:
    try:
        probe = host.run_probe(ProbeName.NPU_INFO)
    except HostRefused:
        return None  # the tool hangs or may not be run
    report = parse_npu_smi(probe.text) if probe.available and probe.exit_code == 0 else None
    return report if report is not None and report.dies else None


def _describe(report: NpuReport) -> str:
    held = [f"NPU {die.npu} chip {die.chip}: {die.hbm_used_mb or '?'} MB" for die in report.busy_dies()]
    owners = [f"pid {p.pid} ({p.name}, {p.memory_mb or '?'} MB)" for p in report.processes]
    more = f" and {len(held) - SHOWN} more" if len(held) > SHOWN else ""
    by = f", held by {', '.join(owners[:SHOWN])}" if owners else ", no process is shown"
    return "; ".join(held[:SHOWN]) + more + by
