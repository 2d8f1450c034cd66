"""kill -9 of agents and supervisors at random instants of launches. `fuzz()` returns the counts; for `make fuzz`."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from executor.remote_host import JobState, JobStatus
from executor.ssh.keys import write_new_key
from experiments.trial import Sent
from tests.executor.remote.remote_testbed import (
    TestHost,
    agent_processes,
    shell,
    start_embedded,
)

WINDOW_S = 0.1  # a launch and the end of its job lie within it
EXIT_CODE = 7


def fuzz(kills: int, seed: int = 7, directory: Path | None = None) -> dict[str, int]:
    """Counts of what was said and of every way in which it could have been wrong; the latter are all zero."""
    with tempfile.TemporaryDirectory(prefix="tuneloop-fuzz-") as temporary:
        home = directory or Path(temporary)
        client_key, host_key = home / "client_key", home / "host_key"
        write_new_key(client_key)
        write_new_key(host_key)
        host = start_embedded(home, client_key, host_key)
        try:
            return fuzz_host(host, kills, seed)
        finally:
            host.close()


def fuzz_host(host: TestHost, kills: int, seed: int) -> dict[str, int]:
    dice = random.Random(seed)
    counts = Counter(kills=kills, duplicated=0, false_not_sent=0, invented_codes=0, without_end=0)
    for number in range(kills):
        state, runs = _launch_and_kill(host, f"job-{number}", dice.uniform(0, WINDOW_S))
        counts[f"said_{state.sent}"] += 1
        counts["unknown_that_ran"] += state.sent is Sent.UNKNOWN and runs > 0
        counts["duplicated"] += runs > 1
        counts["false_not_sent"] += state.sent is Sent.NOT_SENT and runs > 0
        counts["invented_codes"] += state.sent is Sent.FINISHED and (state.exit_code, runs) != (EXIT_CODE, 1)
        counts["without_end"] += state.sent is None
    return dict(counts)


def _launch_and_kill(host: TestHost, job_id: str, delay_s: float) -> tuple[JobState, int]:
    """The end that was told, and how often the job really ran by its own marks."""
    lease = host.remote.acquire("study", 60.0)
    marker = host.workdir / f"marker-{job_id}"
    killer = threading.Thread(target=_kill_agents_after, args=(host.workdir, delay_s))
    killer.start()
    script = f"echo run >> {marker}; sleep 0.02; exit {EXIT_CODE}"
    host.remote.launch(shell(host, job_id, script), lease)
    killer.join()
    state = host.remote.poll(job_id, wait_s=10.0)
    if state.status is JobStatus.CLAIMED_DEAD:
        state = host.remote.fence(job_id, lease)
    return state, len(marker.read_text().splitlines()) if marker.exists() else 0


def _kill_agents_after(workdir: Path, delay_s: float) -> None:
    time.sleep(delay_s)
    for pid in agent_processes(workdir):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    print(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7), indent=2))
