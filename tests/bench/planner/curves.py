"""The anytime curves as one picture: what would be shipped after each launch, median over the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

STYLES = ("-", "--", ":")
COLOURS = 5  # lines of one style before the next; matplotlib repeats its colours after ten
COLUMNS = 2


def write_curves(settings: Mapping[str, Mapping[str, list[float]]], targets: Sequence[Path]) -> None:
    from matplotlib.figure import Figure

    columns = min(len(settings), COLUMNS)
    rows = -(-len(settings) // columns)
    figure = Figure(figsize=(6.5 * columns, 4.5 * rows), layout="constrained")
    for place, (setting, curves) in enumerate(settings.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for number, (name, values) in enumerate(curves.items()):
            axes.step(range(1, len(values) + 1), values, STYLES[number // COLOURS], where="post", label=name)
        axes.set(
            title=f"{setting} (simulated)", xlabel="launches", ylabel="share of the optimum, median", ylim=(0, 1.02)
        )
        axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    for target in targets:
        figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)
