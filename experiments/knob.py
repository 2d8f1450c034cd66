"""A knob: one setting that a study may change, with its values or range and what a change of it costs.

What no knob names is never changed. The values of one knob have one type, so that a change is never a matter
of spelling (`6` and `6.0`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from experiments.scalar import kind_of, shown
from experiments.schema import FieldError, Int, Real, Strict, Switch, one_line
from experiments.serving_config import Kind, Path, Role, ServingConfig, Value

GRID = 9  # points of a range where the file gives no step

_FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Cost(StrEnum):
    """What it takes to put a change into effect, cheapest first."""

    HOT = "hot"  # the services keep running
    RESTART = "restart"
    REBUILD = "rebuild"  # another build of the engine; always needs an approval


def check_flag(name: str) -> str:
    """The spelling of a flag: no dashes before it, no underscores. ValueError says the right one."""
    if _FLAG.fullmatch(name):
        return name
    better = name.strip().lstrip("-").replace("_", "-").lower()
    hint = f"; write {better!r}" if _FLAG.fullmatch(better) else ""
    raise ValueError(f"{shown(name)} is not the name of a flag{hint}")


def check_env(name: str) -> str:
    if not _ENV.fullmatch(name):
        raise ValueError(f"{shown(name)} is not the name of an environment variable")
    return name


def _paths(names: tuple[str, ...]) -> tuple[str, ...]:
    """`depends_on` names settings as a configuration stores them: `decode.flag.speculative-num-steps`."""
    for index, name in enumerate(names):
        try:
            path = Path.parse(name)
        except ValueError:
            message = f"{shown(name)} is not a setting, such as 'decode.flag.speculative-num-steps'"
            raise FieldError((index,), message) from None
        if path.role is Role.BOTH:
            raise FieldError((index,), "write prefill or decode instead of both")
    return names


class Knob(Strict):
    """`default` is what an absent setting means to the engine; `None` in `values` means absent."""

    role: Role
    flag: Annotated[str, AfterValidator(check_flag)] | None = None
    env: Annotated[str, AfterValidator(check_env)] | None = None
    param: str | None = None
    layout: Annotated[str, AfterValidator(check_flag)] | None = None
    build: Literal["source"] | None = None
    values: tuple[Value, ...] | None = Field(default=None, min_length=1, max_length=1000)
    range: tuple[Int | Real, Int | Real] | None = None
    step: Int | Real | None = Field(default=None, gt=0)
    log: Switch = False
    cost: Cost
    default: Value = None
    alters_numerics: Switch = False
    depends_on: Annotated[tuple[str, ...], AfterValidator(_paths)] = Field(default=(), max_length=20)

    @field_validator("values")
    @classmethod
    def _one_type(cls, values: tuple[Value, ...] | None) -> tuple[Value, ...] | None:
        return None if values is None else unify(values)

    @field_validator("default")
    @classmethod
    def _default_of_their_type(cls, default: Value, info: ValidationInfo) -> Value:
        known = info.data.get("values") or info.data.get("range") or ()
        example = next((v for v in known if v is not None), None)
        if default is None or example is None or type(default) is type(example):
            return default
        if isinstance(example, float) and type(default) is int:
            return float(default)
        raise ValueError(f"is {kind_of(default)} ({shown(default)}), the values are like {shown(example)}")

    @field_validator("range")
    @classmethod
    def _ordered(cls, ends: tuple[int | float, int | float] | None) -> tuple[int | float, int | float] | None:
        if ends is None:
            return None
        low, high = ends
        if low >= high:
            raise ValueError(f"the low end {low} is not below the high end {high}")
        return ends if isinstance(low, int) and isinstance(high, int) else (float(low), float(high))

    @model_validator(mode="before")
    @classmethod
    def _rates_are_real(cls, value: object) -> object:
        """A rate of 6 is the 6.0 of the load; whole numbers are made real before the types are judged."""
        if not isinstance(value, dict) or value.get("param") != "rate":
            return value
        fields = {name: _real(value[name]) for name in ("values", "range") if name in value}
        return value | fields

    @model_validator(mode="after")
    def _names_one_setting(self) -> Knob:
        named = [name for name in _KINDS if getattr(self, name) is not None]
        if len(named) != 1:
            given = f"this one has {' and '.join(named)}" if named else "this one has none"
            raise FieldError((named[1],) if named else (), f"a knob has exactly one of {_KIND_NAMES}; {given}")
        if (self.param is not None) != (self.role is Role.CLIENT):
            raise FieldError(("role",), "param goes with role: client, and only with it")
        if self.layout is not None and self.role is Role.ROUTER:
            raise FieldError(("layout",), "the router has no expert layout")
        if (self.build is not None) != (self.cost is Cost.REBUILD):
            raise FieldError(("cost",), "another build, and only that, is cost: rebuild; it always needs an approval")
        return self

    @model_validator(mode="after")
    def _names_its_values(self) -> Knob:
        if (self.values is None) == (self.range is None):
            raise FieldError((), "a knob has either values or a range")
        if self.range is None and (self.step is not None or self.log):
            raise FieldError(("step",) if self.step is not None else ("log",), "goes with a range only")
        if self.range is not None and self.log and self.range[0] <= 0:
            raise FieldError(("range",), "a log range starts above 0")
        return self

    @model_validator(mode="after")
    def _fits_client(self) -> Knob:
        if self.role is not Role.CLIENT:
            return self
        match self.param:
            case "concurrency":
                self._refuse_client(int, 1, "a concurrency is a whole number of at least 1")
            case "rate":
                self._refuse_client(float, 1e-6, "a rate is a number above 0, in requests per second")
            case _:
                raise FieldError(("param",), "the client has the knobs concurrency and rate; N belongs to the tier")
        return self

    def _refuse_client(self, kind: type, least: float, message: str) -> None:
        field = "values" if self.values is not None else "range"
        for value in self.values or self.range or ():
            if not (value is None and kind is float) and not _is_number(value, kind, least):
                raise FieldError((field,), f"{message}, not {shown(value)}")

    @property
    def kind(self) -> Kind:
        return next(kind for name, kind in _KINDS.items() if getattr(self, name) is not None)

    @property
    def name(self) -> str:
        return str(next(value for name in _KINDS if (value := getattr(self, name)) is not None))

    @property
    def path(self) -> Path:
        return Path(self.role, self.kind, self.name)

    def current(self, config: ServingConfig) -> Value:
        """The value in this configuration, or what its absence means. `both` reads the prefill side."""
        value = config.get(_written(self.path)[0])
        return self.default if value is None else value

    def shown(self) -> str:
        """What is allowed, for messages: `[1, 2, 4]` or `32 to 160, step 16`."""
        if self.range is None:
            return f"[{', '.join('unset' if v is None else str(v) for v in self.values or ())}]"
        step = f", step {self.step}" if self.step is not None else ""
        return f"{self.range[0]} to {self.range[1]}{step}"

    def candidates(self) -> tuple[Value, ...]:
        """All values, or a grid of the range with both ends in it."""
        if self.range is not None:
            return _grid(*self.range, step=self.step, log=self.log)
        return self.values or ()

    def contains(self, value: Value) -> bool:
        """Whether the file allows this value. `True` is not 1, and a whole number is not a real one."""
        if self.range is None:
            return any(value == v and type(value) is type(v) for v in self.values or ())
        low, high = self.range
        if type(value) is not type(low) or isinstance(value, bool | str) or value is None:
            return False
        return low <= value <= high and self._on_step(value - low, value == high)

    def _on_step(self, distance: float, is_end: bool) -> bool:
        if self.step is None or is_end:
            return True
        steps = distance / self.step
        return abs(steps - round(steps)) < 1e-9


def _real(values: object) -> object:
    if not isinstance(values, list | tuple):
        return values
    return [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]


def _is_number(value: Value, kind: type, least: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= least and (kind is float or isinstance(value, int))


_KINDS = {
    "flag": Kind.FLAG,
    "env": Kind.ENV,
    "param": Kind.CLIENT,
    "layout": Kind.LAYOUT,
    "build": Kind.BUILD,
}
_KIND_NAMES = ", ".join(_KINDS)


def unify(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """The values with one type: whole numbers become real beside real ones. ValueError if they do not mix."""
    types = {type(v) for v in values if v is not None}
    if types == {int, float}:
        return unify(tuple(float(v) if isinstance(v, int) else v for v in values))
    if len(types) > 1:
        first = next(v for v in values if v is not None)
        other = next(v for v in values if v is not None and type(v) is not type(first))
        raise ValueError(
            f"values of different kinds: {shown(first)} is {kind_of(first)}, {shown(other)} is {kind_of(other)}"
        )
    for value in values:
        if isinstance(value, str):
            one_line(value)
    twice = [v for i, v in enumerate(values) if v in values[:i]]
    if twice:
        raise ValueError(f"value {shown(twice[0])} is listed twice")
    return values


def _grid(low: float, high: float, *, step: float | None, log: bool) -> tuple[Value, ...]:
    if step is not None:
        count = min(int((high - low) / step + 1e-9), 10_000)
        points = [low + i * step for i in range(count + 1)]
    elif log:
        points = [low * (high / low) ** (i / (GRID - 1)) for i in range(GRID)]
    else:
        points = [low + (high - low) * i / (GRID - 1) for i in range(GRID)]
    whole = isinstance(low, int)
    inner = [round(p) if whole else round(p, 9) for p in points]
    return tuple(dict.fromkeys([low, *(p for p in inner if low < p < high), high]))


def _distinct(knobs: tuple[Knob, ...]) -> tuple[Knob, ...]:
    seen: dict[Path, int] = {}
    for index, knob in enumerate(knobs):
        for path in _written(knob.path):
            if path in seen:
                raise FieldError((index,), f"{path} is already turned by knobs[{seen[path]}]")
            seen[path] = index
    return knobs


def _written(path: Path) -> tuple[Path, ...]:
    if path.role is not Role.BOTH:
        return (path,)
    return (path._replace(role=Role.PREFILL), path._replace(role=Role.DECODE))


Knobs = Annotated[
    tuple[Knob, ...],
    Field(min_length=1, max_length=200),
    AfterValidator(_distinct),
]


class SearchSpace(Strict):
    """All that a study may change. Never empty, never two knobs for one setting."""

    knobs: Knobs

    @cached_property
    def _by_path(self) -> dict[Path, Knob]:
        return {knob.path: knob for knob in self.knobs}

    def knob(self, path: Path) -> Knob | None:
        """The knob at exactly this path. One side of a `both` knob is no knob: it is never turned alone."""
        return self._by_path.get(path)

    def writer(self, path: Path) -> Knob | None:
        """The knob that writes the setting at `path`: its own, or the `both` knob of that name."""
        if path.role in (Role.PREFILL, Role.DECODE):
            return self._by_path.get(path) or self._by_path.get(path._replace(role=Role.BOTH))
        return self._by_path.get(path)
