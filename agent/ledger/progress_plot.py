"""The progress plot: the incumbent's level over time, every run as a mark, every fault as a tick without a value.

Runs of different N or window never share an axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.ledger.plot_style import (
    BAD,
    FAULT,
    GOOD,
    GREY,
    INK,
    MANY,
    NO_FACE,
    empty_figure,
    metric_axis,
    say_empty,
    svg_text,
)
from agent.ledger.progress import Mark, Panel, Progress
from agent.ledger.words import Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _Look(NamedTuple):
    marker: str
    edge: str
    face: str
    text: str


def _looks(t: Words) -> dict[Mark, _Look]:
    return {
        Mark.INCUMBENT: _Look("o", GREY, GREY, t("incumbent, one run")),
        Mark.PROMISING: _Look("o", GOOD, NO_FACE, t("card, promising")),
        Mark.KEPT: _Look("o", GOOD, GOOD, t("confirmation, kept")),
        Mark.NEGATIVE: _Look("x", BAD, BAD, t("valid negative")),
        Mark.UNDECIDED: _Look("s", GREY, NO_FACE, t("not judged yet")),
    }


def progress_svg(progress: Progress, t: Words, *, simulated: bool) -> str:
    count = len(progress.panels)
    figure = empty_figure(10, 2.9 * count + 0.7)
    shared: Axes | None = None
    for index, panel in enumerate(progress.panels, start=1):
        axes = figure.add_subplot(count, 1, index, sharex=shared)
        shared = axes
        _draw(axes, panel, progress, t)
    if shared is not None:
        shared.set_xlabel(t("hours since the study began"), fontsize=9)
    _legend(figure, t)
    return svg_text(figure, t, simulated=simulated)


def _draw(axes: Axes, panel: Panel, progress: Progress, t: Words) -> None:
    title = t("N={n}, {window} window", n=panel.requests, window=t.label(panel.window))
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_ylabel(metric_axis(progress.metric, t, "\n"), fontsize=9)
    for mark, look in _looks(t).items():
        chosen = [point for point in panel.points if point.mark is mark]
        axes.plot(
            [point.hours for point in chosen],
            [point.value for point in chosen],
            linestyle="none",
            marker=look.marker,
            markersize=6,
            markeredgecolor=look.edge,
            markerfacecolor=look.face,
            zorder=3,
            rasterized=len(panel.points) > MANY,
        )
    _draw_levels(axes, panel, progress.hours)
    _draw_faults(axes, progress.faults)
    if not panel.points:
        say_empty(axes, t)


def _draw_levels(axes: Axes, panel: Panel, until: float) -> None:
    if panel.levels:
        hours = [at for at, _ in panel.levels]
        values = [value for _, value in panel.levels]
        axes.step([*hours, until], [*values, values[-1]], where="post", color=INK, linewidth=1.4, zorder=2)


def _draw_faults(axes: Axes, hours: tuple[float, ...]) -> None:
    """Ticks on the axis itself: a fault has a time and no height."""
    if hours:
        axes.plot(
            hours,
            [0.0] * len(hours),
            linestyle="none",
            marker="|",
            markersize=11,
            color=FAULT,
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            zorder=4,
        )


def _legend(figure: Figure, t: Words) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=INK, linewidth=1.4, label=t("incumbent (mean of its runs)"))]
    handles += [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=look.marker,
            markeredgecolor=look.edge,
            markerfacecolor=look.face,
            label=look.text,
        )
        for look in _looks(t).values()
    ]
    label = t("fault (has no value)")
    handles.append(Line2D([], [], linestyle="none", marker="|", markersize=10, color=FAULT, label=label))
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=9)
