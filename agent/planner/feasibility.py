"""Which configurations will not start, from those that did and did not: certain by order, likely by resemblance.

Memory is a matter of one side. What could not start is known to need too much; with the same settings otherwise, a
setting that needs still more cannot start either. Which way a knob needs more is learned from a pair of runs that
differ in it alone, or known of the knob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.planner.gaussian_process import Array, Axis, GaussianProcess
from agent.planner.packet import ObservationPart, Side

SCALES = (1.0,)
LEVEL = 0.8  # a configuration that nothing is known about mostly starts
NOISE = 0.2
SOFTNESS = 0.1


@dataclass(frozen=True)
class _Row:
    point: tuple[float, ...]
    failed: bool


class Feasibility:
    """`columns` are the knobs of each side; `needs` says of a column that more of it needs more memory (+1) or less."""

    def __init__(
        self,
        axes: Sequence[Axis],
        columns: Mapping[Side, tuple[int, ...]],
        observations: Sequence[ObservationPart],
        needs: Mapping[int, int],
    ) -> None:
        self._axes = axes
        everything = tuple(range(len(axes)))
        self._columns = {side: columns.get(side) or everything for side in Side}
        self._rows = {side: self._rows_of(side, observations) for side in Side}
        self._needs = dict(needs) | self._learned()
        self._models = {side: self._model(side) for side in Side}

    @property
    def needs(self) -> Mapping[int, int]:
        return self._needs

    def at(self, points: Array) -> Array:
        """The probability that each configuration starts."""
        starts: Array = np.ones(len(points))
        for side, model in self._models.items():
            if model is None:
                continue
            own = points[:, self._columns[side]]
            belief = model.at(own)
            certain = np.array([self._is_certain(side, tuple(point)) for point in own.tolist()])
            starts *= np.where(certain == 0, _cdf(belief.mean / np.sqrt(belief.sd**2 + SOFTNESS)), certain > 0)
        return starts

    def _rows_of(self, side: Side, observations: Sequence[ObservationPart]) -> list[_Row]:
        columns = self._columns[side]
        found: dict[tuple[float, ...], bool] = {}
        for observation in observations:
            if observation.infeasible and observation.side is not side:
                continue
            point = tuple(self._axes[c].place(observation.values[c]) for c in columns)
            found[point] = found.get(point, True) and observation.infeasible
        return [_Row(point, failed) for point, failed in found.items()]

    def _learned(self) -> dict[int, int]:
        """The direction of every ordered knob of which one value ran and another, all else equal, did not."""
        found: dict[int, int] = {}
        for side, rows in self._rows.items():
            for failed in (row for row in rows if row.failed):
                for ran in (row for row in rows if not row.failed):
                    differing = [i for i, (a, b) in enumerate(zip(failed.point, ran.point, strict=True)) if a != b]
                    column = self._columns[side][differing[0]] if len(differing) == 1 else None
                    if column is not None and self._axes[column].is_ordered:
                        found[column] = 1 if failed.point[differing[0]] > ran.point[differing[0]] else -1
        return found

    def _model(self, side: Side) -> GaussianProcess | None:
        rows = self._rows[side]
        if not any(row.failed for row in rows):
            return None
        return GaussianProcess(
            [self._axes[c] for c in self._columns[side]],
            np.array([row.point for row in rows]),
            np.array([-1.0 if row.failed else 1.0 for row in rows]),
            np.full(len(rows), NOISE),
            scales=SCALES,
            level=LEVEL,
            weights=np.ones(len(self._columns[side])),  # a size that does not fit is no fault of the layout
        )

    def _is_certain(self, side: Side, point: tuple[float, ...]) -> int:
        """+1: it needs no more than something that ran. −1: it needs no less than something that could not."""
        for row in self._rows[side]:
            order = self._order(side, row.point, point)
            if order is not None and (order <= 0 if not row.failed else order >= 0):
                return -1 if row.failed else 1
        return 0

    def _order(self, side: Side, known: tuple[float, ...], point: tuple[float, ...]) -> int | None:
        """Whether `point` needs more (+1) or less (−1) than `known`, 0 for the same; None if they do not compare."""
        order = 0
        for column, a, b in zip(self._columns[side], known, point, strict=True):
            if a == b:
                continue
            direction = self._needs.get(column, 0) * (1 if b > a else -1)
            if direction == 0 or order not in (0, direction):
                return None
            order = direction
        return order


def _cdf(z: Array) -> Array:
    from scipy.special import ndtr

    result: Array = ndtr(z)
    return result
