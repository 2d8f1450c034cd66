"""Cells of printed tables: numbers with their unit inside ("12562.7507 ms", "11.4625 req/s", "4,726")."""

from __future__ import annotations

import math
import re

_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.\d*)?(?:e[-+]?\d{1,3})?|inf|nan"
_UNIT = r"[a-zµ%][a-z0-9/%]*"
_CELL = re.compile(rf"\s*({_NUMBER})\s*({_UNIT})?\s*", re.IGNORECASE)
_IN_MS = {"s": 1000.0, "sec": 1000.0, "ms": 1.0, "us": 0.001, "µs": 0.001}
_LONGEST = 100


def parse_cell(cell: object) -> tuple[float, str] | None:
    """A finite value and its unit as printed; None for anything else, "inf req/s" and {} included."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    if isinstance(cell, str):
        found = _CELL.fullmatch(cell[:_LONGEST])
        if found is None:
            return None
        value, unit = float(found[1].replace(",", "")), found[2] or ""
    else:
        value, unit = _to_float(cell), ""
    return (value, unit) if math.isfinite(value) else None


def _to_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer beyond every measurement
        return math.inf


def parse_milliseconds(cell: object) -> tuple[float, float] | None:
    """A time in milliseconds and the size of one of its units; a bare number is taken for milliseconds."""
    parsed = parse_cell(cell)
    if parsed is None:
        return None
    factor = _IN_MS.get(parsed[1].lower() or "ms")
    return None if factor is None else (parsed[0] * factor, factor)
