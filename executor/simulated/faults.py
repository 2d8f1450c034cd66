"""Faults injected by name. The file lists what is to go wrong and how often; taking a fault decrements it on disk.

The file is JSON: `[{"fault": "server_exits_at_start", "program": "server", "role": "decode", "times": 1}]`. `role`
(of a server), `times` (1) and `match` (a substring of the joined argv) are optional, `program` is for the reader; extra
keys are the fault's own settings.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAULTS_VARIABLE = "TUNELOOP_SIM_FAULTS"

# Faults that a server keeps for its whole life: taken at the launch, acted on when their moment comes.
BEHAVIOURS = (
    "healthy_then_hangs",  # health answers, everything else never does
    "healthy_before_warm",  # health says 200, the first `requests` (3) generations are refused
    "hangs_after_requests",  # generations hang after the first `requests` (2)
    "unhealthy_when_busy",  # health says 503 while a load runs
    "restarted_in_run",  # another process identity after a load
    "log_truncated",  # a load's log lines replace all earlier ones
    "misleading_log",  # prints `text` after a load
    "flush_refused",  # the cache cannot be flushed `requests` (1) times
    "profile_refused",  # no profile can be started
    "dump_missing",  # the recorder of expert loads says that it wrote a dump, and there is none
    "dump_cut_off",  # it wrote half of one
)

FAULTS: dict[str, frozenset[str]] = {
    "server": frozenset(
        {
            "server_exits_at_start",
            "server_never_ready",
            "slow_start",  # ready after `seconds` (2)
            "port_moves",
            "wrong_effective_arg",  # `argument` (prefill_max_requests) has `value` (1)
            "capture_fails",
            "log_flood",  # `megabytes` (20) of log before it is ready
            *BEHAVIOURS,
        }
    ),
    "router": frozenset({"router_exits_at_start", "router_never_ready", "router_loses_decode"}),
    "bench": frozenset(
        {
            "client_exit_1_before_sending",
            "client_exit_0_some_failed",
            "client_zero_tokens",
            "client_short_output",
            "stream_ends_in_error",
            "silent_retry",
            "client_killed_halfway",
            "client_hangs_in_run",
            "client_summary_fails",
            "client_hangs_after_finish",
            "summary_disagrees",
            "details_truncated",
            "database_missing",
            "double_result",
            "garbled_output",
            "stale_result_in_place",
            "slow_run",  # by `factor` (1.5)
            "decode_dies_in_run",
            "prefill_dies_in_run",
            "oom_at_load",
            "cache_not_zero",
        }
    ),
}


class Injector:
    """The faults that apply to one program."""

    def __init__(self, program: str, argv: Sequence[str], role: str | None = None) -> None:
        self._program, self._text, self._role = program, " ".join(argv), role
        path = os.environ.get(FAULTS_VARIABLE)
        self._path = Path(path) if path else None

    def take(self, *names: str) -> dict[str, Any] | None:
        """The first fault of these names that is still due, decremented; None when none is."""
        unknown = [name for name in names if name not in FAULTS[self._program]]
        if unknown:
            raise ValueError(f"no fault of a {self._program} is called {unknown[0]}")
        if self._path is None or not self._path.exists():
            return None
        with self._path.open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            faults = json.load(file)
            chosen = next((fault for fault in faults if self._applies(fault, names)), None)
            if chosen is not None:
                taken = dict(chosen)
                chosen["times"] = int(chosen.get("times", 1)) - 1
                file.seek(0)
                file.truncate()
                json.dump(faults, file)
                return taken
        return None

    def _applies(self, fault: dict[str, Any], names: tuple[str, ...]) -> bool:
        return (
            fault.get("fault") in names
            and (self._role is None or fault.get("role", self._role) == self._role)
            and int(fault.get("times", 1)) > 0
            and str(fault.get("match", "")) in self._text
        )
