"""A small exact Gaussian process over mixed knobs: additive in the knobs, with one term for how they act together.

Few runs and many knobs: an additive prior lets what one knob did on one configuration speak about others, which a
distance between whole configurations does not. Nothing is sampled here: the same observations give the same belief.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from experiments.serving_config import Value

Array = NDArray[np.floating]

LENGTH = 0.35  # of a numeric knob whose range is scaled to 1
TREND = 4.0  # weight of a straight line over a numeric knob
TOGETHER = 0.35  # weight of the joint term against that of one knob
SCALES = (0.1, 0.2, 0.4, 0.8)  # prior sd of one knob's effect; the observations choose
USUAL_SCALE = 0.2
STRUCTURE = 4.0  # variance of what has no order (a layout, a type, a switch) against a numeric knob's
_JITTER = 1e-9


class Axis:
    """One knob as the process sees it: values in order, or names without any."""

    def __init__(self, values: tuple[Value, ...]) -> None:
        self.values = values
        self.is_ordered = len(values) > 2 and all(is_number(v) for v in values)
        numbers = [_float(v) for v in values]
        self._is_log = self.is_ordered and min(numbers) > 0
        self._low, self._high = (self._length(edge(numbers, default=0.0)) for edge in (min, max))
        self._places = {_typed(v): self._place(v) for v in values}

    def place(self, value: Value) -> float:
        """Between 0 and 1 along the range, in logarithms where all values are positive. Of a name, its number."""
        known = self._places.get(_typed(value))
        return self._place(value) if known is None else known

    def _place(self, value: Value) -> float:
        if not self.is_ordered:
            return float(self.values.index(value)) if value in self.values else -1.0
        return (self._length(_float(value)) - self._low) / (self._high - self._low)

    def _length(self, at: float) -> float:
        """A range that holds 0 is measured as it is."""
        return math.log(max(at, 1e-12)) if self._is_log else at


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _typed(value: Value) -> tuple[type, Value]:
    """True is not 1."""
    return type(value), value


@dataclass(frozen=True, kw_only=True)
class Belief:
    """Mean and standard deviation at each point that was asked for."""

    mean: Array
    sd: Array


class GaussianProcess:
    """`noise` is the standard deviation of each observation; the level and the scale of the effects are learned."""

    def __init__(
        self,
        axes: Sequence[Axis],
        points: Array,
        values: Array,
        noise: Array,
        *,
        scales: Sequence[float] = SCALES,
        level: float | None = None,
        weights: Array | None = None,
    ) -> None:
        self._axes, self._points = axes, points
        self._weights = weights_of(axes, points, values) if weights is None else weights
        shape = _kernel(axes, self._weights, points, points)
        self._fit = max((_fitted(shape, values, noise, s, level) for s in scales), key=lambda fit: fit.evidence)

    def at(self, points: Array) -> Belief:
        fit = self._fit
        cross = fit.variance * _kernel(self._axes, self._weights, points, self._points)
        explained = np.sum(np.linalg.solve(fit.factor, cross.T) ** 2, axis=0)
        prior = fit.variance * _own_kernel(self._axes, self._weights, points)
        return Belief(mean=fit.level + cross @ fit.weights, sd=np.sqrt(np.maximum(prior - explained, _JITTER)))


@dataclass(frozen=True, kw_only=True)
class _Fit:
    variance: float
    level: float
    factor: Array
    weights: Array
    evidence: float


def _fitted(shape: Array, values: Array, noise: Array, scale: float, level: float | None) -> _Fit:
    factor: Array = np.linalg.cholesky(scale**2 * shape + np.diag(noise**2 + _JITTER))
    solved = np.linalg.solve(factor, np.stack([values, np.ones_like(values)], axis=1))
    if level is None:
        level = float(solved[:, 0] @ solved[:, 1] / (solved[:, 1] @ solved[:, 1]))
    white = solved[:, 0] - level * solved[:, 1]
    evidence = -0.5 * float(white @ white) - float(np.sum(np.log(np.diag(factor))))
    return _Fit(
        variance=scale**2,
        level=level,
        factor=factor,
        weights=np.linalg.solve(factor.T, white),
        evidence=evidence - 0.5 * math.log(scale / USUAL_SCALE) ** 2,  # a broad prior on the scale itself
    )


def weights_of(axes: Sequence[Axis], points: Array, values: Array) -> Array:
    """The variance of each knob's effect against the usual one: what a knob did to a rate once, it may do again.

    From the pairs of observations that differ in one knob only, with the usual variance counted as one more pair.
    """
    usual = np.array([1.0 if axis.is_ordered else STRUCTURE for axis in axes])
    squares, pairs = usual * USUAL_SCALE**2, np.ones(len(axes))
    for i, j in combinations(range(len(points)), 2):
        differing = np.flatnonzero(points[i] != points[j])
        if len(differing) == 1:
            squares[differing[0]] += (values[i] - values[j]) ** 2 / 2
            pairs[differing[0]] += 1
    weights: Array = squares / pairs / USUAL_SCALE**2
    return np.clip(weights, 0.1, 10.0)


def _kernel(axes: Sequence[Axis], weights: Array, left: Array, right: Array) -> Array:
    total: Array = np.zeros((len(left), len(right)))
    together: Array = np.ones((len(left), len(right)))
    for column, axis in enumerate(axes):
        a, b = left[:, column][:, None], right[:, column][None, :]
        if axis.is_ordered:
            near = np.exp(-0.5 * ((a - b) / LENGTH) ** 2)
            total += weights[column] * (0.5 * near + TREND * (a - 0.5) * (b - 0.5))
        else:
            near = np.where(a == b, 1.0, 0.0)
            total += weights[column] * near
        together *= 0.3 + 0.7 * near
    result: Array = total + TOGETHER * together
    return result


def _own_kernel(axes: Sequence[Axis], weights: Array, points: Array) -> Array:
    total: Array = np.full(len(points), TOGETHER)
    for column, axis in enumerate(axes):
        at = points[:, column]
        total += weights[column] * (0.5 + TREND * (at - 0.5) ** 2 if axis.is_ordered else 1.0)
    return total
