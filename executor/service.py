"""The servers of a trial: find what runs, keep what is wanted and healthy, replace the rest, start what is missing.

A server that runs under the wanted key is kept, whoever started it in this study, so that one failed side never costs
the healthy one and a change of C or r restarts nothing. Everything else of ours on the pool is ended and confirmed
before its successor starts. What is not ours is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from executor.engines.sglang_launch import (
    RouterDialect,
    RouterPlacement,
    ServerPlacement,
    Worker,
    compile_router_launch,
    compile_server_launch,
)
from executor.failpoints import failpoint
from executor.layouts import place_layouts
from executor.pool import Host, Pool
from executor.remote_host import JobSpec, JobState, RemoteHost
from executor.trial_context import TrialContext
from executor.trial_plan import role_of_server_job, server_job_prefix, service_key
from experiments.errors import PortTaken
from experiments.serving_config import Role, ServingConfig, digest

SERVER_TTL_S = 24 * 3600.0  # the host's own end of a server that nobody asks about any more
CANCEL_PATIENCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Placed:
    """One server that must run: which job, where, with what."""

    role: Role
    host: str
    job_id: str
    port: int
    reused: bool


@dataclass(frozen=True, kw_only=True)
class ServiceIntent:
    """Decided before anything is touched and kept in the journal, so that a resumed launch means the same jobs."""

    servers: tuple[Placed, ...]
    obsolete: tuple[tuple[str, str], ...]  # (host, job id) of ours that have to go first

    @property
    def is_hot(self) -> bool:
        return all(server.reused for server in self.servers)


def plan_service(context: TrialContext) -> ServiceIntent:
    """Look at the hosts and decide. Asks only; changes nothing."""
    jobs = {name: host.jobs() for name, host in context.hosts.items()}
    servers = [_place(context, role, jobs) for role in context.plan.roles]
    if context.plan.has_router:
        servers.append(_place_router(context, servers, jobs))
    wanted = {server.job_id for server in servers}
    obsolete = tuple(
        (name, job.job_id)
        for name, found in jobs.items()
        for job in found
        if job.is_live and role_of_server_job(job.job_id) is not None and job.job_id not in wanted
    )
    return ServiceIntent(servers=tuple(servers), obsolete=obsolete)


def _place(context: TrialContext, role: Role, jobs: Mapping[str, tuple[JobState, ...]]) -> Placed:
    name, _ = context.host_of(role)
    key = service_key(context.plan, context.pool, role, context.layout_digest(role))
    prefix = server_job_prefix(context.plan, role, key)
    return _choose(role, name, context.pool.hosts[name].port, prefix, jobs[name])


def _place_router(context: TrialContext, servers: list[Placed], jobs: Mapping[str, tuple[JobState, ...]]) -> Placed:
    """The router belongs to these very servers: it keeps circuit breakers and addresses of the ones that it met."""
    name = context.pool.router.on
    settings = context.plan.config.fingerprint(Role.ROUTER)
    key = digest([settings, *(server.job_id for server in servers)])[:12]
    prefix = server_job_prefix(context.plan, Role.ROUTER, key)
    return _choose(Role.ROUTER, name, context.pool.router.port, prefix, jobs[name])


def _choose(role: Role, host: str, port: int, prefix: str, jobs: tuple[JobState, ...]) -> Placed:
    ours = [job for job in jobs if job.job_id.startswith(prefix)]
    live = next((job for job in ours if job.is_live), None)
    job_id = live.job_id if live is not None else f"{prefix}{len(ours) + 1}"
    return Placed(role=role, host=host, job_id=job_id, port=port, reused=live is not None)


def end_obsolete(context: TrialContext, intent: ServiceIntent) -> list[str]:
    """End our superseded servers, router first. Returns those that would not die."""
    routers_first = sorted(intent.obsolete, key=lambda item: role_of_server_job(item[1]) != Role.ROUTER)
    survivors = []
    for name, job_id in routers_first:
        context.say(f"ending {role_of_server_job(job_id)}")
        state = context.hosts[name].cancel(job_id, context.lease_on(name), patience_s=CANCEL_PATIENCE_S)
        failpoint("launch.ended_obsolete")
        if state.is_live:
            survivors.append(f"{job_id} on {name}")
    return survivors


def start_missing(context: TrialContext, intent: ServiceIntent) -> Iterator[tuple[Placed, JobState]]:
    """Launch every server that does not run yet. Asking again for a claimed id starts nothing.

    The gate is asked before each one: a pause between two servers starts no second one.
    """
    for server in intent.servers:
        if server.reused:
            continue
        host = context.hosts[server.host]
        blocked = context.gate(context.timeout_s)
        if blocked is not None:
            raise NotNow(blocked.reason)
        _refuse_stranger(host, server, _ports_of(context, server))
        context.say(f"starting {server.role}")
        spec, lease = (
            compile_job(context.pool, context.plan.config, server, intent.servers),
            context.lease_on(server.host),
        )
        failpoint(f"launch.{server.role}.before_send")
        state = host.launch(spec, lease)
        failpoint(f"launch.{server.role}.after_send")
        yield server, state


class NotNow(Exception):
    """Nothing may be started now. The launch goes on later under the same ids."""


def _ports_of(context: TrialContext, server: Placed) -> tuple[int, ...]:
    """Every port that this server will take on its machine."""
    if server.role is not Role.ROUTER:
        return context.pool.hosts[server.host].ports
    metrics = context.pool.router.prometheus_port
    return (server.port,) if metrics is None else (server.port, metrics)


def _refuse_stranger(host: RemoteHost, server: Placed, ports: tuple[int, ...]) -> None:
    for listener in host.listeners(ports):
        if listener.job_id != server.job_id:
            owner = f"our job {listener.job_id}" if listener.job_id else f"pid {listener.pid} ({listener.command})"
            raise PortTaken(
                host.address.name,
                f"port {listener.port} for {server.role} is taken by {owner}; it is left alone. "
                "End it yourself or give the pool another port",
            )


def compile_job(pool: Pool, config: ServingConfig, server: Placed, servers: Sequence[Placed]) -> JobSpec:
    """The whole command of one server or router, as data. `servers`: all of them; the router has to know."""
    config = place_layouts(pool, config)
    host = pool.hosts[server.host]
    if server.role is Role.ROUTER:
        launch = compile_router_launch(config, _router_placement(pool, servers))
        program = pool.programs.router
    else:
        placement = ServerPlacement(
            host=host.address, port=host.port, bootstrap_port=host.bootstrap_port, store_url=_store_url(pool)
        )
        build = pool.build_named(config.get_build(server.role))
        launch = compile_server_launch(config, server.role, placement)
        launch = replace(launch, env={**build.env, **launch.env})
        program = (*build.server, "--model-path", pool.client.model_path)
    return JobSpec(
        job_id=server.job_id,
        argv=(*program, *launch.arguments),
        env={**host.env, **launch.env},
        cwd=pool.workdir_of(server.host),
        ttl_s=SERVER_TTL_S,
    )


def _store_url(pool: Pool) -> str | None:
    """The handshake store of the Ascend transfer sits with the first prefill server."""
    prefill = pool.hosts_of(Role.PREFILL)
    first = next(iter(prefill.values()), None)
    return f"tcp://{first.address}:{first.bootstrap_port + 1}" if first is not None else None


def _router_placement(pool: Pool, servers: Sequence[Placed]) -> RouterPlacement:
    router = pool.hosts[pool.router.on]
    smg = pool.router.kind == "smg"
    return RouterPlacement(
        host=router.address,
        port=pool.router.port,
        prometheus_port=pool.router.prometheus_port,
        prefill=_workers(pool, servers, Role.PREFILL),
        decode=_workers(pool, servers, Role.DECODE),
        dialect=RouterDialect.SMG if smg else RouterDialect.SGLANG_ROUTER,
    )


def _workers(pool: Pool, servers: Sequence[Placed], role: Role) -> tuple[Worker, ...]:
    return tuple(_worker(pool.hosts[s.host], role) for s in servers if s.role is role)


def _worker(host: Host, role: Role) -> Worker:
    port = host.bootstrap_port if role is Role.PREFILL else None
    return Worker(host=host.address, port=host.port, bootstrap_port=port)


def front_door(context: TrialContext) -> tuple[str, str, int]:
    """Where the load goes: (host name, address, port) of the router, or of the one mixed server."""
    if context.plan.has_router:
        name = context.pool.router.on
        return name, context.pool.hosts[name].address, context.pool.router.port
    name, _ = context.host_of(Role.MIXED)
    return name, context.pool.hosts[name].address, context.pool.hosts[name].port


def tear_down(hosts: Mapping[str, RemoteHost], owner: str, ttl_s: float) -> list[str]:
    """End every server of this owner on the pool, routers first, and say what would not die."""
    survivors = []
    for name in sorted(hosts):
        host = hosts[name]
        lease = host.acquire(owner, ttl_s)
        ours = [j for j in host.jobs() if j.is_live and j.job_id.startswith(f"{owner}.")]
        for job in sorted(ours, key=lambda j: role_of_server_job(j.job_id) != Role.ROUTER):
            if host.cancel(job.job_id, lease, patience_s=CANCEL_PATIENCE_S).is_live:
                survivors.append(f"{job.job_id} on {name}")
        host.release(lease)
    return survivors
