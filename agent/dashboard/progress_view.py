"""The course of a study as plots: the incumbent's level, every run at its time, every fault as a tick without value."""

from __future__ import annotations

from agent.dashboard.plot import Plot, Series, Shape
from agent.ledger.plot_style import metric_axis
from agent.ledger.progress import Mark, Panel, Progress
from agent.ledger.words import Words

_SHAPES = {
    Mark.INCUMBENT: ("grey", Shape.DOTS, "incumbent, one run"),
    Mark.PROMISING: ("good hollow", Shape.DOTS, "card, promising"),
    Mark.KEPT: ("good", Shape.DOTS, "confirmation, kept"),
    Mark.NEGATIVE: ("bad", Shape.CROSSES, "valid negative"),
    Mark.UNDECIDED: ("grey hollow", Shape.DOTS, "not judged yet"),
}


def progress_plots(progress: Progress, t: Words, *, simulated: bool) -> tuple[Plot, ...]:
    """One plot per N and window: runs of different ones never share an axis."""
    return tuple(_plot(panel, progress, t, simulated=simulated) for panel in progress.panels)


def _plot(panel: Panel, progress: Progress, t: Words, *, simulated: bool) -> Plot:
    marks = [
        Series(
            name=name,
            look=look,
            shape=shape,
            points=tuple((p.hours, p.value) for p in panel.points if p.mark is mark),
        )
        for mark, (look, shape, name) in _SHAPES.items()
    ]
    levels = panel.levels and (*panel.levels, (progress.hours, panel.levels[-1][1]))
    level = Series(name="incumbent (mean of its runs)", look="level", shape=Shape.STEP, points=levels)
    faults = Series(
        name="fault (has no value)", look="fault", shape=Shape.TICKS, points=tuple((h, 0.0) for h in progress.faults)
    )
    title = f"N={panel.requests}, {t.label(panel.window)} window" + (", SIMULATED" if simulated else "")
    return Plot(
        title=title,
        x_label="hours since the study began",
        y_label=metric_axis(progress.metric, t),
        series=(level, *marks, faults),
        from_zero=False,
    )
