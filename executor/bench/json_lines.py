"""JSON lines as benchmark clients really write them: bare NaN and Infinity, and a last line cut by a killed
writer.

Strict and quick first; a line that strict JSON refuses is tried once more as Python writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from executor.bench.problem import ResultUnreadable

LINE_LIMIT = 4 << 30


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every line as an object, blank lines skipped. A damaged line ends the reading with ResultUnreadable."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError:
                    if not line.strip():
                        continue
                    row = _parse_leniently(path.name, number, line)
                if type(row) is not dict:
                    raise ResultUnreadable(f"{path.name}:{number}", f"not a JSON object but {type(row).__name__}")
                yield row
    except OSError as error:
        raise ResultUnreadable(path.name, f"cannot be read: {error.strerror}") from None


def parse_json(text: bytes) -> Any:
    """One document; bare NaN and Infinity become floats. Raises ValueError, RecursionError included."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text.decode("utf-8"))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def _parse_leniently(file: str, number: int, line: bytes) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        cut = "cut off: the writer was stopped" if not line.endswith(b"\n") else "damaged"
        raise ResultUnreadable(f"{file}:{number}", f"{cut} ({error})") from None


def finite(value: object) -> float | None:
    """A number, or None for whatever is not a finite one: NaN, Infinity, text, true, absent."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
