"""What a launch and a poll cost over SSH: `measure()` returns the figures, `main()` prints them. For `make bench`."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from executor.remote_host import RemoteHost
from executor.ssh.keys import write_new_key
from tests.executor.remote.remote_testbed import SSHD, TestHost, lease_of, shell, start_embedded, start_sshd

Figures = dict[str, dict[str, float]]


def measure(kind: str = "sshd", launches: int = 30, polls: int = 200) -> Figures:
    """Milliseconds, p50 and p95, of the calls that a trial makes most. `kind`: sshd or embedded."""
    with tempfile.TemporaryDirectory(prefix="tuneloop-latency-") as directory:
        host = _start(kind, Path(directory))
        try:
            return _measure(host, launches, polls)
        finally:
            host.close()


def _start(kind: str, directory: Path) -> TestHost:
    client_key, host_key = directory / "client_key", directory / "host_key"
    write_new_key(client_key)
    write_new_key(host_key)
    start = start_sshd if kind == "sshd" else start_embedded
    return start(directory, client_key, host_key)


def _measure(host: TestHost, launches: int, polls: int) -> Figures:
    lease = lease_of(host)
    figures: Figures = {}
    numbers = iter(range(launches))

    def launch() -> None:
        state = host.remote.launch(shell(host, f"launch-{next(numbers)}", "exec sleep 5"), lease)
        if not state.is_live:
            raise RuntimeError(f"the job did not start: {state}")

    figures["launch_to_durable_ms"] = _timed(launch, launches)
    figures["repeat_launch_ms"] = _timed(
        lambda: host.remote.launch(shell(host, "launch-0", "exec sleep 5"), lease), launches
    )
    figures["poll_ms"] = _timed(lambda: host.remote.poll("launch-0"), polls)
    figures["cancel_to_ended_ms"] = _timed_cancels(host, launches)
    ends = iter(range(launches))
    figures["launch_to_end_seen_ms"] = _timed(lambda: _run_true(host, next(ends)), launches)
    figures["connect_ms"] = _timed(lambda: _connect(host), 10)
    host.remote.put_file(f"{host.workdir}/big", bytes(64 << 20), timeout_s=120)
    started = time.monotonic()
    host.remote.fetch(f"{host.workdir}/big", 1 << 30)
    figures["fetch_mib_s"] = {"p50": 64 / (time.monotonic() - started)}
    return figures


def _run_true(host: TestHost, number: int) -> None:
    lease = host.remote.acquire("study", 60.0)
    host.remote.launch(shell(host, f"true-{number}", "true"), lease)
    host.remote.poll(f"true-{number}", wait_s=10.0)


def _timed_cancels(host: TestHost, count: int) -> dict[str, float]:
    lease = lease_of(host)
    numbers = iter(range(count))
    return _timed(lambda: host.remote.cancel(f"launch-{next(numbers)}", lease), count)


def _connect(host: TestHost) -> None:
    remote = RemoteHost(host.address, host.remote._clock)
    remote.poll("launch-0")
    remote.close()


def _timed(work: Callable[[], object], count: int) -> dict[str, float]:
    samples = []
    for _ in range(count):
        started = time.perf_counter()
        work()
        samples.append((time.perf_counter() - started) * 1000)
    samples.sort()
    p95 = samples[min(count - 1, round(0.95 * count))]
    return {"n": count, "p50": round(statistics.median(samples), 2), "p95": round(p95, 2)}


def main() -> None:
    kinds = ["embedded", *(["sshd"] if SSHD else [])]
    print(json.dumps({kind: measure(kind) for kind in kinds}, indent=2))


if __name__ == "__main__":
    main()
