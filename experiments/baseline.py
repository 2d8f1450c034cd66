"""`baseline.yaml`: the configuration a study starts from, per role, as a person writes it.

Values here are shown in the ledger and to the planner, so secrets and addresses are refused: what belongs to
a place (model path, ports, addresses) is in `pool.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from experiments.document import START, parse_document
from experiments.knob import check_env, check_flag
from experiments.schema import FieldError, Line, Strict, validate
from experiments.serving_config import Kind, Path, Role, ServingConfig, Value

# Set by the plan of a trial from the pool, the role and the scenario.
POOL_FLAGS = frozenset(
    {
        "host",
        "port",
        "model-path",
        "model",
        "tokenizer-path",
        "dist-init-addr",
        "nnodes",
        "node-rank",
        "disaggregation-mode",
        "disaggregation-bootstrap-port",
    }
)

_SECRET = re.compile(r"(^|[-_])(token|secret|password|passwd|api[-_]key|access[-_]key|private[-_]key)$", re.IGNORECASE)
_ADDRESS = re.compile(r"://|(?<![0-9.])[0-9]{1,3}(\.[0-9]{1,3}){3}(?![0-9.])")


def _joined(value: object) -> object:
    """A list becomes one text: `[2, 4, 8]` is the `2 4 8` of a flag that takes several values."""
    if isinstance(value, list) and value and all(isinstance(v, int | float | str) for v in value):
        return " ".join(str(v) for v in value)
    return value


Setting = Annotated[bool | int | float | Line, BeforeValidator(_joined)]


def _flags(flags: Mapping[str, Value]) -> Mapping[str, Value]:
    for name, value in flags.items():
        _with_place(name, check_flag)
        if name in POOL_FLAGS:
            raise FieldError((name,), "is set from pool.yaml and the scenario; remove it here", at_key=True)
        _refuse_private(name, value)
    return flags


def _variables(variables: Mapping[str, Value]) -> Mapping[str, Value]:
    for name, value in variables.items():
        _with_place(name, check_env)
        if isinstance(value, bool):
            raise FieldError((name,), "a variable is text or a number; write 1, or quote the word")
        _refuse_private(name, value)
    return variables


def _with_place(name: str, check: Callable[[str], str]) -> None:
    """Check the spelling of a key so that the message points at it."""
    try:
        check(name)
    except ValueError as error:
        raise FieldError((name,), str(error), at_key=True) from None


def _refuse_private(name: str, value: Value) -> None:
    if _SECRET.search(name):
        raise FieldError((name,), "looks like a secret; set it on the host, these values are shown", at_key=True)
    if isinstance(value, str) and _ADDRESS.search(value):
        raise FieldError((name,), "holds an address; put it into the env of the host in pool.yaml")


def refusal_of(kind: Kind, name: str, value: Value) -> str | None:
    """Why a baseline may not hold this setting; None if it may. For what is read from somewhere else than a person."""
    try:
        (_variables if kind is Kind.ENV else _flags)({name: value})
    except ValueError as error:
        return str(error)
    return None


class RoleSettings(Strict):
    flags: Annotated[dict[str, Setting], AfterValidator(_flags)] = Field(default={}, max_length=500)
    env: Annotated[dict[str, Setting], AfterValidator(_variables)] = Field(default={}, max_length=500)
    layout: Annotated[dict[str, Line], AfterValidator(_flags)] = Field(default={}, max_length=20)


class Build(Strict):
    """The source identity: commit, image or reviewed patch."""

    source: Line = Field(max_length=300)


class Baseline(Strict):
    prefill: RoleSettings | None = None
    decode: RoleSettings | None = None
    mixed: RoleSettings | None = None
    router: RoleSettings | None = None
    build: Build | None = None

    def config(self) -> ServingConfig:
        return ServingConfig(settings={str(path): value for path, value in self._settings()})

    def _settings(self) -> Iterator[tuple[Path, Value]]:
        for role in (Role.PREFILL, Role.DECODE, Role.MIXED, Role.ROUTER):
            settings: RoleSettings | None = getattr(self, role)
            if settings is None:
                continue
            for kind, values in (
                (Kind.FLAG, settings.flags),
                (Kind.ENV, settings.env),
                (Kind.LAYOUT, settings.layout),
            ):
                yield from ((Path(role, kind, name), value) for name, value in values.items())
            if self.build is not None and role is not Role.ROUTER:
                yield Path(role, Kind.BUILD, "source"), self.build.source


def parse_baseline(text: str | bytes, file: str) -> ServingConfig:
    document = parse_document(text, file)
    baseline = validate(document, Baseline)
    config = baseline.config()
    if not config.settings:
        raise document.error(START, "no role has a setting; a baseline names at least one")
    return config
