"""The trade-off plot: the objective against the other figures of the goal, one row per load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.ledger.plot_style import BAD, GOOD, GREY, INK, MANY, empty_figure, metric_axis, say_empty, svg_text
from agent.ledger.words import Words
from experiments.tradeoff import Option, OptionSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COLUMNS = 3
MOST_NAMES = 12  # more names than that cover one another


def tradeoff_svg(choices: tuple[OptionSet, OptionSet], objective: str, t: Words, *, simulated: bool) -> str:
    formal, screened = choices
    rows = (formal,) if formal.requests == screened.requests else (formal, screened)
    others = [m for m in formal.metrics if m != objective][:MOST_COLUMNS] or [objective]
    figure = empty_figure(10, 3.1 * len(rows) + 0.4)
    for row, choice_set in enumerate(rows):
        for column, other in enumerate(others):
            axes = figure.add_subplot(len(rows), len(others), row * len(others) + column + 1)
            _draw(axes, choice_set, other, objective, t)
            if column == 0:
                axes.set_ylabel(metric_axis(objective, t, "\n"), fontsize=9)
                window = t.label(choice_set.window)
                title = t("N={n}, {window} window", n=choice_set.requests, window=window)
                axes.set_title(title, loc="left", fontsize=10, color=INK)
    return svg_text(figure, t, simulated=simulated)


def _draw(axes: Axes, choices: OptionSet, other: str, objective: str, t: Words) -> None:
    axes.set_xlabel(metric_axis(other, t), fontsize=9)
    places = [(c, p) for c in choices.options if (p := _place(c, other, objective)) is not None]
    if not places:
        say_empty(axes, t)
    for marker, colour in (("x", BAD), ("o", GREY), ("o", GOOD)):
        chosen = [place for choice, place in places if _look(choice) == (marker, colour)]
        axes.plot(
            [x for x, _ in chosen],
            [y for _, y in chosen],
            linestyle="none",
            marker=marker,
            markersize=6,
            color=colour,
            zorder=3,
            rasterized=len(places) > MANY,
        )
    if len(places) <= MOST_NAMES:
        for choice, place in places:
            axes.annotate(_short(choice.name), place, (5, 4), textcoords="offset points", fontsize=8, color=INK)


def _place(choice: Option, other: str, objective: str) -> tuple[float, float] | None:
    x, y = choice.values.get(other), choice.values.get(objective)
    return None if x is None or y is None else (x, y)


def _look(choice: Option) -> tuple[str, str]:
    if choice.violated:
        return "x", BAD
    return ("o", GREY) if choice.is_dominated else ("o", GOOD)


def _short(name: str) -> str:
    """`c03` of `c03-max-running-requests-160`: the tables have the whole name."""
    return name.split("-", 1)[0]
