"""`tuneloop dashboard`: pages of one or many workspaces for a browser, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.dashboard.server import Place, serve
from executor.clock import SystemClock


def run_dashboard(roots: list[Path], place: Place, tell: Callable[[str], None]) -> None:
    """Until it is interrupted. It writes no log into a workspace: what fails is said on stderr."""
    serve(roots, place, SystemClock(), tell)
