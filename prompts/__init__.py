"""The prompt files, as text. A card stores the version of what it was made with."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

_NAME = re.compile(r"[a-z][a-z_]*\.md")


def load(name: str) -> str:
    """The text of one prompt file of this package, `planner.md`."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a prompt file")
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def version(name: str) -> str:
    """The first 12 hex digits of the SHA-256 of the file."""
    return hashlib.sha256(load(name).encode()).hexdigest()[:12]
