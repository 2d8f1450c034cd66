"""One change at a time on a host, whoever asks for it."""

from __future__ import annotations

import fcntl
import os
import select

from executor.host_agent.processes import boot_clock
from executor.host_agent.protocol import Refused


class Mutex:
    """A lock of the kernel around every change. Waiting for it ends, too."""

    def __init__(self, path: str, limit_s: float) -> None:
        self.path, self.limit_s, self.fd = path, limit_s, -1

    def __enter__(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        until = boot_clock() + self.limit_s
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if boot_clock() > until:
                    os.close(self.fd)
                    message = "another request has held %s for %.0f s" % (self.path, self.limit_s)
                    raise Refused("busy", message) from None
                select.select([], [], [], 0.01)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)
