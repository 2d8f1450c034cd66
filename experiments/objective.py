"""What a study is asked for: the objective with its target, and the constraints that every result keeps.

Limits are held in the canonical unit of their metric. Of a value that was not observed
nothing is known: it neither keeps a limit nor breaks one.
"""

from __future__ import annotations

import math
import re

from pydantic import model_validator

from experiments.measurement import WindowKind
from experiments.metric import Direction, Metric, metric
from experiments.quantity import COUNT, Op, Unit, format_quantity, parse_limit
from experiments.schema import FieldError, Real, Strict


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
        raise ValueError(f"{of.id} is never below 0, so a limit of {format_quantity(limit, of.unit)} says nothing")
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
        if isinstance(value, Constraint) or (isinstance(value, dict) and "bound" in value):
            return value
        found = _CONSTRAINT.fullmatch(value) if isinstance(value, str) else None
        if found is None or not found[2]:
            raise ValueError("a constraint is written as in 'tpot_mean < 20 ms'")
        return {"metric": found[1], "bound": parse_bound(found[2], metric(found[1]))}

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
        target = value.get("target")
        if of is None or target is None or isinstance(target, Bound | dict):
            return value
        try:
            return value | {"target": parse_bound(str(target), of)}
        except ValueError as error:
            raise FieldError(("target",), str(error)) from None

    @model_validator(mode="after")
    def _points_one_way(self) -> Objective:
        of = metric(self.metric)
        if of.better is None or of.field is None:
            raise FieldError(("metric",), f"{of.id} is no objective: it is a figure to report or to constrain")
        if self.direction is not of.better:
            side = "higher" if of.maximise else "lower"
            raise FieldError(("direction",), f"{of.id} is better when {side}; write {of.better}")
        if self.target is not None and self.target.is_lower is not of.maximise:
            wanted = "> or >=" if of.maximise else "< or <="
            raise FieldError(("target",), f"a target to {self.direction} starts with {wanted}, not {self.target.op}")
        return self

    @property
    def of(self) -> Metric:
        return metric(self.metric)
