"""What the runs so far let one expect of a configuration that was not run: its rate, its limits, whether it can start.

A disaggregated service runs at the rate of its slowest part. So each part (prefill, decode, client) gets a model of its
own from the runs that it bound, and the others only say that it could do at least so much. A change of a part that
does not bind then promises nothing, and a change of the one that does promises no more than the next part allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.planner.feasibility import Feasibility
from agent.planner.gaussian_process import Array, Axis, Belief, GaussianProcess
from agent.planner.knob_table import MEMORY_NEEDS
from agent.planner.packet import EvidencePacket, KnobPart, ObservationPart, Side
from experiments.serving_config import Value

DRAWS = 128
HEADROOM = 0.3  # in logarithms: how much more a part that did not bind may well be able to do
HEADROOM_NOISE = 0.15  # how far a share of the cap is from a share of the rate
LIMIT_NOISE = 0.02

Values = tuple[Value, ...]
_PARTS: Mapping[str, tuple[Side, ...]] = {
    "prefill": (Side.PREFILL,),
    "decode": (Side.DECODE,),
    "both": (Side.PREFILL, Side.DECODE),
    "router": (Side.PREFILL, Side.DECODE),
    "client": (Side.CLIENT,),
    "mixed": (Side.UNKNOWN,),
}


@dataclass(frozen=True)
class Outlook:
    """What is expected of one configuration against the incumbent. Gains are logarithms of ratios."""

    gain_mean: float
    gain_low: float  # the 5th and 95th percentile
    gain_high: float
    improvement: float  # expected gain where it is one
    gains: float  # the probability that it is one
    keeps_limits: float  # probabilities
    starts: float

    @property
    def worth(self) -> float:
        return self.improvement * self.keeps_limits * self.starts


@dataclass(frozen=True)
class _Part:
    """The model of one quantity over the knobs that it depends on."""

    columns: tuple[int, ...]
    model: GaussianProcess | None

    def at(self, points: Array) -> Belief | None:
        return None if self.model is None else self.model.at(points[:, self.columns])


class Surrogate:
    """Learned from one packet. Deterministic."""

    def __init__(self, packet: EvidencePacket) -> None:
        self._packet = packet
        self._axes = [Axis(knob.values) for knob in packet.knobs]
        self._maximise = packet.objective.direction == "maximize"
        self._noise = max(packet.noise.relative_sd, 1e-3)
        self._here = tuple(knob.current for knob in packet.knobs)
        self._measured = [o for o in packet.observations if o.objective is not None and o.objective > 0]
        self._rates = self._learn_rates()
        self._limits = [self._learn_limit(index) for index in range(len(packet.objective.constraints))]
        columns = {side: self._columns(side) for side in Side}
        needs = {i: MEMORY_NEEDS[k.name] for i, k in enumerate(packet.knobs) if k.name in MEMORY_NEEDS}
        self._feasibility = Feasibility(self._axes, columns, packet.observations, needs)

    @property
    def knows_enough(self) -> bool:
        """At least the incumbent itself was measured."""
        return any(o.values == self._here for o in self._measured)

    def gives_room(self, place: int, value: Value) -> bool:
        """Whether setting this knob so needs less memory than the incumbent's value does, as far as that is known.

        Where of no knob of its side is known which way it needs more, any ordered one may give room.
        """
        axis, needs = self._axes[place], self._feasibility.needs
        direction = needs.get(place, 0)
        if direction == 0:
            beside = [i for i, knob in enumerate(self._packet.knobs) if knob.role == self._packet.knobs[place].role]
            return axis.is_ordered and not any(i in needs for i in beside)
        return direction * (axis.place(value) - axis.place(self._here[place])) < 0

    def outlooks(self, configurations: Sequence[Values]) -> list[Outlook]:
        points = self._points([self._here, *configurations])
        gains = self._gain_draws(points)
        keeps, starts = self._keep_probability(points), self._feasibility.at(points)
        gains = gains[1:]
        low, high = np.quantile(gains, (0.05, 0.95), axis=1) if len(gains) else (gains, gains)
        least = self._packet.objective.min_effect
        table = (
            np.mean(gains, axis=1),
            low,
            high,
            np.mean(np.maximum(gains - least, 0.0), axis=1),
            np.mean(gains > least, axis=1),
            keeps[1:],
            starts[1:],
        )
        return [Outlook(*map(float, row)) for row in zip(*table, strict=True)]

    def _points(self, configurations: Sequence[Values]) -> Array:
        rows = [[axis.place(v) for axis, v in zip(self._axes, c, strict=True)] for c in configurations]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self._axes))

    def _gain_draws(self, points: Array) -> Array:
        """Log ratio to the incumbent, in draws of each part's belief; the slowest part of a draw is its rate."""
        total: Array = np.full((len(points), DRAWS), np.inf)
        for number, part in enumerate(self._rates.values()):
            belief = part.at(points)
            if belief is not None:
                total = np.minimum(total, belief.mean[:, None] + belief.sd[:, None] * _normal_draws(number)[None, :])
        here = self._log_rate_here()
        draws: Array = np.where(np.isfinite(total), total - here, 0.0)
        return draws

    def _log_rate_here(self) -> float:
        rates = [self._log_rate(o) for o in self._measured if o.values == self._here]
        return rates[0] if rates else 0.0

    def _log_rate(self, observation: ObservationPart) -> float:
        """Higher is better, whichever way the objective points."""
        value = math.log(observation.objective or 1.0)
        return value if self._maximise else -value

    def _columns(self, side: Side) -> tuple[int, ...]:
        return tuple(i for i, knob in enumerate(self._packet.knobs) if side in _sides_of(knob))

    def _learn_rates(self) -> dict[Side, _Part]:
        """One model per part where the incumbent's evidence says which part binds; else the service as a whole."""
        here = next((o.side for o in self._measured if o.values == self._here), Side.UNKNOWN)
        if here is Side.UNKNOWN or any(knob.role == "mixed" for knob in self._packet.knobs):
            columns = tuple(range(len(self._axes)))
            return {Side.UNKNOWN: _Part(columns, self._fit(columns, self._measured, self._measured_rates()))}
        return {side: self._learn_rate(side) for side in (Side.PREFILL, Side.DECODE, Side.CLIENT)}

    def _measured_rates(self) -> Array:
        return np.array([self._log_rate(o) for o in self._measured])

    def _learn_rate(self, side: Side) -> _Part:
        """What a run says that another part bound is a lower limit: it is filled in by what it is expected to be."""
        columns = self._columns(side)
        axes = [self._axes[c] for c in columns]
        bound = np.array([o.side in (side, Side.UNKNOWN) for o in self._measured])
        rates, noise = self._measured_rates(), self._run_noise()
        points = self._points([o.values for o in self._measured])[:, columns]
        if bound.any():
            belief = GaussianProcess(axes, points[bound], rates[bound], noise[bound]).at(points)
            level = None
        else:
            level = float(np.max(rates)) + HEADROOM
            belief = Belief(mean=np.full(len(rates), level), sd=np.full(len(rates), HEADROOM))
        mean, sd = _above(belief, rates)
        told = self._told_headroom(side)
        mean, sd = np.where(np.isnan(told), mean, rates + told), np.where(np.isnan(told), sd, HEADROOM_NOISE)
        filled, spread = np.where(bound, rates, mean), np.where(bound, noise, np.maximum(sd, noise))
        return _Part(columns, GaussianProcess(axes, points, filled, spread, level=level))

    def _told_headroom(self, side: Side) -> Array:
        """Logarithm of what the side could do over what it did, where its evidence says so."""
        return np.array(
            [
                math.log(max(o.headroom, 1.0)) if side is Side.DECODE and o.headroom is not None else math.nan
                for o in self._measured
            ]
        )

    def _run_noise(self) -> Array:
        return np.array([self._noise / math.sqrt(max(o.runs, 1)) for o in self._measured])

    def _fit(self, columns: tuple[int, ...], rows: Sequence[ObservationPart], values: Array) -> GaussianProcess | None:
        if not rows:
            return None
        points = self._points([o.values for o in rows])[:, columns]
        noise = np.array([self._noise / math.sqrt(max(o.runs, 1)) for o in rows])
        return GaussianProcess([self._axes[c] for c in columns], points, values, noise)

    def _learn_limit(self, index: int) -> _Part:
        rows = [o for o in self._packet.observations if (o.limits[index] or 0.0) > 0]
        columns = tuple(range(len(self._axes)))
        return _Part(columns, self._fit(columns, rows, np.array([math.log(o.limits[index] or 1.0) for o in rows])))

    def _keep_probability(self, points: Array) -> Array:
        keeps: Array = np.ones(len(points))
        for part in self._limits:
            belief = part.at(points)
            if belief is not None:
                keeps *= _cdf(-belief.mean / np.sqrt(belief.sd**2 + LIMIT_NOISE**2))
        return keeps


def _sides_of(knob: KnobPart) -> tuple[Side, ...]:
    return _PARTS.get(knob.role, (Side.UNKNOWN,))


def _cdf(z: Array) -> Array:
    from scipy.special import ndtr

    result: Array = ndtr(z)
    return result


def _normal_draws(stream: int) -> Array:
    """Evenly spread normal quantiles in a fixed order of its own per part, so that parts are independent."""
    from scipy.special import ndtri

    quantiles: Array = ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
    order = np.random.default_rng(stream).permutation(DRAWS)
    return quantiles[order]


def _above(belief: Belief, least: Array) -> tuple[Array, Array]:
    """Mean and sd of a normal belief that is known to lie above `least`."""
    z = (least - belief.mean) / belief.sd
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    hazard = density / np.maximum(_cdf(-z), 1e-12)
    hazard = np.where(z > 8, z, hazard)
    mean: Array = belief.mean + belief.sd * hazard
    sd: Array = belief.sd * np.sqrt(np.maximum(1 + z * hazard - hazard**2, 1e-4))
    return mean, sd
