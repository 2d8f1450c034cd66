"""record: how the experts of a role are loaded, recorded on servers of their own with a load that is no formal one.

The incumbent's service with the engine's recorder switched on, in a service epoch that ends before the formal one
begins: its settings are others, so no formal trial can find it and keep it. A layout that stands is not recorded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from executor.artifacts import keep_bytes
from executor.client_command import compile_client, dataset_path
from executor.job_wait import WaitEnd
from executor.layouts import NamedLayout, recording_config
from executor.stage_result import Done, Faulted, StageResult, Waiting
from executor.stages import serving
from executor.stages.asking import ask
from executor.stages.client_job import run_client
from executor.stages.dataset import ensure_dataset
from executor.stages.diagnosis import fault_of
from executor.stages.layout_files import layouts_of, objection_to, read_origin
from executor.stages.on_host import free_job
from executor.trial_context import TrialContext
from executor.trial_plan import trial_directory
from experiments.serving_config import Role
from experiments.trial import Reason, Stage

ASK_S = 120.0
DUMP_WAIT_S = 60.0
DUMP_CAP_BYTES = 256 << 20
DUMP_PREFIX = "expert_distribution_recorder_"
OTHER_PROMPTS = 7919  # added to the seed of the scenario: a layout is not fitted on the prompts that judge it


def record(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """One dump per layout that is still to be made. Nothing is left running that a formal trial could keep."""
    missing = _missing(context)
    if isinstance(missing, Faulted):
        return missing
    if not missing:
        return Done(payload={"dumps": {}}, note="every layout was fitted before")
    blocked = context.gate(context.timeout_s)
    if blocked is not None:
        return Waiting(why=blocked.reason)
    recording = recording_context(context, missing)
    began = context.clock.monotonic()
    failed = _serve(recording)
    if failed is not None:
        return failed
    ready = context.clock.monotonic()
    dumps = _record_load(recording, missing)
    if isinstance(dumps, Waiting):
        return dumps
    _end_recorders(recording, missing)
    if isinstance(dumps, Faulted):
        return dumps
    seconds = context.clock.monotonic() - ready
    roles = ", ".join(str(named.role) for named in missing)
    note = f"{roles}: servers in {ready - began:.0f} s, {_requests(missing)} requests recorded in {seconds:.0f} s"
    return Done(payload={"dumps": dumps}, note=note)


def _missing(context: TrialContext) -> list[NamedLayout] | Faulted:
    """The layouts that do not stand yet; a fault where one stands that may not be loaded."""
    missing = []
    for named in layouts_of(context):
        origin = read_origin(context, named)
        if origin is None:
            missing.append(named)
        elif (objection := objection_to(context, named, origin)) is not None:
            return objection
    return missing


def recording_context(context: TrialContext, layouts: list[NamedLayout]) -> TrialContext:
    """The trial as its recording sees it: other settings, other prompts, other ids; the same hosts and leases."""
    plan = context.plan
    load = plan.scenario.load.model_copy(
        update={"requests": _requests(layouts), "warmup": 0, "seed": plan.scenario.load.seed + OTHER_PROMPTS}
    )
    config = recording_config(plan.config, layouts)
    scenario = plan.scenario.model_copy(update={"load": load})
    other = replace(plan, trial_id=f"{plan.trial_id}-record", config=config, scenario=scenario)
    return replace(context, plan=other, payloads=dict(context.payloads))


def _requests(layouts: list[NamedLayout]) -> int:
    return max(named.layout.record.requests for named in layouts)


def _serve(recording: TrialContext) -> Faulted | Waiting | None:
    """Launch, attest and try the recording service. That it fails says nothing about the configuration of the card."""
    for name, host in recording.hosts.items():
        host.make_directory(trial_directory(recording.plan, recording.pool.workdir_of(name)))
    dataset = ensure_dataset(recording)
    if not isinstance(dataset, Done):
        return _as_recording(dataset)
    recording.payloads[Stage.PREPARE] = dataset.payload
    launched = serving.launch(recording, serving.launch_intent(recording))
    if not isinstance(launched, Done):
        return _as_recording(launched)
    recording.payloads[Stage.LAUNCH] = launched.payload
    for step in (serving.ready, serving.canary):
        done = step(recording, {})
        if not isinstance(done, Done):
            return _as_recording(done)
    return None


def _end_recorders(recording: TrialContext, layouts: list[NamedLayout]) -> None:
    """A recorder is used once: neither a formal trial nor another recording finds it. The router knows no others."""
    gone = {Role.ROUTER, *(named.role for named in layouts)}
    for server in reversed(serving.service_of(recording.payloads[Stage.LAUNCH]).servers):
        if server.role in gone:
            recording.say(f"ending {server.role}, which recorded")
            recording.hosts[server.host].cancel(server.job_id, recording.lease_on(server.host))


def _as_recording(result: StageResult) -> Faulted | Waiting:
    if isinstance(result, Waiting):
        return result
    assert isinstance(result, Faulted)  # noqa: S101 - nothing before a formal load ends in the unknown
    return replace(result, detail=f"while recording: {result.detail}", configuration_caused=False)


def _record_load(recording: TrialContext, layouts: list[NamedLayout]) -> dict[str, Any] | Faulted | Waiting:
    """Recorder on, the load, recorder off, dump: for every layout's server at once, with one load."""
    for named in layouts:
        recording.hosts[named.host].make_directory(named.recorded)
    for action in ("start", "load", "stop"):
        failed = _send_load(recording, layouts) if action == "load" else _switch(recording, layouts, action)
        if failed is not None:
            return failed
    dumps: dict[str, Any] = {}
    for named in layouts:
        found = _dump(recording, named)
        if isinstance(found, Faulted):
            return found
        dumps[str(named.role)] = {**found, "requests": _requests(layouts)}
    return dumps


def _switch(recording: TrialContext, layouts: list[NamedLayout], action: str) -> Faulted | None:
    for named in layouts:
        answer = _call(recording, named, f"/{action}_expert_distribution_record")
        if answer != httpx.codes.OK:
            detail = f"{named.role}: the recorder would not {action} (HTTP {answer})"
            return Faulted(reason=Reason.EVIDENCE_INCOMPLETE, detail=detail, repairable=True)
    return None


def _call(recording: TrialContext, named: NamedLayout, page: str) -> int:
    """The status of one answer; 0 if there was none. Each of these may be asked twice."""
    port = recording.pool.hosts[named.host].port
    try:
        answer = ask(recording, recording.hosts[named.host], port, ASK_S, lambda http: http.post(page))
    except httpx.HTTPError:
        return 0
    return answer.status_code


def _send_load(recording: TrialContext, layouts: list[NamedLayout]) -> Faulted | Waiting | None:
    name, host = recording.host_of(Role.CLIENT)
    job_id = free_job(recording, name, "load")
    run = compile_client(
        recording,
        experiment_id=job_id,
        result_dir=f"{trial_directory(recording.plan, recording.pool.workdir_of(name))}/{job_id.rpartition('.')[2]}",
        requests=_requests(layouts),
        concurrency=min(_requests(layouts), max(named.layout.record.concurrency for named in layouts)),
        dataset=dataset_path(recording, "measure"),
    )
    end = run_client(recording, name, host, job_id, run)
    if end.cancelled:
        host.cancel(job_id, recording.lease_on(name))
        return Waiting(why=end.detail)
    return _judge(recording, end, job_id)


def _judge(recording: TrialContext, end: WaitEnd, job_id: str) -> Faulted | None:
    code = None if end.state is None else end.state.exit_code
    if code == 0:
        return None
    service = serving.service_of(recording.payloads[Stage.LAUNCH])
    what = f"the client of the recording ended with {code} {end.detail}".rstrip()
    fault = fault_of(recording, service, what, reason=Reason.CLIENT, repairable=True, client_job=job_id)
    return replace(fault, configuration_caused=False)


def _dump(recording: TrialContext, named: NamedLayout) -> dict[str, Any] | Faulted:
    """Have the server write its dump, find it, and keep it with its hash."""
    host, before = recording.hosts[named.host], _dumps(recording, named)
    status = _call(recording, named, "/dump_expert_distribution_record")
    deadline = recording.clock.monotonic() + DUMP_WAIT_S
    fresh: set[str] = set()
    while status == httpx.codes.OK and not fresh and recording.clock.monotonic() < deadline:
        fresh = _dumps(recording, named) - before
        recording.clock.sleep(0.0 if fresh else 0.5)
    if not fresh:
        detail = f"{named.role}: the recorder left no dump (HTTP {status})"
        return Faulted(reason=Reason.EVIDENCE_INCOMPLETE, detail=detail, repairable=True)
    path = f"{named.recorded}/{max(fresh)}"
    data = host.fetch(path, DUMP_CAP_BYTES)
    kept = keep_bytes(recording.artifacts, f"layout/{named.role}.{max(fresh)}", data)
    port = recording.pool.hosts[named.host].port
    told = ask(recording, host, port, ASK_S, lambda http: http.get("/server_info").json())
    return {"path": path, "artifact": kept, "ranks": int(told.get("ep_size") or 1), "version": told.get("version")}


def _dumps(recording: TrialContext, named: NamedLayout) -> set[str]:
    entries = recording.hosts[named.host].list_directory(named.recorded)
    return {entry.name for entry in entries if entry.kind == "file" and entry.name.startswith(DUMP_PREFIX)}
