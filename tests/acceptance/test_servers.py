"""Servers: strangers on our ports, old ones of ours, one side failed, device memory after a kill."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor.remote_host import JobSpec, RemoteHost
from executor.service import tear_down
from executor.trial_plan import role_of_server_job
from experiments.study import TrialState
from experiments.trial import Stage
from tests.acceptance.desk import Desk, open_desk, open_hosts, outcome
from tests.acceptance.goal_text import goal_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ENVIRONMENT_UNSENT = ("orchestration_fault", "environment", "launch", "not_sent")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    hosts = open_hosts(tmp_path / "pool", {"ready": 6.0, "devices_idle": 3.0})
    made = open_desk(tmp_path / "study", hosts, goal_text(trials=1000))
    yield made
    made.close()
    hosts.close()


def server_jobs(desk: Desk, trial: TrialState) -> dict[str, str]:
    """The job id of each role, as the trial's launch intended them."""
    rows = desk.application.database.journal(desk.application.clock.now).rows(trial.started.trial_id)
    launch = [row for row in rows if row.stage is Stage.LAUNCH][-1]
    servers = launch.payload["servers"]
    assert isinstance(servers, list)
    return {server["role"]: server["job_id"] for server in servers}


def identity(desk: Desk, host: str, job_id: str) -> tuple[int, int]:
    """(pid, start time) of the process of a job."""
    record = desk.hosts.workdir(host) / ".tuneloop" / "jobs" / job_id / "started.json"
    child = json.loads(record.read_text())["child"]
    return child["pid"], child["start"]


def is_same(pid: int, start: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and int(fields[19]) == start


@contextmanager
def stranger(port: int) -> Iterator[None]:
    """A process that is not ours listens where our server should: it says that all is well."""

    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", port), Healthy)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_stranger_on_the_port_is_named_and_left_alone(desk: Desk) -> None:
    """Nothing is started over it; the healthy side stays up and the next trial adopts it."""
    port = desk.application.pool.hosts["d0"].port
    with stranger(port):
        refused = desk.run()
        prefill = server_jobs(desk, refused)["prefill"]
        before = identity(desk, "p0", prefill)
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    after = desk.run()

    assert outcome(refused) == ENVIRONMENT_UNSENT
    assert refused.record is not None
    assert refused.record.failure is not None
    assert f"port {port} for decode is taken by pid {os.getpid()}" in refused.record.failure.detail
    assert "it is left alone" in refused.record.failure.detail
    assert outcome(after) == ("valid", "", "", "finished")
    assert (server_jobs(desk, after)["prefill"], identity(desk, "p0", prefill)) == (prefill, before)
    assert desk.violations(strangers={"the listener": True}) == ()


def test_a_stranger_that_answers_for_our_server_is_not_believed(desk: Desk) -> None:
    """HTTP 200 proves nothing: our decode server went to another port and a stranger answers on its own."""
    desk.hosts.order({"fault": "port_moves", "program": "server", "role": "decode"})
    port = desk.application.pool.hosts["d0"].port
    listening: list[object] = []

    def listen() -> None:
        listening.append(stack.__enter__())

    stack = stranger(port)
    with desk.at(Stage.READY, listen):
        trial = desk.run()
    stack.__exit__(None, None, None)

    assert outcome(trial) == ("orchestration_fault", "environment", "ready", "not_sent")
    assert trial.record is not None
    assert trial.record.failure is not None
    assert f"decode: port {port} is answered by pid {os.getpid()}" in trial.record.failure.detail
    assert "not by our job" in trial.record.failure.detail


def test_a_server_of_another_study_keeps_its_machine(desk: Desk) -> None:
    """Another owner's job that still lives is named and waited for: nothing is started beside it, it is not ended, and
    it is no fault. When it is gone the same trial goes on."""
    with desk.hosts.hosts() as hosts:
        lease = hosts["d0"].acquire("another-study", 30.0)
        job = JobSpec(
            job_id="another-study.decode.abc.1", argv=("sleep", "60"), cwd=str(desk.hosts.workdir("d0")), ttl_s=60.0
        )
        hosts["d0"].launch(job, lease)
        hosts["d0"].release(lease)
        trial_id = desk.started()
        why = desk.go_on()
        survivor = hosts["d0"].poll(job.job_id)
        while_waiting = outcome(desk.study.trials[trial_id])[0]
        lease = hosts["d0"].acquire("another-study", 30.0)
        hosts["d0"].cancel(job.job_id, lease)
        hosts["d0"].release(lease)
        desk.go_on()

    assert why is not None
    assert "another-study.decode.abc.1 of another-study" in why
    assert survivor.is_live
    assert while_waiting == "open"
    assert outcome(desk.study.trials[trial_id]) == ("valid", "", "", "finished")


def test_one_side_fails_and_the_healthy_one_is_adopted(desk: Desk) -> None:
    """Prefill is up, decode ends at its start: the next trial has the same prefill process and a new decode."""
    desk.hosts.order({"fault": "server_exits_at_start", "program": "server", "role": "decode"})
    failed = desk.run()
    jobs = server_jobs(desk, failed)
    before = identity(desk, "p0", jobs["prefill"])
    after = desk.run()

    assert outcome(failed) == ("orchestration_fault", "launch", "ready", "not_sent")
    assert outcome(after) == ("valid", "", "", "finished")
    assert server_jobs(desk, after)["prefill"] == jobs["prefill"]
    assert identity(desk, "p0", jobs["prefill"]) == before
    assert is_same(*before)
    assert server_jobs(desk, after)["decode"] != jobs["decode"]
    assert desk.violations() == ()


def test_only_the_changed_side_is_started_anew(desk: Desk) -> None:
    """A change of decode leaves the prefill process as it is; a change of the client leaves both."""
    first, hot = desk.run(), desk.run(concurrency=4)
    changed = desk.run(decode__num_reserved_decode_tokens=256)

    assert server_jobs(desk, hot) == server_jobs(desk, first)
    assert server_jobs(desk, changed)["prefill"] == server_jobs(desk, first)["prefill"]
    assert server_jobs(desk, changed)["decode"] != server_jobs(desk, first)["decode"]
    assert desk.violations() == ()


def test_an_unsupervised_server_of_ours_is_adopted_or_ended(desk: Desk) -> None:
    """Its supervisor was killed: as it is wanted it serves on; as its successor is wanted it is ended first."""
    first = desk.run()
    decode = server_jobs(desk, first)["decode"]
    before = identity(desk, "d0", decode)
    record = desk.hosts.workdir("d0") / ".tuneloop" / "jobs" / decode / "started.json"
    os.kill(json.loads(record.read_text())["supervisor"]["pid"], signal.SIGKILL)
    adopted = desk.run()
    still = is_same(*before)
    replaced = desk.run(decode__num_reserved_decode_tokens=256)

    assert outcome(adopted) == outcome(replaced) == ("valid", "", "", "finished")
    assert server_jobs(desk, adopted)["decode"] == decode
    assert (still, is_same(*before)) == (True, False)
    assert desk.violations() == ()


def test_servers_that_were_torn_down_while_a_trial_waited_are_started_again(desk: Desk) -> None:
    """A paused study gives its machines back in the middle of a trial; the trial goes on with new processes."""
    from tests.acceptance.test_pause import pause, resume

    trial_id = desk.started()
    with desk.at(Stage.READY, lambda: pause(desk.workspace)):
        why = desk.go_on()
    old = server_jobs(desk, desk.study.trials[trial_id])
    tear_down(desk.application.hosts, desk.study.study_id, 60.0)
    resume(desk.workspace)
    desk.reopen()
    desk.go_on()
    trial = desk.study.trials[trial_id]

    assert why is not None
    assert "pause" in why
    assert outcome(trial) == ("valid", "", "", "finished")
    assert not set(server_jobs(desk, trial).values()) & set(old.values())
    assert desk.starts_of(trial) == 1
    assert desk.violations() == ()


def test_a_service_that_was_never_warmed_is_warmed_by_the_next_trial(desk: Desk) -> None:
    """Servers that outlive a failed warm-up are found running, and still get their warm-up before a load."""
    desk.hosts.order(
        {"fault": "client_exit_1_before_sending", "program": "bench", "match": "/warm-up", "times": 2},
    )
    failed, after = desk.run(), desk.run()

    assert outcome(failed) == ("orchestration_fault", "client", "warm_up", "not_sent")
    assert outcome(after) == ("valid", "", "", "finished")
    assert server_jobs(desk, after) == server_jobs(desk, failed)
    assert f"{after.started.trial_id}.warm-up.1" in desk.hosts.starts()


IDLE_TABLE = """\
| npu-smi 25.3.rc1                 Version: 25.3.rc1                                            |
| 0     Ascend910           | OK            | 166.7       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          {used} / 65536        |
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
{process}
"""
HOLDER = "| 0       0                 | 4242          | sglang::scheduler        | 57810                   |"


class Devices:
    """A fake npu-smi: busy for so many calls, then idle."""

    def __init__(self, folder: Path, busy_calls: int) -> None:
        self.calls = folder / "calls"
        (folder / "busy").write_text(IDLE_TABLE.format(used="61021", process=HOLDER))
        (folder / "idle").write_text(IDLE_TABLE.format(used="3176", process=""))
        script = folder / "npu-smi"
        script.write_text(
            f'#!/bin/sh\necho >> {self.calls}\nif [ "$(wc -l < {self.calls})" -le {busy_calls} ]; '
            f"then cat {folder}/busy; else cat {folder}/idle; fi\n"
        )
        script.chmod(0o755)

    @property
    def asked(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


class TestDeviceMemory:
    @pytest.fixture
    def desk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
        (tmp_path / "bin").mkdir()
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        hosts = open_hosts(tmp_path / "pool", {"devices_idle": 3.0})
        made = open_desk(tmp_path / "study", hosts, goal_text(trials=1000))
        yield made
        made.close()
        hosts.close()

    def test_a_launch_waits_until_the_memory_is_free(self, desk: Desk, tmp_path: Path) -> None:
        """The port of a killed server is free at once, its memory later: the successor starts when both are."""
        devices = Devices(tmp_path / "bin", busy_calls=1)
        said: list[str] = []
        desk.watch.append(lambda progress: said.append(progress.text))
        trial = desk.run()

        assert outcome(trial) == ("valid", "", "", "finished")
        waited = [text for text in said if "device memory" in text]
        assert "61021 MB, held by pid 4242 (sglang::scheduler, 57810 MB)" in waited[0]
        assert devices.asked == 3  # d0 twice, p0 once

    def test_memory_that_stays_held_is_an_environment_fault(self, desk: Desk, tmp_path: Path) -> None:
        """Nothing is started beside it, or it would end out of memory and be taken for the configuration's fault."""
        Devices(tmp_path / "bin", busy_calls=10_000)
        trial = desk.run()

        assert outcome(trial) == ENVIRONMENT_UNSENT
        assert trial.record is not None
        assert trial.record.failure is not None
        assert "device memory is not free" in trial.record.failure.detail
        with desk.hosts.hosts() as hosts:
            assert [job for host in hosts.values() for job in live_servers(host)] == []

    def test_beside_a_living_server_memory_in_use_is_no_news(self, desk: Desk, tmp_path: Path) -> None:
        """A hot trial asks for no device at all."""
        devices = Devices(tmp_path / "bin", busy_calls=0)
        desk.run()
        asked = devices.asked
        desk.run(concurrency=4)

        assert devices.asked == asked == 2

    def test_without_the_tool_it_is_not_observed(self, desk: Desk) -> None:
        """A host without npu-smi is not held up, and the record says that nothing was seen."""
        trial = desk.run()
        rows = desk.application.database.journal(desk.application.clock.now).rows(trial.started.trial_id)
        launch = next(row for row in rows if row.stage is Stage.LAUNCH)

        assert outcome(trial) == ("valid", "", "", "finished")
        assert launch.payload["devices"] == {"d0": "NOT_OBSERVED", "p0": "NOT_OBSERVED"}


def live_servers(host: RemoteHost) -> list[str]:
    return [job.job_id for job in host.jobs() if job.is_live and role_of_server_job(job.job_id)]
