"""The token that opens the dashboard: made once, kept in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

from experiments.errors import InputError

NAME = ".dashboard-token"
MAX_BYTES = 256
SHORTEST = 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Token(NamedTuple):
    text: str
    path: Path
    is_new: bool


def read_or_make_token(folder: Path) -> Token:
    """The token of a workspace. Raises InputError for a file that others could have read or written."""
    path = folder / NAME
    try:
        return Token(_read(path), path, is_new=False)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(str(path), 0, 0, f"the token cannot be read: {error.strerror}; remove the file") from error
    try:
        return Token(_make(path), path, is_new=True)
    except FileExistsError:
        return Token(_read(path), path, is_new=False)  # another dashboard was faster
    except OSError as error:
        raise InputError(str(path), 0, 0, f"the token cannot be written: {error.strerror}") from error


def _read(path: Path) -> str:
    handle = os.open(path, _READ)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
            raise InputError(str(path), 0, 0, "is not a file of this user; remove it, and a new token is made")
        if found.st_mode & 0o077:
            raise InputError(str(path), 0, 0, "others may read the token; remove it, and a new one is made")
        text = os.read(handle, MAX_BYTES + 1).decode("ascii", errors="replace").strip()
    finally:
        os.close(handle)
    if not SHORTEST <= len(text) <= MAX_BYTES or not (text.isascii() and text.isprintable()):
        raise InputError(str(path), 0, 0, "does not hold a token; remove it, and a new one is made")
    return text


def _make(path: Path) -> str:
    """Whole before it can be read: another dashboard that starts now must not see half a token."""
    text = secrets.token_hex(24)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, _MAKE, 0o600)
    try:
        os.write(handle, f"{text}\n".encode())
        os.fsync(handle)
        os.link(temporary, path)
    finally:
        os.close(handle)
        temporary.unlink()
    return text
