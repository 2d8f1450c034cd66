"""Release numbers of SGLang, ordered. A nightly build without a usable number is `None`, never a guess."""

from __future__ import annotations

import re
from typing import NamedTuple

_PRE_RELEASE = -1  # rc and dev builds come before the release of the same number
_RELEASE = re.compile(r"(?:^|[^0-9.])v?(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?(?P<pre>[-.]?(?:npu\.)?(?:rc|dev|a|b)\d*)?")


class Release(NamedTuple):
    """`0.5.12.post1` is (0, 5, 12, 1)."""

    major: int
    minor: int
    patch: int
    post: int = 0

    def __str__(self) -> str:
        number = f"{self.major}.{self.minor}.{self.patch}"
        match self.post:
            case 0:
                return number
            case post if post < 0:
                return f"{number} (pre-release)"
            case post:
                return f"{number}.post{post}"


def parse_release(text: str | None) -> Release | None:
    """The release in a version string; `None` for nightly numbers like `0.1.dev10993`, `0.0.0.dev1+g…`."""
    found = _RELEASE.search(text) if text else None
    if found is None:
        return None
    major, minor, patch = (int(part) for part in found.group(1, 2, 3))
    if (major, minor, patch) == (0, 0, 0):
        return None
    post = _PRE_RELEASE if found["pre"] else int(found.group(4) or 0)
    return Release(major, minor, patch, post)
