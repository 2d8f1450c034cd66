"""Room on this machine's disk: asked before a trial starts, so that its data will have a place."""

from __future__ import annotations

import shutil
from pathlib import Path

FREE_GIB = 2.0  # what is wanted where nobody says otherwise


def disk_refusal(folder: Path, needed_gib: float = FREE_GIB) -> str | None:
    """Why there is no room for another trial; None if there is."""
    try:
        free = shutil.disk_usage(folder).free / 2**30
    except OSError as error:
        return f"the disk of the workspace cannot be asked for its room: {error.strerror}"
    if free >= needed_gib:
        return None
    return f"the disk of the workspace is nearly full: {free:.1f} GiB are free, {needed_gib:g} are wanted"
