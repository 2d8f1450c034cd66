"""Named places at which a test kills this process, as if by kill -9. Nothing happens unless the variable is set.

`TUNELOOP_FAILPOINT=measure.after_send:2` dies when that place is reached the second time.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import cache

VARIABLE = "TUNELOOP_FAILPOINT"


def failpoint(name: str) -> None:
    """Die here if this is the place and the time that the variable names."""
    armed = _armed()
    if armed is None or armed[0] != name:
        return
    _passed[name] += 1
    if _passed[name] == armed[1]:
        os.kill(os.getpid(), signal.SIGKILL)


@cache
def _armed() -> tuple[str, int] | None:
    """Read once per process, so that an unarmed place costs one call."""
    text = os.environ.get(VARIABLE, "")
    name, _, count = text.partition(":")
    return (name, int(count or 1)) if name else None


_passed: Counter[str] = Counter()
