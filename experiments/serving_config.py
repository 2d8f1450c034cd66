"""What one trial serves with: the arguments and environment of each role, the client load, and the build.

A configuration is a flat map from a path (role, kind, name) to a value, so that "exactly one change" is a set
difference and nothing else. Paths are the only way in: there is no nested dictionary to disagree about.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

Value = bool | int | float | str | None


class Role(StrEnum):
    """Which part of the pool a setting belongs to."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"  # only in knobs: one value, written to prefill and decode together
    MIXED = "mixed"  # a deployment without prefill/decode separation
    ROUTER = "router"
    CLIENT = "client"


class Kind(StrEnum):
    """What kind of thing a knob turns."""

    FLAG = "flag"  # a command-line flag of the server
    ENV = "env"  # an environment variable of the server
    CLIENT = "client"  # concurrency, rate or requests of the load
    LAYOUT = "layout"  # a static expert placement file
    BUILD = "build"  # the source identity: commit, image or reviewed patch


class Path(NamedTuple):
    """Where one value sits: `prefill.flag.prefill-max-requests`."""

    role: Role
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.role}.{self.kind}.{self.name}"

    @classmethod
    def parse(cls, text: str) -> Path:
        role, kind, name = text.split(".", 2)
        return cls(Role(role), Kind(kind), name)


class Change(BaseModel):
    """The single difference between a card and its parent. `None` means that the setting is absent.

    `also` makes it a declared bundle of two parts, which admission lets through in an escape card only: its effect is
    credited to the combination. A stored change without it looks as it did before there were bundles.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    kind: Kind
    name: str
    from_value: Value
    to_value: Value
    also: Change | None = None

    @property
    def path(self) -> Path:
        return Path(self.role, self.kind, self.name)

    @property
    def parts(self) -> tuple[Change, ...]:
        """The one change, or the two parts of a bundle."""
        if self.also is None:
            return (self,)
        return (self.model_copy(update={"also": None}), self.also)

    def __str__(self) -> str:
        before = "unset" if self.from_value is None else self.from_value
        after = "unset" if self.to_value is None else self.to_value
        together = "" if self.also is None else f" with {self.also}"
        return f"{self.role} {self.name} {before} → {after}{together}"

    @model_serializer(mode="wrap")
    def _without_absent_part(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = handler(self)
        if self.also is None:
            fields.pop("also", None)
        return fields


class ServingConfig(BaseModel):
    """One whole configuration, by path. Stored as `{"prefill.flag.tp-size": 16, …}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Mapping[str, Value]

    def get(self, path: Path) -> Value:
        """The value at a path, None where it is absent. Of a `both` path, the prefill side's."""
        role = Role.PREFILL if path.role is Role.BOTH else path.role
        return self.settings.get(str(path._replace(role=role)))

    def of(self, role: Role, kind: Kind) -> dict[str, Value]:
        """The settings of one role and kind, by bare name, in name order."""
        prefix = f"{role}.{kind}."
        return {key[len(prefix) :]: self.settings[key] for key in sorted(self.settings) if key.startswith(prefix)}

    def get_build(self, role: Role) -> Value:
        """The source identity that a role runs, None for the one that the host has."""
        return next(iter(self.of(role, Kind.BUILD).values()), None)

    def with_value(self, path: Path, value: Value) -> ServingConfig:
        """A copy in which `path` holds `value`; `None` removes it. `both` writes prefill and decode."""
        roles = (Role.PREFILL, Role.DECODE) if path.role is Role.BOTH else (path.role,)
        settings = dict(self.settings)
        for role in roles:
            key = str(path._replace(role=role))
            if value is None:
                settings.pop(key, None)
            else:
                settings[key] = value
        return ServingConfig(settings=settings)

    def changed(self, change: Change) -> ServingConfig:
        """A copy with every part of the change applied."""
        config = self
        for part in change.parts:
            config = config.with_value(part.path, part.to_value)
        return config

    def fingerprint(self, *roles: Role) -> str:
        """Identity of the settings of these roles (all roles if none are named): 12 hex digits."""
        prefixes = tuple(f"{role}." for role in roles) if roles else ("",)
        chosen = {key: value for key, value in self.settings.items() if key.startswith(prefixes)}
        return digest(chosen)[:12]


def diff(before: ServingConfig, after: ServingConfig) -> tuple[Change, ...]:
    """Every difference, in path order. One change of a `both` knob shows as two, one per role."""
    changes = []
    for key in sorted(before.settings.keys() | after.settings.keys()):
        old, new = before.settings.get(key), after.settings.get(key)
        if old != new or type(old) is not type(new):
            path = Path.parse(key)
            changes.append(Change(role=path.role, kind=path.kind, name=path.name, from_value=old, to_value=new))
    return tuple(changes)


def digest(document: object) -> str:
    """SHA-256 of the canonical JSON of a plain document: sorted keys, no blanks, no NaN."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
