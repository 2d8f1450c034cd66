"""collect, analyse, release: from raw files on the host to a measurement, without ever sending anything again."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from executor.artifacts import keep_bytes
from executor.bench.reading import read_measurement
from executor.engines.evidence import Observed, fold_evidence
from executor.engines.live_series import busy_part, parse_series, summarise_series
from executor.engines.loads import LoadSample
from executor.engines.server_info import identity as identity_of
from executor.engines.server_log import EffectiveSizes, LogRecord, PrefillBatch, ServerArguments, parse_server_log
from executor.job_wait import wait_for_job
from executor.remote_host import HostRefused, JobSpec, JobStatus, RemoteHost
from executor.service import Placed
from executor.stage_result import Done, Faulted, StageResult
from executor.stages.asking import ask
from executor.stages.client_job import TTL_GRACE_S
from executor.stages.diagnosis import head_of_log
from executor.stages.live_sampling import SERIES
from executor.stages.serving import service_of
from executor.trial_context import TrialContext
from executor.trial_plan import measure_job
from experiments.errors import HostError, HostUnreachable
from experiments.evidence import ServingEvidence
from experiments.measurement import Measurement
from experiments.serving_config import Role
from experiments.trial import Reason, Sent, Stage
from experiments.validity import CacheRule, ServerEvidence, Workload
from experiments.windows import NativeRule, WindowFloor

RAW_CAP_BYTES = 2 << 30
LOG_CAP_BYTES = 64 << 20
STARTUP_CAP_BYTES = 1 << 20
MAX_DEPTH = 8
CLIENT_LOG = "client.log"
SUMMARY_LOG = "summary.log"  # of a summary that was made again: it prints what the client's own could not
HTTP_TIMEOUT_S = 10.0
ENOUGH_SAMPLES = 10


def collect(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Bring the raw files home with their hashes. After a failed summary, the next attempt repairs that first."""
    measured = context.payloads[Stage.MEASURE]
    name, host = context.host_of(Role.CLIENT)
    repaired = context.repairs is Reason.POST_PROCESSING
    failed = _summarise_again(context, name, host, str(measured["cwd"])) if repaired else None
    if failed is not None:
        return failed
    found = _matching(host, str(measured["cwd"]), tuple(measured["raw_files"]))
    missing = [p for p in measured["raw_files"] if _is_needed(p) and not any(_fits(f, p) for f in found)]
    if missing and measured["exit_code"] != 0 and any("_details" in f for f in found):
        detail = f"the client's summary failed ({measured['end']}), its per-request data is there"
        return Faulted(reason=Reason.POST_PROCESSING, detail=detail, sent=Sent.FINISHED, repairable=True)
    if not any("_details" in f or f.endswith(".jsonl") for f in found):
        return _with_server_death(measured, _no_data(context, measured))
    artifacts = [_keep(context, host, str(measured["cwd"]), path) for path in found]
    artifacts.append(keep_bytes(context.artifacts, CLIENT_LOG, _whole_log(host, measure_job(context.plan), 0)))
    if repaired:
        artifacts.append(keep_bytes(context.artifacts, SUMMARY_LOG, _whole_log(host, _summary_job(context), 0)))
    servers = _server_files(context)
    restarted = _restarted(context)
    if restarted:
        detail = f"{', '.join(restarted)} became another process between readiness and the end of the load"
        return Faulted(reason=Reason.ENVIRONMENT, detail=detail, sent=Sent.FINISHED)
    artifacts += [*servers.files, *_live_series(context)]
    payload = {"artifacts": artifacts, "repaired": repaired, "cut_logs": servers.cut_logs}
    return Done(payload=payload, note=f"{len(artifacts)} files")


def _live_series(context: TrialContext) -> list[dict[str, Any]]:
    """What the servers answered while the load ran. A short load has none."""
    path = context.artifacts / SERIES
    return [keep_bytes(context.artifacts, SERIES, path.read_bytes())] if path.is_file() else []


def _restarted(context: TrialContext) -> list[str]:
    """Servers that say to be another process than the one that was attested; silence says nothing."""
    before = context.payloads[Stage.READY].get("identities", {})
    found = []
    for role, identity in before.items():
        path = context.artifacts / f"{role}.server_info.json"
        now = identity_of(json.loads(path.read_text()))
        if None not in (identity, now) and identity != now:
            found.append(role)
    return found


def _with_server_death(measured: Mapping[str, Any], fault: Faulted) -> Faulted:
    """A load that is not whole although nobody watched it, and a server that is gone: the server's end is the cause."""
    death = measured.get("server_death")
    if not death:
        return fault
    return Faulted(
        reason=Reason.ENVIRONMENT,
        detail=f"{death['detail']}; then {fault.detail}",
        sent=Sent.FINISHED,
        configuration_caused=bool(death["configuration_caused"]),
    )


def _is_needed(pattern: str) -> bool:
    return pattern.endswith((".csv", "*/*.json")) or "_details" in pattern


def _no_data(context: TrialContext, measured: Mapping[str, Any]) -> Faulted:
    """The client left no per-request data. It sent nothing only if it failed by itself and no server saw a request."""
    servers = _server_files(context)
    role = Role.MIXED if Role.MIXED in context.plan.roles else Role.PREFILL
    arrived = str(role) in servers.cut_logs or any(isinstance(r, PrefillBatch) for r in _load_records(context, role))
    failed_by_itself = measured["exit_code"] not in (None, 0)
    sent = Sent.NOT_SENT if failed_by_itself and not arrived else Sent.FINISHED
    detail = f"the client ended ({measured['end']}) and left no per-request data"
    return Faulted(reason=Reason.CLIENT, detail=detail, sent=sent)


def _summary_job(context: TrialContext) -> str:
    return f"{context.plan.trial_id}.summarise.{context.attempt}"


def _summarise_again(context: TrialContext, name: str, host: RemoteHost, folder: str) -> Faulted | None:
    """Run the client's summary over the data that is there. Sends no request: the mode reads files only."""
    runs = [entry.name for entry in host.list_directory(f"{folder}/out") if entry.kind == "directory"]
    if not runs:
        return Faulted(reason=Reason.POST_PROCESSING, detail="no output folder to summarise", sent=Sent.FINISHED)
    job_id = _summary_job(context)
    argv = (
        *context.pool.programs.aisbench,
        *("--models", "tuneloop_load", "--datasets", "tuneloop_load", "--summarizer", "default_perf"),
        *("--mode", "perf_viz", "--reuse", max(runs)),
        *("--config-dir", f"{folder}/cfg", "--work-dir", f"{folder}/out"),
    )
    spec = JobSpec(job_id=job_id, argv=argv, env=context.pool.hosts[name].env, cwd=folder, ttl_s=context.timeout_s)
    if host.poll(job_id).status is JobStatus.ABSENT:
        host.launch(spec, context.lease_on(name))
    end = wait_for_job(context, host, job_id, context.timeout_s + TTL_GRACE_S)
    if end.state is None:
        raise HostUnreachable(name, end.detail)
    if end.state.exit_code != 0:
        detail = f"the summary failed again (exit {end.state.exit_code}); the raw data is kept on the host"
        return Faulted(reason=Reason.POST_PROCESSING, detail=detail, sent=Sent.FINISHED)
    return None


def _matching(host: RemoteHost, folder: str, patterns: tuple[str, ...]) -> list[str]:
    """Paths below `folder` that fit a pattern, in name order. Links and odd files are left alone."""
    found: list[str] = []

    def walk(path: str, depth: int) -> None:
        for entry in sorted(host.list_directory(path), key=lambda e: e.name):
            inside = f"{path}/{entry.name}"
            if entry.kind == "directory" and depth < MAX_DEPTH:
                walk(inside, depth + 1)
            elif entry.kind == "file":
                relative = inside.removeprefix(f"{folder}/")
                if any(_fits(relative, pattern) for pattern in patterns):
                    found.append(relative)

    walk(folder, 0)
    return found


def _fits(path: str, pattern: str) -> bool:
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _keep(context: TrialContext, host: RemoteHost, folder: str, path: str) -> dict[str, Any]:
    """Fetch one raw file and hold it against the host's own hash."""
    data = host.fetch(f"{folder}/{path}", RAW_CAP_BYTES)
    kept = keep_bytes(context.artifacts, f"raw/{path}", data)
    on_host = host.file_digest(f"{folder}/{path}")
    if on_host is None or on_host.sha256 != kept["sha256"]:
        raise HostRefused(host.address.name, "changed", f"{path} changed while it was collected")
    return kept


@dataclass(frozen=True, kw_only=True)
class _ServerFiles:
    """`cut_logs`: roles whose log was rotated or truncated since the load began; what is left is not the whole."""

    files: list[dict[str, Any]]
    cut_logs: list[str]


def _server_files(context: TrialContext) -> _ServerFiles:
    """The part of each server's log that belongs to the load, and what each server reports after it."""
    found = _ServerFiles(files=[], cut_logs=[])
    measured = context.payloads[Stage.MEASURE]
    for server in service_of(context.payloads[Stage.LAUNCH]).servers:
        host, role = context.hosts[server.host], str(server.role)
        if head_of_log(host, server.job_id) != measured["log_heads"][role]:
            found.cut_logs.append(role)
        log = _whole_log(host, server.job_id, int(measured["log_offsets"][role]))
        found.files.append(keep_bytes(context.artifacts, f"{role}.log", log))
        startup = host.read_log(server.job_id, 0, STARTUP_CAP_BYTES).data
        found.files.append(keep_bytes(context.artifacts, f"{role}.startup.log", startup))
        if server.role is not Role.ROUTER:
            found.files.append(keep_bytes(context.artifacts, f"{role}.server_info.json", _server_info(context, server)))
    return found


def _server_info(context: TrialContext, server: Placed) -> bytes:
    host = context.hosts[server.host]
    try:
        return ask(context, host, server.port, HTTP_TIMEOUT_S, lambda http: http.get("/server_info").content)
    except httpx.HTTPError:
        return b"{}"  # evidence only: what it would have said is then not observed


def _whole_log(host: RemoteHost, job_id: str, offset: int) -> bytes:
    data = bytearray()
    while len(data) < LOG_CAP_BYTES:
        chunk = host.read_log(job_id, offset + len(data), 4 << 20)
        if not chunk.data:
            break
        data += chunk.data
    return bytes(data)


def analyse(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Recompute everything from the collected files. Pure but for reading them; contacts no host."""
    evidence = _evidence(context)
    result = read_measurement(
        context.artifacts / "raw",
        context.plan.scenario.load.client,
        _workload(context),
        context.pool.cards.total,
        rule=NativeRule(context.plan.native_rule),
        floor=WindowFloor(requests=context.plan.floor.requests, seconds=context.plan.floor.seconds),
        simulated=context.pool.simulated,
        experiment_id=context.plan.trial_id,
        evidence=_server_evidence(context, evidence),
        console=_console(context),
    )
    if not isinstance(result, Measurement):
        detail = f"{result.field}: {result.detail}"
        fault = Faulted(reason=result.reason, detail=detail, sent=Sent.FINISHED)
        return _with_server_death(context.payloads[Stage.MEASURE], fault)
    live = summarise_series(_live(context))
    payload = {
        "measurement": result.model_dump(mode="json"),
        "evidence": evidence.model_dump(mode="json"),
        "live": [rank.model_dump(mode="json") for rank in live],
    }
    sampled = max((rank.samples for rank in live), default=0)
    return Done(payload=payload, note=f"sampled live {sampled} times" if sampled else "")


def _workload(context: TrialContext) -> Workload:
    plan = context.plan
    warm = plan.scenario.cache.state == "warm"
    return Workload(
        requests=plan.load.requests,
        concurrency=plan.load.concurrency,
        output_tokens=plan.scenario.output_tokens,
        input_tokens=plan.scenario.input.encoded_tokens,
        rate_per_s=plan.load.rate,
        cache=CacheRule.WARM if warm else CacheRule.ZERO,
        min_cached_share=plan.scenario.cache.per_request_min or 0.0,
        allowed_failures=plan.allowed_failures,
        usual_retokenized_ratio=plan.usual_retokenized_ratio,
    )


def _console(context: TrialContext) -> str | None:
    """What the client said on its terminal: a second witness for its own figures."""
    for name in (SUMMARY_LOG, CLIENT_LOG):
        path = context.artifacts / name
        if path.exists():
            return path.read_text(errors="replace")
    return None


def _evidence(context: TrialContext) -> ServingEvidence:
    if Role.MIXED in context.plan.roles:
        both = _observed(context, Role.MIXED)
        return fold_evidence(both, both, simulated=context.pool.simulated)
    prefill, decode = _observed(context, Role.PREFILL), _observed(context, Role.DECODE)
    return fold_evidence(prefill, decode, simulated=context.pool.simulated)


def _observed(context: TrialContext, role: Role) -> Observed:
    """Live samples stand for the queues only where there are enough of them: few say less than the log's lines."""
    samples = _live(context).get(role, [])
    return Observed(records=_records(context, role), samples=samples if len(samples) >= ENOUGH_SAMPLES else ())


def _live(context: TrialContext) -> dict[Role, list[LoadSample]]:
    path = context.artifacts / SERIES
    return busy_part(parse_series(path.read_text(errors="replace"))) if path.is_file() else {}


def _records(context: TrialContext, role: Role) -> list[LogRecord]:
    """The log of the load, and from the start of the server the sizes that it really runs with."""
    startup = _parsed(context.artifacts / f"{role}.startup.log")
    sizes = [r for r in startup if isinstance(r, EffectiveSizes | ServerArguments)]
    cut = str(role) in context.payloads[Stage.COLLECT].get("cut_logs", ())
    return [*sizes, *([] if cut else _load_records(context, role))]


def _load_records(context: TrialContext, role: Role) -> list[LogRecord]:
    return _parsed(context.artifacts / f"{role}.log")


def _parsed(path: Path) -> list[LogRecord]:
    return list(parse_server_log(path.read_text(errors="replace").splitlines())) if path.exists() else []


def _server_evidence(context: TrialContext, evidence: ServingEvidence) -> ServerEvidence:
    """What the servers say about the cache and the accept length, where the client is silent."""
    role = Role.MIXED if Role.MIXED in context.plan.roles else Role.PREFILL
    batches = [r for r in _records(context, role) if isinstance(r, PrefillBatch)]
    checks = context.payloads[Stage.CACHE].get("checks", [])
    return ServerEvidence(
        cached_tokens=sum(b.cached_tokens for b in batches) if batches else None,
        check_requests=tuple((int(cached), int(total)) for cached, total in checks),
        accept_length=_reported_accept_length(context.artifacts) or evidence.decode.accept_length.value,
    )


def _reported_accept_length(artifacts: Path) -> float | None:
    """Mean over the ranks of the server's own average since the flush before the load."""
    for role in (Role.DECODE, Role.MIXED):
        path = artifacts / f"{role}.server_info.json"
        if not path.exists():
            continue
        states = json.loads(path.read_text()).get("internal_states") or []
        found = [s["avg_spec_accept_length"] for s in states if s.get("avg_spec_accept_length")]
        return sum(found) / len(found) if found else None
    return None


def release(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Give the leases back. The servers stay up: the next trial may want the very same ones.

    A host that does not answer now, or whose lease is lost, costs nothing: a lease runs out by itself.
    """
    left = []
    for name, lease in sorted(context.leases.items()):
        try:
            context.hosts[name].release(lease)
        except HostError as error:
            left.append(str(error))
    context.leases = {}
    return Done(note="; ".join(["servers kept for the next trial", *left]))
