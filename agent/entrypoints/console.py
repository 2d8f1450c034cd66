"""What a running study says on the terminal: one line per event, one line that is rewritten while a stage runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # commands that only read say things through here, and should not wait for SSH to be imported
    from executor.clock import Clock
    from executor.trial_context import Progress

WIDTH = 118
QUIET_S = 5.0  # between two news of one stage where the output is not a terminal


class Console:
    """Rewrites one line on a terminal; prints sparingly elsewhere, so that a log file stays readable."""

    def __init__(self, clock: Clock, stream: TextIO | None = None) -> None:
        self._clock, self._stream = clock, stream or sys.stdout
        self._live = self._stream.isatty()
        self._began = clock.monotonic()
        self._last: tuple[str, str] = ("", "")
        self._said_at = 0.0
        self._open_line = False

    def tell(self, text: str) -> None:
        """A line that stays."""
        self._end_line()
        self._write(f"{self._elapsed()}  {printable(text)}\n")

    def report(self, progress: Progress) -> None:
        """News of a stage."""
        line = f"{self._elapsed()}    {progress.stage:<8} {printable(progress.text)}"[:WIDTH]
        if self._live:
            self._write(f"\r\033[2K{line}")
            self._open_line = True
            return
        key = (progress.trial_id, str(progress.stage))
        now = self._clock.monotonic()
        if key != self._last or now - self._said_at >= QUIET_S:
            self._last, self._said_at = key, now
            self._write(line + "\n")

    def _end_line(self) -> None:
        if self._open_line:
            self._write("\r\033[2K")
            self._open_line = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _elapsed(self) -> str:
        seconds = int(self._clock.monotonic() - self._began)
        return f"{seconds // 60:3d}:{seconds % 60:02d}"


def printable(text: str) -> str:
    """One line without control characters: what comes from a host must not drive the operator's terminal."""
    return "".join(ch if ch.isprintable() else " " for ch in text)
