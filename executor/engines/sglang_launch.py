"""From a serving configuration and a placement to the argument list and environment of one server or router.

Decides the words and their order, nothing else: no process is started, no shell is involved, no default is
added to a server. What the pool places (address, port, peers) cannot also be configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from executor.engines.flags import normalise_flag, render_env, render_flag
from experiments.errors import InputError
from experiments.serving_config import Kind, Role, ServingConfig, Value

SERVER_ENTRY = ("-m", "sglang.launch_server")
PLACED_FLAGS = frozenset(
    {
        "host",
        "port",
        "disaggregation-mode",
        "disaggregation-bootstrap-port",
        "dist-init-addr",
        "nnodes",
        "node-rank",
        "pd-disaggregation",
        "prefill",
        "decode",
        "prometheus-port",
    }
)


class RouterDialect(StrEnum):
    """Which router is installed: the old package, or its successor with a command of its own."""

    SGLANG_ROUTER = "sglang_router"
    SMG = "smg"


@dataclass(frozen=True, kw_only=True)
class ServerPlacement:
    """Where one server sits. `host` is the address it binds and is reached at by its peers."""

    host: str
    port: int
    bootstrap_port: int | None = None  # prefill: where decode asks for the handshake
    store_url: str | None = None  # ascend transfer: tcp://<first prefill>:<port>, the same on both sides
    nnodes: int = 1
    node_rank: int = 0
    dist_init_addr: str | None = None


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One server behind the router, by its HTTP address."""

    host: str
    port: int
    bootstrap_port: int | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class RouterPlacement:
    """Where the router listens and whom it serves. Without prefill workers it is a plain load balancer."""

    host: str
    port: int
    prefill: tuple[Worker, ...] = ()
    decode: tuple[Worker, ...] = ()
    mixed: tuple[Worker, ...] = ()
    prometheus_port: int | None = None
    dialect: RouterDialect = RouterDialect.SGLANG_ROUTER


@dataclass(frozen=True, kw_only=True)
class ServerLaunch:
    """How one process starts. `env` comes on top of the host's own; `arguments` follow `entry`."""

    entry: tuple[str, ...]
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def argv(self, python: str) -> tuple[str, ...]:
        """The whole argument list, run by this interpreter unless the entry is a command of its own."""
        prefix = (python,) if self.entry[0].startswith("-") else ()
        return (*prefix, *self.entry, *self.arguments)


def compile_server_launch(config: ServingConfig, role: Role, placement: ServerPlacement) -> ServerLaunch:
    """Placement first, then the configured flags in name order. `InputError` on what cannot be rendered."""
    flags = configured_flags(config, role)
    arguments = [word for name, value in flags.items() for word in render_flag(role, name, value)]
    return ServerLaunch(
        entry=SERVER_ENTRY,
        arguments=(*_placement_words(role, placement), *arguments),
        env=_environment(config, role, flags, placement),
    )


def compile_router_launch(config: ServingConfig, placement: RouterPlacement) -> ServerLaunch:
    """A router that does not retry unless configured to: a retry inflates latency without a trace."""
    flags: dict[str, Value] = {"disable-retries": True, **configured_flags(config, Role.ROUTER)}
    arguments = [word for name, value in sorted(flags.items()) for word in render_flag(Role.ROUTER, name, value)]
    return ServerLaunch(
        entry=_router_entry(placement.dialect),
        arguments=(*_router_words(placement), *arguments),
        env=_environment(config, Role.ROUTER, flags, None),
    )


def configured_flags(config: ServingConfig, role: Role) -> dict[str, Value]:
    """Flags and expert layouts of one role under their full names, in name order; each name once."""
    flags: dict[str, Value] = {}
    for kind in (Kind.FLAG, Kind.LAYOUT):
        for name, value in config.of(role, kind).items():
            flag = normalise_flag(name)
            _refuse_placed(role, kind, flag)
            if flag in flags and flags[flag] != value:
                raise InputError(
                    "serving configuration",
                    0,
                    0,
                    f"{role}: {flag} is set twice: {flags[flag]} and {value}",
                )
            flags[flag] = value
    return dict(sorted(flags.items()))


def _refuse_placed(role: Role, kind: Kind, flag: str) -> None:
    if flag in PLACED_FLAGS:
        raise InputError(
            "serving configuration", 0, 0, f"{role}.{kind}.{flag}: the pool file decides this; remove it here"
        )


def _placement_words(role: Role, placement: ServerPlacement) -> tuple[str, ...]:
    words = ["--host", placement.host, "--port", str(placement.port)]
    if role in (Role.PREFILL, Role.DECODE):
        words += ["--disaggregation-mode", role.value]
    if role is Role.PREFILL and placement.bootstrap_port is not None:
        words += ["--disaggregation-bootstrap-port", str(placement.bootstrap_port)]
    if placement.nnodes > 1:
        words += ["--nnodes", str(placement.nnodes), "--node-rank", str(placement.node_rank)]
        words += ["--dist-init-addr", _required(placement.dist_init_addr)]
    return tuple(words)


def _required(dist_init_addr: str | None) -> str:
    if dist_init_addr is None:
        raise InputError("pool", 0, 0, "a server over several hosts needs dist_init_addr (host:port)")
    return dist_init_addr


def _environment(
    config: ServingConfig, role: Role, flags: Mapping[str, Value], placement: ServerPlacement | None
) -> dict[str, str]:
    env = {
        name: text
        for name, value in config.of(role, Kind.ENV).items()
        if (text := render_env(role, name, value)) is not None
    }
    ascend = flags.get("disaggregation-transfer-backend") == "ascend"
    if ascend and placement is not None and placement.store_url is not None:
        env.setdefault("ASCEND_MF_STORE_URL", placement.store_url)
    return dict(sorted(env.items()))


def _router_entry(dialect: RouterDialect) -> tuple[str, ...]:
    match dialect:
        case RouterDialect.SGLANG_ROUTER:
            return ("-m", "sglang_router.launch_router")
        case RouterDialect.SMG:
            return ("smg", "launch")


def _router_words(placement: RouterPlacement) -> tuple[str, ...]:
    words = ["--host", placement.host, "--port", str(placement.port)]
    if placement.prefill or placement.decode:
        words.append("--pd-disaggregation")
    for worker in placement.prefill:
        port = () if worker.bootstrap_port is None else (str(worker.bootstrap_port),)
        words += ["--prefill", worker.url, *port]
    for worker in placement.decode:
        words += ["--decode", worker.url]
    if placement.mixed:
        words += ["--worker-urls", *(worker.url for worker in placement.mixed)]
    if placement.prometheus_port is not None:
        words += ["--prometheus-port", str(placement.prometheus_port)]
    return tuple(words)
