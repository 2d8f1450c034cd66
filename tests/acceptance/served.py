"""`tuneloop serve` as the process that it is, for the tests that look at it from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TUNELOOP = str(Path(sys.executable).with_name("tuneloop"))
PATIENCE_S = 120.0


class Served:
    """One `tuneloop serve`, and what it printed."""

    def __init__(self, *paths: Path, log: Path) -> None:
        self._log = log
        with log.open("a") as stream:
            self.process = subprocess.Popen([TUNELOOP, "serve", *map(str, paths)], stdout=stream, stderr=stream)

    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            assert self.process.poll() is None, self.said()[-2000:]
            assert time.monotonic() < until, self.said()[-2000:]
            time.sleep(0.05)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def served(*paths: Path, log: Path) -> Iterator[Served]:
    service = Served(*paths, log=log)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()
