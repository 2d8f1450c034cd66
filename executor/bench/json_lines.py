"""JSON lines as benchmark clients really write them: bare NaN and Infinity, and a last line cut by a killed
writer.

Strict and quick first; a line that strict JSON refuses is tried once more as Python writes it.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from executor.bench.problem import ResultUnreadable


def parse_json_line(file: str, number: int, line: bytes) -> dict[str, Any] | None:
    """One line as an object, None for a blank one. A damaged or cut-off line raises ResultUnreadable."""
    if not line.strip():
        return None
    try:
        row = parse_json(line)
    except ValueError as error:
        cut = "damaged" if line.endswith(b"\n") else "cut off: the writer was stopped"
        raise ResultUnreadable(f"{file}:{number}", f"{cut} ({error})") from None
    if not isinstance(row, dict):
        raise ResultUnreadable(f"{file}:{number}", f"not a JSON object but {type(row).__name__}")
    return row


def parse_json(text: bytes) -> Any:
    """One document; bare NaN and Infinity become floats. Raises ValueError, RecursionError included."""
    try:
        with _collector_paused():
            return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(text.decode("utf-8"))
        except RecursionError:
            raise ValueError("nested too deeply") from None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A document has no cycles, but a large one is millions of lists, over which the collector goes again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def finite(value: object) -> float | None:
    """A number, or None for whatever is not a finite one: NaN, Infinity, text, true, absent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every measurement
        return None
    return number if math.isfinite(number) else None
