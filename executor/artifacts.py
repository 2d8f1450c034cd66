"""The raw files of a trial at home: on the disk, with their hash, before the journal says that they are there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any


def keep_bytes(folder: Path, name: str, data: bytes) -> dict[str, Any]:
    """Write `data` below the trial's folder. Raises ValueError for a name that points outside of it."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"artifact {name!r} points outside its folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_durably(path, data)
    return {"name": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def _write_durably(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
