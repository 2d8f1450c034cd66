"""Cells of printed tables: numbers with their unit inside ("12562.7507 ms", "11.4625 req/s", "4726")."""

from __future__ import annotations

import math
import re

_CELL = re.compile(
    r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?|inf|nan)\s*([A-Za-z%][A-Za-z0-9/%]*)?\s*",
    re.IGNORECASE,
)


def parse_cell(cell: object) -> tuple[float, str] | None:
    """A finite value and its unit as printed; None for anything else, "inf req/s" and {} included."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    if isinstance(cell, str):
        found = _CELL.fullmatch(cell[:100])
        if found is None:
            return None
        value, unit = float(found[1]), found[2] or ""
    else:
        value, unit = float(cell), ""
    return (value, unit) if math.isfinite(value) else None
