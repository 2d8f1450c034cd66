"""Writes the files of a ledger, each whole or not at all, and only where its bytes differ."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> bool:
    """Replace `path` atomically. False if it has these bytes already; a reader never sees half a file."""
    data = text.encode("utf-8")
    if _has(path, data):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:80]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def _has(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and not path.is_symlink() and path.read_bytes() == data
    except FileNotFoundError:
        return False
