"""launch, ready, canary: from nothing, or from what runs already, to a service that provably is this card's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import httpx

from executor.devices import await_idle_devices
from executor.engines.attestation import Attestation, attest
from executor.layouts import named_layouts, place_layouts
from executor.remote_host import JobState
from executor.service import (
    NotNow,
    Placed,
    ServiceIntent,
    end_obsolete,
    front_door,
    plan_service,
    start_missing,
)
from executor.stage_result import Done, Faulted, StageResult, Waiting
from executor.stages.asking import ask
from executor.stages.diagnosis import describe_dead, fault_of, states_of
from executor.trial_context import TrialContext
from experiments.errors import HostUnreachable, PortTaken
from experiments.serving_config import Role
from experiments.trial import NOT_OBSERVED, Reason, Stage

HTTP_TIMEOUT_S = 10.0
POLL_S = 0.2
CANARY_TOKENS = 8
CANARIES = 8  # through a service of which a process is new


def launch_intent(context: TrialContext) -> dict[str, Any]:
    """Which servers are to run under which job ids, and which of ours have to go."""
    intent = plan_service(context)
    return {
        "servers": [
            {"role": s.role, "host": s.host, "job_id": s.job_id, "port": s.port, "reused": s.reused}
            for s in intent.servers
        ],
        "obsolete": [list(item) for item in intent.obsolete],
    }


def service_of(payload: Mapping[str, Any]) -> ServiceIntent:
    """The launch intent as it was written to the journal."""
    return ServiceIntent(
        servers=tuple(Placed(**{**s, "role": Role(s["role"])}) for s in payload["servers"]),
        obsolete=tuple((host, job) for host, job in payload["obsolete"]),
    )


def is_up(context: TrialContext) -> bool:
    """Whether every server of this trial's launch lives. A host that cannot be asked now does not say no."""
    try:
        return not describe_dead(states_of(context, service_of(context.payloads[Stage.LAUNCH])))
    except HostUnreachable:
        return True


def launch(context: TrialContext, intent: Mapping[str, Any]) -> StageResult:
    """End what is superseded, start what is missing. Each start is claimed on its host under the intended id."""
    service = service_of(intent)
    survivors = end_obsolete(context, service)
    if survivors:
        detail = f"still alive after a kill: {', '.join(survivors)}; nothing is started beside it"
        return Faulted(reason=Reason.ENVIRONMENT, detail=detail)
    devices, busy = await_idle_devices(context, service)
    if busy:
        detail = f"device memory is not free: {'; '.join(busy)}; nothing is started beside it"
        return Faulted(reason=Reason.ENVIRONMENT, detail=detail)
    try:
        started = list(start_missing(context, service))
    except NotNow as gate:
        return Waiting(why=str(gate))
    except PortTaken as error:
        return Faulted(reason=Reason.ENVIRONMENT, detail=str(error))
    states = states_of(context, service)
    gone = _gone(states, {server.job_id for server, state in started if not state.duplicate})
    if gone:
        return Faulted(reason=Reason.LAUNCH, detail=f"{', '.join(gone)} ended while this was away", repairable=True)
    kept = [str(s.role) for s in service.servers if s.reused]
    payload = {
        **intent,
        "hot": not started,
        "devices": devices,
        "started": {server.job_id: state.started_boot_s for server, state in states.items()},
    }
    fresh = ", ".join(str(server.role) for server, _ in started)
    return Done(payload=payload, note=f"kept {', '.join(kept)}" if kept else f"started {fresh}")


def _gone(states: Mapping[Placed, JobState], fresh: set[str]) -> list[str]:
    """Servers that ended before this attempt looked: to be kept ones, and ones of the attempt that was interrupted.

    One that was started just now and died already is judged where its log is read.
    """
    return [str(server.role) for server, state in states.items() if not state.is_live and server.job_id not in fresh]


def ready(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Every server answers, listens from within our own job, and reports the configuration of the card."""
    service = service_of(context.payloads[Stage.LAUNCH])
    told: dict[str, Any] = {"adjusted": [], "version": None, "unverified": [], "sources": [], "identities": {}}
    for server in service.servers:
        failed = _wait_healthy(context, service, server) or _check_listener(context, server)
        if failed is None and server.role is not Role.ROUTER:
            failed = _attested(context, service, server, told)
        if isinstance(failed, Faulted):
            end_unfit(context, (server,))
        if failed is not None:
            return failed
    return Done(payload=told)


def end_unfit(context: TrialContext, servers: Iterable[Placed]) -> None:
    """A server that cannot be used is ended, or the next trial would find it running and keep it."""
    for server in servers:
        host = context.hosts[server.host]
        if host.poll(server.job_id).is_live:
            context.say(f"ending {server.role}, which cannot be used")
            host.cancel(server.job_id, context.lease_on(server.host))


def _attested(context: TrialContext, service: ServiceIntent, server: Placed, told: dict[str, Any]) -> Faulted | None:
    """Hold what the server says about itself against the card, and note it."""
    attestation = _attest(context, server)
    if attestation is None:
        what = f"{server.role} is ready and does not say what it runs with"
        return fault_of(context, service, what, reason=Reason.LAUNCH)
    changed = _changed_layout(context, server)
    if changed is not None:
        return changed
    if not attestation.matches:
        detail = f"{server.role}: " + "; ".join(map(str, attestation.mismatches))
        return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=detail)
    told["unverified"] += [f"{server.role} {name}" for name in attestation.unverified]
    told["adjusted"] += [f"{server.role} {a.name}: {a.wanted} → {a.reported} ({a.rule})" for a in attestation.adjusted]
    told["sources"].append(_source(server.role, attestation))
    told["version"] = attestation.version or told["version"]
    told["identities"][str(server.role)] = attestation.identity
    return None


def _changed_layout(context: TrialContext, server: Placed) -> Faulted | None:
    """The file whose path the server reports has to be the layout that was fitted."""
    wanted = context.layout_digest(server.role)
    if wanted is None:
        return None
    named = next(layout for layout in named_layouts(context.pool, context.plan.config) if layout.role is server.role)
    found = context.hosts[server.host].file_digest(named.file)
    if found is not None and found.sha256 == wanted:
        return None
    detail = f"{server.role}: {named.file} is no longer the layout that was fitted"
    return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=detail)


def _source(role: Role, attestation: Attestation) -> str:
    """What this very process says it was started from."""
    process = attestation.identity or NOT_OBSERVED
    return f"{role}: reports {attestation.version or NOT_OBSERVED}, process {process}"


def _wait_healthy(context: TrialContext, service: ServiceIntent, server: Placed) -> Faulted | Waiting | None:
    """Poll `/health` until it says 200, the job ends, the operator says stop, or the time is up."""
    host = context.hosts[server.host]
    deadline = context.clock.monotonic() + context.timeout_s
    started = context.clock.monotonic()
    with host.http(server.port, HTTP_TIMEOUT_S) as http:
        while True:
            if _is_ready(http, server.role):
                return None
            state = host.poll(server.job_id)
            if not state.is_live:
                return fault_of(context, service, f"{server.role} ended before it was ready", reason=Reason.LAUNCH)
            if context.clock.monotonic() >= deadline:
                what = f"{server.role} was not ready after {context.timeout_s:.0f} s"
                return fault_of(context, service, what, reason=Reason.LAUNCH)
            blocked = context.gate(0.0)
            if blocked is not None and blocked.cancel:
                return Waiting(why=blocked.reason)
            context.keep_leases()
            context.say(f"waiting for {server.role}, {context.clock.monotonic() - started:.0f} s")
            context.clock.sleep(POLL_S)


def _is_ready(http: httpx.Client, role: Role) -> bool:
    """A router is healthy before it knows a single worker, so it is asked for readiness where it has such a page."""
    try:
        answer = http.get("/readiness") if role is Role.ROUTER else None
        if answer is None or answer.status_code == httpx.codes.NOT_FOUND:
            answer = http.get("/health")
    except (httpx.HTTPError, HostUnreachable):
        return False
    return answer.status_code == httpx.codes.OK


def _check_listener(context: TrialContext, server: Placed) -> Faulted | None:
    """HTTP 200 proves nothing: the process behind the port has to belong to our job."""
    host = context.hosts[server.host]
    owners = host.listeners([server.port])
    if any(listener.job_id == server.job_id for listener in owners):
        return None
    seen = ", ".join(listener.job_id or f"pid {listener.pid} ({listener.command})" for listener in owners)
    detail = f"{server.role}: port {server.port} is answered by {seen or 'nobody we can see'}, not by our job"
    return Faulted(reason=Reason.ENVIRONMENT, detail=detail)


def _attest(context: TrialContext, server: Placed) -> Attestation | None:
    """None: the server did not answer with a description of itself."""
    host = context.hosts[server.host]
    try:
        described = ask(context, host, server.port, HTTP_TIMEOUT_S, lambda http: http.get("/server_info").json())
    except (httpx.HTTPError, ValueError):
        return None
    build = context.pool.build_named(context.plan.config.get_build(server.role))
    config = place_layouts(context.pool, context.plan.config)
    return attest(described, config, server.role, version=build.version)


def canary(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Short generations through the front door: "ready" does not prove that prefill can reach decode.

    One where the service ran before, several where it is new: some hang only after a few.
    """
    service = service_of(context.payloads[Stage.LAUNCH])
    count = 1 if context.payloads[Stage.LAUNCH].get("hot") else CANARIES
    for done in range(count):
        why = _generate_one(context)
        if why is None:
            context.say("generating", done=done + 1, total=count)
            continue
        fault = fault_of(context, service, f"canary {done + 1} of {count}: {why}", reason=Reason.LAUNCH)
        if is_up(context):  # which of them is to blame is not known
            end_unfit(context, service.servers)
        return fault
    return Done(note=f"{count} × {CANARY_TOKENS} tokens through the front door")


def _generate_one(context: TrialContext) -> str | None:
    """Why no generation came through; a service that is still warming says 503 and is asked again."""
    name, _address, port = front_door(context)
    body = {
        "text": "Say one word.",
        "sampling_params": {"max_new_tokens": CANARY_TOKENS, "temperature": 0.0, "ignore_eos": True},
    }
    deadline = context.clock.monotonic() + context.timeout_s
    while True:
        try:
            host = context.hosts[name]
            answer = ask(context, host, port, context.timeout_s, lambda http: http.post("/generate", json=body))
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        if answer.status_code == httpx.codes.OK:
            return None
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or context.clock.monotonic() >= deadline:
            return f"HTTP {answer.status_code} from the front door"
        context.say("warming: HTTP 503 from the front door")
        context.clock.sleep(POLL_S)
