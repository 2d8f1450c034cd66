"""Small plots as SVG inside the page: no script and no inline style; light and dark come from the style sheet.

Each carries its title, its axes with units, and a text for those who do not see it. Nothing is drawn where nothing was
observed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from markupsafe import Markup

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 10, 34
TICKS = 5
MOST_POINTS = 1500  # of one series; more are thinned, and the plot says so


class Shape(StrEnum):
    LINE = "line"
    STEP = "step"
    DOTS = "dots"
    CROSSES = "crosses"
    TICKS = "ticks"  # on the time axis: they have a time and no height


@dataclass(frozen=True, kw_only=True)
class Series:
    """`look` is a class of the style sheet. Points are in the order of x; ticks have any y."""

    name: str
    look: str
    shape: Shape
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    from_zero: bool = True

    @property
    def is_empty(self) -> bool:
        return not any(s.points for s in self.series if s.shape is not Shape.TICKS)


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        step = _round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def draw(plot: Plot) -> Markup:
    """The figure with its caption. An empty plot is the sentence that nothing was observed."""
    if plot.is_empty:
        return Markup('<figure class="plot"><figcaption>{}: NOT_OBSERVED</figcaption></figure>').format(plot.title)
    x, y = _axes(plot)
    parts = [*_grid(plot, x, y), *(_series(s, x, y) for s in plot.series if s.points)]
    return Markup(
        '<figure class="plot"><figcaption>{}</figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}</figure>'
    ).format(plot.title, WIDTH, HEIGHT, _spoken(plot), Markup("").join(parts), _legend(plot))


def _axes(plot: Plot) -> tuple[_Axis, _Axis]:
    xs = [x for s in plot.series for x, _ in s.points]
    ys = [y for s in plot.series if s.shape is not Shape.TICKS for _, y in s.points]
    low, high = (0.0 if plot.from_zero else min(ys)), max(ys)
    margin = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
    bottom = low if plot.from_zero else low - margin
    return (
        _Axis(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1.0, LEFT, WIDTH - RIGHT),
        _Axis(bottom, high + margin, HEIGHT - BOTTOM, TOP),
    )


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if rough <= power * m * (1 + 1e-9))


def _grid(plot: Plot, x: _Axis, y: _Axis) -> Iterable[Markup]:
    bottom = HEIGHT - BOTTOM
    for value in y.ticks():
        at = y.at(value)
        yield Markup('<line class="grid" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>').format(LEFT, at, WIDTH - RIGHT, at)
        yield _text("end", LEFT - 6, at + 4, f"{value:g}")
    for value in x.ticks():
        yield _text("middle", x.at(value), bottom + 15, f"{value:g}")
    yield Markup('<line class="axis" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(LEFT, bottom, WIDTH - RIGHT, bottom)
    yield _text("middle", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, plot.x_label)
    yield Markup('<text class="{}" transform="translate(12 {:.0f}) rotate(-90)">{}</text>').format(
        "middle", (TOP + bottom) / 2, plot.y_label
    )


def _text(anchor: str, x: float, y: float, text: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(anchor, x, y, text)


def _series(series: Series, x: _Axis, y: _Axis) -> Markup:
    points = thin(series.points)
    match Shape.DOTS if len(points) == 1 and series.shape is Shape.LINE else series.shape:
        case Shape.LINE:
            way = "M" + " L".join(f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in points)
        case Shape.STEP:
            (first, level), *rest = points
            way = f"M{x.at(first):.1f} {y.at(level):.1f}" + "".join(f" H{x.at(a):.1f} V{y.at(b):.1f}" for a, b in rest)
        case Shape.DOTS:
            way = "".join(f"M{x.at(a) - 3:.1f} {y.at(b):.1f}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0" for a, b in points)
        case Shape.CROSSES:
            way = "".join(f"M{x.at(a) - 3:.1f} {y.at(b) - 3:.1f}l6 6m0 -6l-6 6" for a, b in points)
        case Shape.TICKS:
            way = "".join(f"M{x.at(a):.1f} {HEIGHT - BOTTOM - 9}v9" for a, _ in points)
    return Markup('<path class="{} {}" d="{}"/>').format(series.look, series.shape, way)


def thin(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Every k-th point and the last one, so that a page of a long study stays small."""
    if len(points) <= MOST_POINTS:
        return points
    step = -(-len(points) // MOST_POINTS)
    kept = list(points[::step])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _legend(plot: Plot) -> Markup:
    items = [
        Markup('<li><svg viewBox="0 0 14 14" aria-hidden="true"><path class="{} {}" d="{}"/></svg>{}</li>').format(
            s.look, s.shape, _SAMPLE[s.shape], _named(s)
        )
        for s in plot.series
        if s.points
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


_SAMPLE = {
    Shape.LINE: "M1 7h12",
    Shape.STEP: "M1 10h6v-6h6",
    Shape.DOTS: "M4 7a3 3 0 1 0 6 0a3 3 0 1 0 -6 0",
    Shape.CROSSES: "M4 4l6 6m0 -6l-6 6",
    Shape.TICKS: "M7 3v9",
}


def _named(series: Series) -> str:
    count = len(series.points)
    return series.name + (f", {MOST_POINTS} of {count} drawn" if count > MOST_POINTS else "")


def _spoken(plot: Plot) -> str:
    parts = [f"{plot.title}. {plot.y_label} over {plot.x_label}."]
    for s in plot.series:
        if s.points and s.shape is not Shape.TICKS:
            values = [y for _, y in s.points]
            parts.append(f"{s.name}: {len(values)} points, {min(values):.2f} to {max(values):.2f}.")
        elif s.points:
            parts.append(f"{s.name}: {len(s.points)}.")
    return " ".join(parts)
