"""How numbers read on a page: two decimals, a unit, and `NOT_OBSERVED` where there is none. Never a default."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from experiments.metric import METRICS
from experiments.serving_config import Value
from experiments.trial import NOT_OBSERVED


def is_observed(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def figure(value: float | None, unit: str = "") -> str:
    """ "236.83 tok/s/card"."""
    if value is None or not math.isfinite(value):
        return NOT_OBSERVED
    return f"{value:.2f} {unit}".strip()


def metric_figure(metric: str, value: float | None) -> str:
    """A metric with its unit; a count that is whole has no decimals."""
    if METRICS[metric].field is None and value is not None and value == int(value):
        return str(int(value))
    return figure(value, METRICS[metric].unit.symbol)


def change_figure(gain: float | None) -> str:
    """A relative change: "+32.27 %"."""
    return f"{gain * 100:+.2f} %" if gain is not None and math.isfinite(gain) else NOT_OBSERVED


def share_figure(share: float | None) -> str:
    return f"{share * 100:.2f} %" if share is not None and math.isfinite(share) else NOT_OBSERVED


def interval_figure(low: float, high: float) -> str:
    return f"[{change_figure(low)}, {change_figure(high)}]"


def duration_figure(seconds: float | None) -> str:
    """ "3.20 s", "4 min 02 s", "1 h 12 min"."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_OBSERVED
    if abs(seconds) < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def size_figure(size: int) -> str:
    """ "5.00 MiB"."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"


def moment(at: datetime | None) -> str:
    """UTC to the second, so that a ledger reads the same wherever it is built."""
    return NOT_OBSERVED if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


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
