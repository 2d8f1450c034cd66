"""The last lines of a log, whatever its size. What is in it is not to be trusted and is only ever text."""

from __future__ import annotations

from pathlib import Path

MOST_LINES = 400
MOST_BYTES = 256 * 1024


def read_tail(path: Path) -> list[str]:
    """Undecodable bytes become a mark; a first line that was cut is left out."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MOST_BYTES))
        data = file.read(MOST_BYTES)
    lines = data.decode("utf-8", errors="replace").splitlines()
    if size > MOST_BYTES:
        lines = lines[1:]
    return lines[-MOST_LINES:]
