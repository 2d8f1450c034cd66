"""The goal of a study: objective, constraints, scenario, search space, budgets and rules of judgement.

Read from `goal.yaml` and frozen with the study: nothing in it is ever changed by a proposal. Rules across
fields are checked here, so that a goal which could never be decided is refused before a machine is touched.
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from experiments.baseline import parse_baseline as parse_baseline
from experiments.document import parse_document
from experiments.knob import Knobs, SearchSpace
from experiments.measurement import WindowKind
from experiments.metric import Direction, Metric, metric
from experiments.quantity import COUNT, Op, Unit, format_quantity, parse_limit
from experiments.scenario import Scenario
from experiments.schema import FieldError, Int, Real, Strict, Switch, validate
from experiments.serving_config import Kind, Path, Role, ServingConfig, Value

CONCURRENCY = Path(Role.CLIENT, Kind.CLIENT, "concurrency")
RATE = Path(Role.CLIENT, Kind.CLIENT, "rate")


class Bound(Strict):
    """A limit in the canonical unit of its metric."""

    op: Op
    limit: Real

    def holds(self, value: float | None) -> bool | None:
        """Whether a value keeps the limit; `None` if it was not observed: unknown is never true."""
        if value is None or math.isnan(value):
            return None
        match self.op:
            case Op.LESS:
                return value < self.limit
            case Op.AT_MOST:
                return value <= self.limit
            case Op.MORE:
                return value > self.limit
            case Op.AT_LEAST:
                return value >= self.limit
            case Op.EXACTLY:
                return value == self.limit

    @property
    def is_upper(self) -> bool:
        return self.op in (Op.LESS, Op.AT_MOST)

    @property
    def is_lower(self) -> bool:
        return self.op in (Op.MORE, Op.AT_LEAST)

    def text(self, unit: Unit) -> str:
        return f"{self.op} {format_quantity(self.limit, unit)}"


def parse_bound(text: str, of: Metric) -> Bound:
    """ "< 20 ms" as a bound of this metric. ValueError where no value could keep it, or every one would."""
    op, limit = parse_limit(text, of.unit)
    if limit < 0:
        raise ValueError(
            f"{of.id} is never below 0, so a limit of {format_quantity(limit, of.unit)} says nothing"
        )
    if op is Op.LESS and limit == 0:
        raise ValueError(f"{of.id} is never below 0; write '<= 0' or '== 0'")
    if op is Op.EXACTLY and of.unit is not COUNT:
        raise ValueError(f"{of.id} is measured, so '==' would never hold; use < <= > or >=")
    return Bound(op=op, limit=limit)


_CONSTRAINT = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*(.*)", re.DOTALL)


class Constraint(Strict):
    """One limit that every kept configuration respects, written "tpot_mean < 20 ms"."""

    metric: str
    bound: Bound

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = _CONSTRAINT.fullmatch(value)
        if found is None or not found[2]:
            raise ValueError("a constraint is written as in 'tpot_mean < 20 ms'")
        return {"metric": found[1], "bound": parse_bound(found[2], metric(found[1])).model_dump()}

    @model_validator(mode="after")
    def _on_the_good_side(self) -> Constraint:
        of = metric(self.metric)
        if (of.better is Direction.MINIMIZE and self.bound.is_lower) or (
            of.better is Direction.MAXIMIZE and self.bound.is_upper
        ):
            side = "lower" if of.better is Direction.MINIMIZE else "higher"
            raise ValueError(f"'{self}' forbids the good side: {of.id} is better when {side}")
        return self

    def __str__(self) -> str:
        return f"{self.metric} {self.bound.text(metric(self.metric).unit)}"


class Objective(Strict):
    """What a study improves, in which window, and optionally when that is enough."""

    metric: str
    window: WindowKind
    direction: Direction
    target: Bound | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_target(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        name = value.get("metric")
        try:
            of = metric(name) if isinstance(name, str) else None
        except ValueError as error:
            raise FieldError(("metric",), str(error)) from None
        if of is not None and isinstance(value.get("target"), str):
            try:
                return value | {"target": parse_bound(value["target"], of).model_dump()}
            except ValueError as error:
                raise FieldError(("target",), str(error)) from None
        return value

    @model_validator(mode="after")
    def _points_one_way(self) -> Objective:
        of = metric(self.metric)
        if of.better is None or of.field is None:
            raise FieldError(
                ("metric",), f"{of.id} is no objective: it is a figure to report or to constrain"
            )
        if self.direction is not of.better:
            raise FieldError(("direction",), f"{of.id} is to {of.better}, not to {self.direction}")
        if self.target is not None and self.target.is_lower is not of.maximise:
            wanted = "> or >=" if of.maximise else "< or <="
            raise FieldError(
                ("target",), f"a target to {self.direction} starts with {wanted}, not {self.target.op}"
            )
        return self

    @property
    def of(self) -> Metric:
        return metric(self.metric)


class WindowFloor(Strict):
    """The least that a window must hold to count (the project's floor: 128 requests and 60 s)."""

    requests: Int = Field(default=128, ge=1)
    seconds: Real = Field(default=60, ge=0)


class Screening(Strict):
    """The short run that sorts out candidates. Its results are compared with one another only."""

    requests: Int = Field(ge=1)
    window: WindowKind = WindowKind.WHOLE
    repeats: Int = Field(default=2, ge=1, le=10)  # at most so many runs of one card


class Confirmation(Strict):
    """Interleaved formal runs of incumbent and challenger: more pairs where the noise is high."""

    pairs_min: Int = Field(default=2, ge=1, le=50)
    pairs_max: Int = Field(default=6, ge=1, le=50)

    @model_validator(mode="after")
    def _ordered(self) -> Confirmation:
        if self.pairs_max < self.pairs_min:
            raise FieldError(("pairs_max",), f"{self.pairs_max} is less than pairs_min {self.pairs_min}")
        return self


class NoiseRule(Strict):
    """How run-to-run noise is learned. `assumed` is the relative spread believed before any repeat."""

    repeats: Int = Field(default=3, ge=2, le=20)
    assumed: Real = Field(default=0.01, gt=0, le=0.5)


class Budget(Strict):
    """Where a study stops. Without a token budget no language model is called. Cost in its currency."""

    trials: Int = Field(ge=1, le=100_000)
    hours: Real = Field(gt=0, le=24 * 365)
    llm_tokens: Int = Field(default=0, ge=0)
    llm_cost: Real | None = Field(default=None, ge=0)


class BaselineFile(Strict):
    """The configuration a study starts from: a file beside the goal."""

    file: str = Field(min_length=1, max_length=1000)


class Quality(Strict):
    """An evaluation after confirmation. `required` makes it a gate of the keep."""

    command: tuple[str, ...] = Field(min_length=1, max_length=200)
    required: Switch


_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def _slug(name: str) -> str:
    if not _SLUG.fullmatch(name) or len(name) > 63:
        raise ValueError("a name has lower-case letters, digits and single dashes, at most 63 of them")
    return name


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        try:
            metric(name)
        except ValueError as error:
            raise FieldError((index,), str(error)) from None
        if name in names[:index]:
            raise FieldError((index,), f"{name} is listed twice")
    return names


class Goal(Strict):
    """`native_rule` names the version of AISBench's steady-window rule that the native window follows.

    `confidence` is that of every interval; an effect below `min_effect` (relative) is not worth a change.
    """

    name: Annotated[str, AfterValidator(_slug)]
    scenario: Scenario
    objective: Objective
    window_floor: WindowFloor = WindowFloor()
    constraints: tuple[Constraint, ...] = Field(default=(), max_length=50)
    report: Annotated[tuple[str, ...], AfterValidator(_known)] = ()
    screening: Screening
    confirmation: Confirmation = Confirmation()
    noise: NoiseRule = NoiseRule()
    confidence: Real = Field(default=0.95, ge=0.5, lt=1)
    min_effect: Real = Field(default=0.01, ge=0, le=1)
    budget: Budget
    baseline: BaselineFile
    knobs: Knobs
    quality: Quality | None = None
    native_rule: Literal["aisbench-2026-08", "aisbench-2025-12"] = "aisbench-2026-08"

    @cached_property
    def space(self) -> SearchSpace:
        return SearchSpace(knobs=self.knobs)

    @model_validator(mode="after")
    def _loads_agree(self) -> Goal:
        load, floor = self.scenario.load, self.window_floor
        if self.screening.requests > load.requests:
            raise FieldError(
                ("screening", "requests"),
                f"{self.screening.requests} is more than the {load.requests} of scenario.load.requests",
            )
        if load.requests < floor.requests:
            raise FieldError(
                ("scenario", "load", "requests"),
                f"{load.requests} is less than window_floor.requests {floor.requests}: no window could count",
            )
        return self

    @model_validator(mode="after")
    def _windows_exist(self) -> Goal:
        if self.scenario.load.client == "bench_serving":
            for part, window in (("objective", self.objective.window), ("screening", self.screening.window)):
                if window is not WindowKind.WHOLE:
                    raise FieldError(
                        (part, "window"),
                        f"bench_serving records no start times, so there is no {window} window;"
                        " write whole, or use the client aisbench",
                    )
        return self

    @model_validator(mode="after")
    def _constraints_agree(self) -> Goal:
        seen: dict[tuple[str, str], int] = {}
        for index, constraint in enumerate(self.constraints):
            side = "lower" if constraint.bound.is_lower else "upper"
            earlier = seen.setdefault((constraint.metric, side), index)
            if earlier != index:
                raise FieldError(
                    ("constraints", index), f"constraints[{earlier}] already limits {constraint.metric}"
                )
        return self

    @model_validator(mode="after")
    def _knobs_fit(self) -> Goal:
        wrong = {"pd": (Role.MIXED,), "mixed": (Role.PREFILL, Role.DECODE, Role.BOTH)}[
            self.scenario.deployment
        ]
        for index, knob in enumerate(self.knobs):
            if knob.role in wrong:
                raise FieldError(
                    ("knobs", index, "role"),
                    f"deployment: {self.scenario.deployment} has no role {knob.role}",
                )
            if knob.path == CONCURRENCY:
                self._refuse_concurrency(index)
        return self

    def _refuse_concurrency(self, index: int) -> None:
        knob = self.knobs[index]
        most = max(v for v in knob.candidates() if isinstance(v, int))
        if most > self.screening.requests:
            raise FieldError(
                ("knobs", index, "range" if knob.range else "values"),
                f"{most} can never be in flight with the {self.screening.requests} requests of screening",
            )


def parse_goal(text: str | bytes, file: str) -> Goal:
    return validate(parse_document(text, file), Goal)


def starting_config(goal: Goal, baseline: ServingConfig) -> ServingConfig:
    """The baseline with the client's C and r. N is no setting: it belongs to the tier of a trial.

    A whole number where a knob has real ones is made real: a change is a change of value, not of spelling.
    """
    load = goal.scenario.load
    config = baseline.with_value(CONCURRENCY, load.concurrency).with_value(RATE, load.rate)
    return ServingConfig(
        settings={key: _as_knob(goal.space, key, value) for key, value in config.settings.items()}
    )


def _as_knob(space: SearchSpace, key: str, value: Value) -> Value:
    knob = space.knob(Path.parse(key))
    is_real = knob is not None and any(isinstance(v, float) for v in knob.candidates())
    return float(value) if is_real and isinstance(value, int) and not isinstance(value, bool) else value
