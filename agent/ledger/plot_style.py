"""How every plot looks, and how it becomes SVG: same data, same bytes.

Text stays text, so that the reader's own fonts draw Chinese. matplotlib takes a second to import: only when drawing.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from agent.ledger.words import Words
from experiments.metric import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GREY, GOOD, BAD, FAULT = "#1b1f24", "#6e7781", "#116329", "#9a6700", "#a40e26"
NO_FACE = "none"
MANY = 2000  # from so many marks on they become one picture inside the SVG


def empty_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def metric_axis(metric_id: str, t: Words, separator: str = " ") -> str:
    """ "mean TTFT s": what an axis shows, with its unit."""
    return f"{t.metric(metric_id)}{separator}{METRICS[metric_id].unit.symbol}".strip()


def say_empty(axes: Axes, t: Words) -> None:
    axes.text(0.5, 0.5, t("no valid run"), transform=axes.transAxes, ha="center", color=GREY)


def svg_text(figure: Figure, t: Words, *, simulated: bool) -> str:
    import matplotlib as mpl

    for axes in figure.axes:
        axes.grid(visible=True, color="#d8dee4", linewidth=0.6, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8, colors=INK)
    if simulated:
        figure.suptitle(t("simulated pool"), x=0.995, ha="right", fontsize=9, color=FAULT)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "tuneloop", "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())
