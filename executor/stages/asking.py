"""Ask a server over the host's connection. A link that breaks repeats the question; a server that is slow does not.

Only for questions that may be asked twice: health, configuration, a flush, a generation outside the formal load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import httpx

from executor.remote_host import RemoteHost
from executor.trial_context import TrialContext

TRIES = 4
PAUSE_S = 0.3

T = TypeVar("T")


def ask(
    context: TrialContext, host: RemoteHost, port: int, timeout_s: float, question: Callable[[httpx.Client], T]
) -> T:
    """What `question` makes of a client of the port. Raises httpx.HTTPError when the last try failed as well."""
    for left in reversed(range(TRIES)):
        try:
            with host.http(port, timeout_s) as http:
                return question(http)
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            if not left:
                raise
        context.clock.sleep(PAUSE_S)
    raise AssertionError("the last try returns or raises")
