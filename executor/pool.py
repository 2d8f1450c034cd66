"""`pool.yaml`: the machines that one trial holds, how they are reached, and the programs that run on them.

A simulated pool and a real one differ in this file only. Nothing of it reaches a prompt or the ledger except
the name of the pool, the number of cards, and whether it is simulated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from experiments.document import parse_document
from experiments.errors import InputError
from experiments.goal import Goal
from experiments.knob import check_env
from experiments.scalar import shown
from experiments.schema import FieldError, Int, Line, Strict, Switch, one_line, validate
from experiments.serving_config import Role
from experiments.trial import Stage, Tier

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]

# These names become parts of argument lists: none may start like an option.
_SSH_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:]+")
_HOST_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FILE = re.compile(r"/|\.(?:json|pt)$")

LAYOUT_FLAG = "init-expert-location"
ENGINE_LAYOUTS = frozenset({"trivial"})  # placements that the engine knows by a word


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text) or len(text) > 253:
            raise ValueError(f"{shown(text)} is not {what}")
        return text

    return AfterValidator(check)


def _absolute(path: str) -> str:
    parts = path.split("/")
    if not path.startswith("/") or ".." in parts or not path.strip("/") or not path.isprintable():
        raise ValueError(f"{shown(path)} is not an absolute path below / without '..'")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Argv = Annotated[tuple[Line, ...], Field(min_length=1, max_length=50)]


def _variables(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        try:
            check_env(name)
            one_line(value or " ")
        except ValueError as error:
            raise FieldError((name,), str(error)) from None
    return variables


def _one_role(role: Role) -> Role:
    if role is Role.BOTH:
        raise ValueError("a host is prefill or decode; a machine that is both has two entries")
    return role


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Variable = Annotated[str, BeforeValidator(_number_as_text)]


class Cards(Strict):
    """How many cards serve each side. The total divides a throughput "per card"."""

    prefill: Int = Field(default=0, ge=0, le=10_000)
    decode: Int = Field(default=0, ge=0, le=10_000)
    mixed: Int = Field(default=0, ge=0, le=10_000)

    @property
    def total(self) -> int:
        return self.prefill + self.decode + self.mixed

    @property
    def deployment(self) -> Literal["pd", "mixed"]:
        return "mixed" if self.mixed else "pd"

    @model_validator(mode="after")
    def _one_deployment(self) -> Cards:
        if self.mixed and (self.prefill or self.decode):
            raise FieldError(("mixed",), "a pool is either prefill and decode, or mixed")
        if not self.mixed and not (self.prefill and self.decode):
            raise FieldError((), "a pool has prefill and decode cards, or mixed cards")
        return self


class Host(Strict):
    """One machine. `ssh` is a name of the user's own ssh configuration; `address` is how peers reach it."""

    role: Annotated[Role, AfterValidator(_one_role)]
    ssh: Annotated[str, _matching(_SSH_NAME, "a host name of an ssh configuration")]
    container: Annotated[str, _matching(_CONTAINER, "a name of a container")] | None = None
    address: Annotated[str, _matching(_ADDRESS, "a host name or an address")] = "127.0.0.1"
    port: Port = 30000
    bootstrap_port: Port = 8998
    python: Line = "python3"
    workdir: AbsolutePath | None = None  # where this machine keeps its jobs; None: the pool's
    env: Annotated[dict[str, Variable], AfterValidator(_variables)] = Field(default={}, max_length=500)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that our servers take on this machine."""
        match self.role:
            case Role.PREFILL:
                return (self.port, self.bootstrap_port)
            case Role.DECODE | Role.MIXED:
                return (self.port,)
            case _:
                return ()


class Router(Strict):
    """`prometheus_port` None: the router's own default, which two routers on one machine cannot share."""

    on: str
    port: Port = 30100
    prometheus_port: Port | None = None
    kind: Literal["sglang-router", "smg"] = "sglang-router"


class Client(Strict):
    """Where the load comes from, and what the model is called there."""

    on: str
    model_path: Line
    tokenizer_path: Line | None = None


class SshFiles(Strict):
    """None means the files of the user who runs the service."""

    config: Line | None = None
    known_hosts: Line | None = None


class Engine(Strict):
    """The installed engine. `python` is the interpreter that can import it; None: that of each host."""

    version: Line | None = None
    python: Line | None = None


class Programs(Strict):
    """What is run on the hosts: argument lists, never shell text."""

    server: Argv = ("python3", "-m", "sglang.launch_server")
    router: Argv = ("python3", "-m", "sglang_router.launch_router")
    aisbench: Argv = ("ais_bench",)
    bench_serving: Argv = ("python3", "-m", "sglang.bench_serving")
    # None: ours, sent to the host and run by the engine's Python.
    dataset: Argv | None = None  # takes --spec FILE --out FOLDER
    argument_check: Argv | None = None  # takes the arguments of a server
    admission_check: Argv | None = None  # takes one JSON object


class Build(Strict):
    """One build that is installed beside the usual one, under the name that a card gives it.

    `version` is what its servers must report, `source` what the host-side check must find (`commit:…`, `files:…`).
    """

    server: Argv
    python: Line | None = None
    env: Annotated[dict[str, Variable], AfterValidator(_variables)] = Field(default={}, max_length=500)
    version: Line | None = None
    source: Line | None = None


class Recording(Strict):
    """How the engine's own recorder of expert loads is run. The load is no formal one; its prompts are others."""

    mode: Literal["stat", "stat_approx"] = "stat"
    requests: Int = Field(default=64, ge=1, le=10_000)
    concurrency: Int = Field(default=16, ge=1, le=10_000)


class Fitting(Strict):
    """How a layout is made from what was recorded. Redundant experts cost memory on every rank."""

    algorithm: Literal["greedy"] = "greedy"
    redundant_experts: Int = Field(default=0, ge=0, le=4096)


class Layout(Strict):
    """One expert layout, under the name that a card gives it: recorded, fitted and loaded when it is first wanted."""

    record: Recording = Recording()
    fit: Fitting = Fitting()


class Profile(Strict):
    """A short profile of the servers after the numbers of such a trial are safe. Requests and steps are few."""

    tiers: tuple[Tier, ...] = Field(default=(Tier.CONFIRMATION,), min_length=1)
    steps: Int = Field(default=5, ge=1, le=100)
    requests: Int = Field(default=16, ge=1, le=1000)


Seconds = Annotated[float, Field(strict=True, gt=0, le=7 * 24 * 3600)]


class Timeouts(Strict):
    """The longest that one attempt of a stage may take, in seconds."""

    check: Seconds = 300
    reserve: Seconds = 30
    prepare: Seconds = 600
    record: Seconds = 3600  # with the start of the servers that record
    fit: Seconds = 900
    launch: Seconds = 120
    ready: Seconds = 1800
    canary: Seconds = 300
    warm_up: Seconds = 900
    cache: Seconds = 1800
    measure: Seconds = 7200
    collect: Seconds = 900
    analyse: Seconds = 300
    profile: Seconds = 900
    evaluate: Seconds = 7200
    release: Seconds = 300
    devices_idle: Seconds = 180  # after a kill, until the device memory is free again

    def of(self, stage: Stage) -> float:
        return float(getattr(self, stage))


class Pool(Strict):
    name: Annotated[str, _matching(_HOST_NAME, "a name of lower-case letters, digits and single dashes")]
    simulated: Switch = False
    cards: Cards
    hosts: dict[str, Host] = Field(min_length=1, max_length=500)
    router: Router
    client: Client
    ssh: SshFiles = SshFiles()
    workdir: AbsolutePath
    engine: Engine = Engine()
    programs: Programs = Programs()
    builds: dict[str, Build] = Field(default={}, max_length=100)
    layouts: dict[str, Layout] = Field(default={}, max_length=100)
    profile: Profile | None = None
    timeouts: Timeouts = Timeouts()

    def hosts_of(self, role: Role) -> dict[str, Host]:
        """The hosts of a role, in the order of the file."""
        return {name: host for name, host in self.hosts.items() if host.role is role}

    def workdir_of(self, name: str) -> str:
        return self.hosts[name].workdir or self.workdir

    def build_named(self, name: object) -> Build:
        """The build that a configuration names; None names the usual one. Raises InputError for an unknown one."""
        if name is None:
            return Build(server=self.programs.server, python=self.engine.python)
        if str(name) not in self.builds:
            known = ", ".join(self.builds) or "none"
            raise InputError("pool.yaml", 0, 0, f"build {shown(name)} is not under builds; there are: {known}")
        return self.builds[str(name)]

    def layout_named(self, value: object) -> Layout | None:
        """The layout of this name; None for a file, a placement that is written out, a word of the engine, or nothing.

        Raises InputError for a name that is not in the file: the engine would take it for a placement.
        """
        if not isinstance(value, str) or value in ENGINE_LAYOUTS or value.startswith("{") or _FILE.search(value):
            return None
        if value not in self.layouts:
            known = ", ".join(self.layouts) or "none"
            raise InputError("pool.yaml", 0, 0, f"layout {shown(value)} is not under layouts; there are: {known}")
        return self.layouts[value]

    def engine_python_of(self, name: str, build: Build | None = None) -> str:
        """The interpreter on this machine that can import the engine and the model's tokenizer."""
        return (build and build.python) or self.engine.python or self.hosts[name].python

    @model_validator(mode="after")
    def _layouts_have_names(self) -> Pool:
        for name in self.layouts:
            if not _HOST_NAME.fullmatch(name) or name in ENGINE_LAYOUTS:
                message = "a layout is named with lower-case letters, digits and dashes, and not like one of the engine"
                raise FieldError(("layouts", name), message, at_key=True)
        return self

    @model_validator(mode="after")
    def _names_exist(self) -> Pool:
        for name in self.hosts:
            if not _HOST_NAME.fullmatch(name):
                raise FieldError(
                    ("hosts", name), "a host is named with lower-case letters, digits and dashes", at_key=True
                )
        for part, on in (("router", self.router.on), ("client", self.client.on)):
            if on not in self.hosts:
                known = ", ".join(self.hosts)
                raise FieldError((part, "on"), f"{shown(on)} is not one of the hosts: {known}")
        return self

    @model_validator(mode="after")
    def _roles_have_hosts(self) -> Pool:
        for role in (Role.PREFILL, Role.DECODE, Role.MIXED):
            count, hosts = getattr(self.cards, role), self.hosts_of(role)
            if count and not hosts:
                raise FieldError(("hosts",), f"cards has {count} for {role}, but no host has role: {role}")
            if hosts and not count:
                raise FieldError(("hosts", next(iter(hosts)), "role"), f"cards has no {role} cards")
        return self

    @model_validator(mode="after")
    def _sides_are_one_server(self) -> Pool:
        """A further host would be counted in "per card" and serve nothing."""
        for role in (Role.PREFILL, Role.DECODE, Role.MIXED):
            hosts = tuple(self.hosts_of(role))
            if len(hosts) > 1:
                message = f"{hosts[0]} is the {role} host already: each side is one server on one host"
                raise FieldError(("hosts", hosts[1], "role"), message)
        return self

    @model_validator(mode="after")
    def _ports_are_free(self) -> Pool:
        taken: dict[tuple[str, int], str] = {}
        for name, loc, machine, port in self._listeners():
            if (machine, port) in taken:
                raise FieldError(loc, f"port {port} on {machine} is already that of {taken[machine, port]}")
            taken[machine, port] = name
        return self

    def _listeners(self) -> Iterable[tuple[str, tuple[str, ...], str, int]]:
        """Every server of ours: its name, where the file gives its port, its machine and its port."""
        for name, host in self.hosts.items():
            for field, port in zip(("port", "bootstrap_port"), host.ports, strict=False):
                yield f"hosts.{name}", ("hosts", name, field), host.ssh, port
        machine = self.hosts[self.router.on].ssh
        yield "router", ("router", "port"), machine, self.router.port
        if self.router.prometheus_port is not None:
            yield "router", ("router", "prometheus_port"), machine, self.router.prometheus_port


def parse_pool(text: str | bytes, file: str) -> Pool:
    return validate(parse_document(text, file), Pool)


def check_fit(pool: Pool, goal: Goal, file: str) -> None:
    """Raise InputError where the pool cannot serve what the goal deploys."""
    if pool.cards.deployment != goal.scenario.deployment:
        message = f"the goal deploys {goal.scenario.deployment}, the cards of this pool are for "
        raise InputError(file, 0, 0, message + pool.cards.deployment)
    for knob in goal.space.knobs:
        if knob.name == LAYOUT_FLAG:
            for value in knob.candidates():
                pool.layout_named(value)
