"""Writes the files of a ledger, each whole or not at all, and only where its bytes differ."""

from __future__ import annotations

import os
from pathlib import Path

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def write_text(path: Path, text: str) -> bool:
    """Replace `path` atomically. False if it has these bytes already; a reader never sees half a file.

    Two builders of one ledger at the same time write different temporary files; the last whole file stays.
    """
    data = text.encode("utf-8")
    if _has(path, data):
        return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(temporary, _NEW_FILE, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, _NEW_FILE, 0o644)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return True


def _has(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and not path.is_symlink() and path.read_bytes() == data
    except FileNotFoundError:
        return False
