"""Expert layouts that the pool file names: what a name means on a host, and for what a fitted one was made. Pure.

A configuration holds the name; the server is started with a file below the work directory and with as many redundant
experts as the layout has slots for. A name means one file on one pool: made once, then only loaded, and refused for
another model, build, topology or workload than those it was recorded with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from executor.engines.role_settings import RoleSettings
from executor.pool import LAYOUT_FLAG, Layout, Pool
from experiments.errors import InputError
from experiments.scenario import Scenario
from experiments.serving_config import Kind, Path, Role, ServingConfig

REDUNDANT = "ep-num-redundant-experts"
RECORDER = "expert-distribution-recorder-mode"
RECORDER_FOLDER = "SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR"
# What decides which rank holds a slot, and what a rank computes.
_TOPOLOGY = ("tp-size", "dp-size", "attn-dp-size", "pp-size", "ep-size", "moe-a2a-backend", "enable-dp-attention")


@dataclass(frozen=True, kw_only=True)
class NamedLayout:
    """One role's layout by name, and its place on that role's first host."""

    role: Role
    kind: Kind
    name: str
    layout: Layout
    host: str
    folder: str

    @property
    def file(self) -> str:
        """What the engine reads."""
        return f"{self.folder}/layout.json"

    @property
    def origin(self) -> str:
        """What it was made from; written last, so that it stands only beside a whole layout."""
        return f"{self.folder}/origin.json"

    @property
    def recorded(self) -> str:
        """Where the engine's recorder writes."""
        return f"{self.folder}/recorded"


def named_layouts(pool: Pool, config: ServingConfig) -> tuple[NamedLayout, ...]:
    """Every layout that this configuration names. Raises InputError for a name that the pool does not have."""
    found = (_named(pool, config, role, kind) for role in _SERVERS for kind in (Kind.LAYOUT, Kind.FLAG))
    return tuple(layout for layout in found if layout is not None)


def place_layouts(pool: Pool, config: ServingConfig) -> ServingConfig:
    """The configuration with files in place of names, and the redundant experts that go with each.

    Raises InputError where the configuration asks for another number of redundant experts.
    """
    for named in named_layouts(pool, config):
        slots = Path(named.role, Kind.FLAG, REDUNDANT)
        wanted, given = named.layout.fit.redundant_experts, config.get(slots)
        if given not in (None, wanted):
            message = f"{slots} is {given}, the layout {named.name} has {wanted}: leave the flag out"
            raise InputError("serving configuration", 0, 0, message)
        config = config.with_value(Path(named.role, named.kind, LAYOUT_FLAG), named.file)
        config = config.with_value(slots, wanted or None)
    return config


def recording_config(config: ServingConfig, layouts: Iterable[NamedLayout]) -> ServingConfig:
    """The configuration without these layouts and with the engine's recorder on: never that of a formal run."""
    for named in layouts:
        config = config.with_value(Path(named.role, named.kind, LAYOUT_FLAG), None)
        config = config.with_value(Path(named.role, Kind.FLAG, RECORDER), named.layout.record.mode)
        config = config.with_value(Path(named.role, Kind.ENV, RECORDER_FOLDER), named.recorded)
    return config


def purpose_of(
    pool: Pool, config: ServingConfig, scenario: Scenario, named: NamedLayout, installed: str | None
) -> dict[str, Any]:
    """What a layout is made for: another value of any of these is another layout. `installed` None: not observed."""
    view = RoleSettings.of(config, named.role)
    build = pool.build_named(config.get_build(named.role))
    return {
        "model": pool.client.model_path,
        "build": {"program": list(build.server), "installed": installed},
        "topology": {name: view.flags[name] for name in _TOPOLOGY if view.flags.get(name) is not None},
        "workload": {
            "task": scenario.input.task,
            "input_tokens": scenario.input.encoded_tokens,
            "output_tokens": scenario.output_tokens,
        },
        "asked": named.layout.model_dump(mode="json"),
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In which respects a layout was made for something else. A build that was not observed is not another one."""
    observed = all(isinstance(p.get("build"), dict) and p["build"].get("installed") for p in (before, now))
    return [name for name in now if _compared(before, name, observed) != _compared(now, name, observed)]


def _compared(purpose: Mapping[str, Any], name: str, observed: bool) -> object:
    value = purpose.get(name)
    return {**value, "installed": None} if name == "build" and isinstance(value, dict) and not observed else value


_SERVERS = (Role.PREFILL, Role.DECODE, Role.MIXED)


def _named(pool: Pool, config: ServingConfig, role: Role, kind: Kind) -> NamedLayout | None:
    name = config.get(Path(role, kind, LAYOUT_FLAG))
    layout = pool.layout_named(name)
    if layout is None:
        return None
    host = next(iter(pool.hosts_of(role)), None)
    if host is None:
        return None
    folder = f"{pool.workdir_of(host)}/layouts/{role}.{name}"
    return NamedLayout(role=role, kind=kind, name=str(name), layout=layout, host=host, folder=folder)
