"""The anytime curves as one SVG: what would be shipped after each launch, median over the seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STYLES = ("-", "--", "-.", ":")


def write_curves(settings: Mapping[str, Mapping[str, list[float]]], target: Path) -> None:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * len(settings), 5), layout="constrained")
    FigureCanvasSVG(figure)
    for place, (setting, curves) in enumerate(settings.items(), start=1):
        axes = figure.add_subplot(1, len(settings), place)
        for number, (name, values) in enumerate(curves.items()):
            axes.step(range(1, len(values) + 1), values, STYLES[number % len(STYLES)], where="post", label=name)
        axes.set(
            title=f"{setting} (simulated)", xlabel="launches", ylabel="share of the optimum, median", ylim=(0, 1.02)
        )
        axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    figure.savefig(target, format="svg", metadata={"Date": None})
