"""How numbers read on a page: two decimals, a unit, and `NOT_OBSERVED` where there is none. Never a default."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from experiments.metric import METRICS
from experiments.serving_config import Value
from experiments.trial import NOT_OBSERVED


class Figure(str):
    """A number with its unit, made here from a float: nothing in it has to be redacted or escaped.

    A long study has a million of them, and every other text goes through the redactor.
    """

    __slots__ = ()


MISSING = Figure(NOT_OBSERVED)


def figure(value: float | None, unit: str = "") -> Figure:
    """ "236.83 tok/s/card"."""
    if value is None or not math.isfinite(value):
        return MISSING
    return Figure(f"{value:.2f} {unit}" if unit else f"{value:.2f}")


def count_figure(count: int | None) -> Figure:
    return MISSING if count is None else Figure(count)


def metric_figure(metric: str, value: float | None) -> Figure:
    """A metric with its unit; a count that is whole has no decimals."""
    if METRICS[metric].field is None and value is not None and value == int(value):
        return Figure(int(value))
    return figure(value, METRICS[metric].unit.symbol)


def change_figure(gain: float | None) -> Figure:
    """A relative change: "+32.27 %"."""
    return Figure(f"{gain * 100:+.2f} %") if gain is not None and math.isfinite(gain) else MISSING


def share_figure(share: float | None) -> Figure:
    return Figure(f"{share * 100:.2f} %") if share is not None and math.isfinite(share) else MISSING


def interval_figure(low: float, high: float) -> str:
    return f"[{change_figure(low)}, {change_figure(high)}]"


def duration_figure(seconds: float | None) -> Figure:
    """ "3.20 s", "4 min 02 s", "1 h 12 min"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if abs(seconds) < 60:
        return Figure(f"{seconds:.2f} s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return Figure(f"{minutes} min {rest:02d} s")
    hours, minutes = divmod(round(seconds / 60), 60)
    return Figure(f"{hours} h {minutes:02d} min")


def size_figure(size: int) -> Figure:
    """ "5.00 MiB"."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return Figure(f"{size} B" if unit == "B" else f"{amount:.2f} {unit}")
        amount /= 1024
    return Figure(f"{amount:.2f} GiB")


def moment(at: datetime | None) -> Figure:
    """UTC to the second, so that a ledger reads the same wherever it is built."""
    if at is None:
        return MISSING
    return Figure(at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "seconds") + " UTC")


def value_text(value: Value) -> str:
    """A setting as it is written in a configuration file."""
    match value:
        case None:
            return "unset"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def rate_text(rate: float | None) -> str:
    return "unlimited" if rate is None else f"{rate:g} req/s"
