"""Killing the agent, the supervisor, the job and the host's luck: what is known afterwards is always true."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from executor.remote_host import HostRefused, JobState, JobStatus
from experiments.errors import LeaseRefused
from experiments.trial import Sent
from tests.executor.remote.fuzz import fuzz_host
from tests.executor.remote.remote_testbed import (
    TestHost,
    eventually,
    finished,
    is_running,
    lease_of,
    run_count,
    shell,
    supervisor_of,
)

RANDOM_KILLS = int(os.environ.get("TUNELOOP_FUZZ", "20"))
MARK = "echo run >> runs; exit 7"
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def launch_with_failpoint(host: TestHost, name: str, script: str = MARK) -> JobState:
    """Launches while the agent or supervisor kills itself once at `name`; the client asks again by itself."""
    lease = lease_of(host)
    remote = host.with_agent_env(TUNELOOP_FAILPOINT=name, TUNELOOP_FAILPOINT_ONCE=str(host.directory / "fired"))
    remote.launch(shell(host, "job", script), lease)
    eventually((host.directory / "fired").exists)
    return host.remote.poll("job", wait_s=10.0)


@pytest.mark.parametrize(
    "name",
    ["launch_locked", "write_before_rename", "launch_before_claim", "launch_forked", "answer_launch"],
)
def test_an_agent_killed_around_the_launch_starts_the_job_once(embedded: TestHost, name: str) -> None:
    """Whether the kill comes before the claim or after the start: asking again leads to one run and its exit code."""
    state = launch_with_failpoint(embedded, name)
    assert (state.status, state.exit_code, run_count(embedded)) == (JobStatus.EXITED, 7, 1)


@pytest.mark.parametrize(
    "name",
    [
        "launch_after_claim",
        "supervisor_born",
        "supervisor_before_started",
        "publish_started_before_rename",
    ],
)
def test_a_kill_before_the_identity_is_durable_means_never_ran(embedded: TestHost, name: str) -> None:
    """A claim without a started record provably never ran: it is fenced, and then it is not sent for ever."""
    state = launch_with_failpoint(embedded, name)
    assert (state.status, state.sent) == (JobStatus.CLAIMED_DEAD, None)
    lease = lease_of(embedded)
    assert embedded.remote.fence("job", lease).sent is Sent.NOT_SENT
    assert embedded.remote.launch(shell(embedded, "job", MARK), lease).status is JobStatus.FENCED
    assert run_count(embedded) == 0


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("supervisor_before_gate", 0),
        ("supervisor_after_gate", 1),
        ("supervisor_exit_seen", 1),
        ("publish_exit_before_rename", 1),
    ],
)
def test_a_kill_after_the_identity_is_an_unknown_end(embedded: TestHost, name: str, runs: int) -> None:
    """From the started record on, a missing exit record is unknown: never "not sent", never an invented code."""
    state = launch_with_failpoint(embedded, name)
    eventually(lambda: embedded.remote.poll("job").status is JobStatus.LOST)
    state = embedded.remote.poll("job")
    assert (state.sent, state.exit_code, run_count(embedded)) == (Sent.UNKNOWN, None, runs)
    lease = lease_of(embedded)
    assert embedded.remote.fence("job", lease).status is JobStatus.LOST
    assert embedded.remote.launch(shell(embedded, "job", MARK), lease).status is JobStatus.LOST
    assert run_count(embedded) == runs


def test_a_kill_after_the_exit_record_loses_nothing(embedded: TestHost) -> None:
    """What is written is known, whoever dies next."""
    assert launch_with_failpoint(embedded, "supervisor_exit_written").exit_code == 7


@pytest.mark.parametrize("name", ["fence_before_write", "answer_fence"])
def test_a_killed_fence_is_asked_again(embedded: TestHost, name: str) -> None:
    """A fence whose agent dies is a fence after the next question."""
    lease = lease_of(embedded)
    remote = embedded.with_agent_env(TUNELOOP_FAILPOINT=name, TUNELOOP_FAILPOINT_ONCE=str(embedded.directory / "fired"))
    assert remote.fence("job", lease).status is JobStatus.FENCED
    assert (embedded.directory / "fired").exists()


def test_a_killed_cancel_is_asked_again(embedded: TestHost) -> None:
    """A cancel whose agent dies after the request was recorded still ends the job."""
    lease = lease_of(embedded)
    embedded.remote.launch(shell(embedded, "job", "exec sleep 60"), lease)
    remote = embedded.with_agent_env(
        TUNELOOP_FAILPOINT="cancel_recorded", TUNELOOP_FAILPOINT_ONCE=str(embedded.directory / "fired")
    )
    assert remote.cancel("job", lease).why == "cancel"


def test_a_lost_answer_to_acquire_takes_one_epoch(embedded: TestHost) -> None:
    """The repeated question of one acquire gets the same epoch, not the next one."""
    remote = embedded.with_agent_env(
        TUNELOOP_FAILPOINT="answer_acquire", TUNELOOP_FAILPOINT_ONCE=str(embedded.directory / "fired")
    )
    assert remote.acquire("study", 60.0).epoch == 1
    assert (embedded.directory / "fired").exists()


def test_random_kills_of_agent_and_supervisor_never_lie(embedded: TestHost) -> None:
    """kill -9 of every agent and supervisor at a random instant of a launch: nothing runs twice, no end is invented."""
    counts = fuzz_host(embedded, RANDOM_KILLS, seed=7)
    wrong = ("duplicated", "false_not_sent", "invented_codes", "without_end")
    assert {name: counts[name] for name in wrong} == dict.fromkeys(wrong, 0), counts


def test_cutting_the_connection_during_launches_duplicates_nothing(embedded: TestHost) -> None:
    """With every connection cut at a random instant of each launch, twelve launches run twelve jobs once each."""
    lease = lease_of(embedded)
    dice = random.Random(3)
    assert embedded.server is not None
    for number in range(12):
        cutter = threading.Timer(dice.uniform(0, 0.1), embedded.server.drop_connections)
        cutter.start()
        embedded.remote.launch(shell(embedded, f"job-{number}", MARK), lease, timeout_s=60)
        cutter.join()
    assert [finished(embedded.remote, f"job-{n}").exit_code for n in range(12)] == [7] * 12
    assert run_count(embedded) == 12


ESCAPING = """
echo $$ >> pids
setsid sh -c 'echo $$ >> pids; sleep 60 & echo $! >> pids; wait' &
(setsid sh -c '(setsid sleep 60 & echo $! >> pids)' &)
env -i setsid sleep 60 & echo $! >> pids
wait
sleep 60
"""


def escaped_pids(host: TestHost) -> list[int]:
    pids = host.workdir / "pids"
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 5)
    return [int(word) for word in pids.read_text().split()]


def test_cancel_ends_the_whole_tree(host: TestHost) -> None:
    """Grandchildren in sessions of their own, double forks and an emptied environment do not escape."""
    lease = lease_of(host)
    host.remote.launch(shell(host, "job", ESCAPING, grace_s=0.3), lease)
    pids = escaped_pids(host)
    assert all(is_running(pid) for pid in pids)
    assert host.remote.cancel("job", lease).why == "cancel"
    assert not any(is_running(pid) for pid in pids)


def test_cancel_ends_the_tree_of_a_dead_supervisor(host: TestHost) -> None:
    """With the supervisor gone the agent finds the processes by cgroup and cookie, and ends them."""
    lease = lease_of(host)
    host.remote.launch(shell(host, "job", ESCAPING, grace_s=0.3), lease)
    pids = escaped_pids(host)
    started = json.loads((host.workdir / ".tuneloop/jobs/job/started.json").read_text())
    os.kill(supervisor_of(host, "job"), signal.SIGKILL)
    eventually(lambda: host.remote.poll("job").status is JobStatus.UNSUPERVISED)
    state = host.remote.poll("job")
    assert state.is_live
    assert state.sent is None
    host.remote.release(lease)
    with pytest.raises(LeaseRefused, match="another owner"):
        host.remote.acquire("other", 10.0)
    lease = lease_of(host)
    assert host.remote.cancel("job", lease).status is JobStatus.LOST
    without_environment = pids[-1:] if started["cgroup"] is None else []
    for pid in without_environment:
        os.kill(pid, signal.SIGKILL)
    assert not any(is_running(pid) for pid in pids)


def test_processes_born_during_the_kill_are_killed(embedded: TestHost) -> None:
    """A tree that forks while it is being killed is killed until nothing is left."""
    fork_on_term = "trap 'for i in 1 2 3 4 5 6 7 8; do setsid sleep 60 & done' TERM; while :; do sleep 0.05; done"
    lease = lease_of(embedded)
    embedded.remote.launch(shell(embedded, "forks-while-dying", fork_on_term, grace_s=0.3), lease)
    supervisor = supervisor_of(embedded, "forks-while-dying")
    state = embedded.remote.cancel("forks-while-dying", lease)
    assert (state.status, state.signal, state.why) == (JobStatus.EXITED, 9, "cancel")
    eventually(lambda: not is_running(supervisor))
    assert not leftover_sleeps("forks-while-dying")


def leftover_sleeps(job_id: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"TUNELOOP_JOB={job_id}:".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_leftovers_of_a_finished_command_are_ended_and_named(host: TestHost) -> None:
    """A main process that exits and leaves a daemon keeps its exit code; the daemon goes, and the record says so."""
    script = "setsid sleep 60 & echo $! > daemon; exit 5"
    host.remote.launch(shell(host, "job", script, grace_s=0.3), lease_of(host))
    state = finished(host.remote, "job")
    assert (state.exit_code, state.why) == (5, "main_exit_leftover")
    assert not is_running(int((host.workdir / "daemon").read_text()))


def test_allowed_daemons_are_waited_for(embedded: TestHost) -> None:
    """A job that may leave daemons runs until the last of them ends, and keeps the main process's code."""
    script = "setsid sleep 0.6 & exit 5"
    embedded.remote.launch(shell(embedded, "job", script, allow_daemons=True), lease_of(embedded))
    assert embedded.remote.poll("job", wait_s=0.2).status is JobStatus.RUNNING
    state = finished(embedded.remote, "job")
    assert (state.exit_code, state.why) == (5, None)


def test_a_killed_supervisor_leaves_a_running_job_that_ends_unknown(host: TestHost) -> None:
    """The job is live without supervision until it ends; then its end is unknown, however well it went."""
    host.remote.launch(shell(host, "job", "sleep 0.5; echo done > result"), lease_of(host))
    os.kill(supervisor_of(host, "job"), signal.SIGKILL)
    eventually(lambda: host.remote.poll("job").status is JobStatus.UNSUPERVISED)
    state = host.remote.poll("job")
    assert len(state.pids) >= 1
    assert state.why == "its supervisor is gone"
    assert finished(host.remote, "job").sent is Sent.UNKNOWN
    assert (host.workdir / "result").exists()


def test_a_stopped_supervisor_is_running_and_can_be_cancelled(embedded: TestHost) -> None:
    """A supervisor that someone stopped is not dead; its heartbeat grows old, and a cancel wakes it."""
    lease = lease_of(embedded)
    embedded.remote.launch(shell(embedded, "job", "exec sleep 60"), lease)
    eventually(lambda: embedded.remote.poll("job").heartbeat_age_s is not None)
    os.kill(supervisor_of(embedded, "job"), signal.SIGSTOP)
    eventually(lambda: (embedded.remote.poll("job").heartbeat_age_s or 0) > 1.3)
    assert embedded.remote.poll("job").status is JobStatus.RUNNING
    assert embedded.remote.cancel("job", lease).why == "cancel"


def test_a_stranger_with_the_pid_of_our_job_is_left_alone(embedded: TestHost) -> None:
    """A reused pid is told by its start time: the job is lost, and cancelling it signals nobody."""
    lease = lease_of(embedded)
    embedded.remote.launch(shell(embedded, "job", "exec sleep 60"), lease)
    started = embedded.workdir / ".tuneloop/jobs/job/started.json"
    record = json.loads(started.read_text())
    for who in ("supervisor", "child"):
        os.kill(record[who]["pid"], signal.SIGKILL)
    eventually(lambda: embedded.remote.poll("job").status is JobStatus.LOST)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        record["child"]["pid"] = record["supervisor"]["pid"] = stranger.pid
        started.write_text(json.dumps(record))
        assert embedded.remote.poll("job").status is JobStatus.LOST
        assert embedded.remote.cancel("job", lease).status is JobStatus.LOST
        assert stranger.poll() is None
        stranger.kill()


def test_a_reboot_is_known(embedded: TestHost) -> None:
    """After a reboot a running job is lost with its cause, a finished one is kept, and old leases are void."""
    boot = embedded.directory / "boot_id"
    boot.write_text("boot-one\n")
    remote = embedded.with_agent_env(TUNELOOP_BOOT_ID_FILE=str(boot))
    lease = remote.acquire("study", 60.0)
    remote.launch(shell(embedded, "before", "exit 3"), lease)
    finished(remote, "before")
    remote.launch(shell(embedded, "during", "exec sleep 60"), lease)
    supervisor, child = supervisor_of(embedded, "during"), remote.poll("during").pids[0]
    for pid in (supervisor, child):
        os.kill(pid, signal.SIGKILL)
    boot.write_text("boot-two\n")
    eventually(lambda: remote.poll("during").status is JobStatus.LOST_REBOOT)
    state = remote.poll("during")
    assert (state.sent, state.why) == (Sent.UNKNOWN, "the host was rebooted")
    assert remote.poll("before").exit_code == 3
    with pytest.raises(LeaseRefused, match="rebooted"):
        remote.launch(shell(embedded, "after", "true"), lease)
    fresh = remote.acquire("study", 60.0)
    assert (fresh.epoch, fresh.boot_id) == (lease.epoch + 1, "boot-two")
    assert remote.launch(shell(embedded, "during", "exec sleep 60"), fresh).status is JobStatus.LOST_REBOOT


def test_twelve_owners_race_and_one_wins(embedded: TestHost) -> None:
    """Of twelve that ask for the host at once, one gets it."""

    def try_acquire(number: int) -> bool:
        try:
            embedded.remote.acquire(f"owner-{number}", 60.0)
        except LeaseRefused:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(try_acquire, range(12))) == 1


@pytest.fixture
def small_disk(embedded: TestHost) -> Path:
    """The work directory on a file system of one MiB."""
    embedded.workdir.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", embedded.workdir], check=False).returncode:
        pytest.skip("no right to mount a tmpfs here")
    embedded.cleanups.append(lambda: subprocess.run(["umount", "-l", embedded.workdir], check=True))
    return embedded.workdir


def fill(directory: Path) -> None:
    with open(directory / "ballast", "ab", buffering=0) as ballast:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    ballast.write(b"x" * size)
            except OSError:
                continue


def test_a_disk_that_fills_up_during_the_run_delays_nothing(embedded: TestHost, small_disk: Path) -> None:
    """On a full disk the exit record, a cancel and a lease renewal still work; a new launch claims nothing."""
    lease = lease_of(embedded)
    roomy = {"min_free_bytes": 0}
    embedded.remote.launch(shell(embedded, "ends", "while [ ! -e go ]; do sleep 0.02; done; exit 4", **roomy), lease)
    embedded.remote.launch(shell(embedded, "runs", "exec sleep 60", **roomy), lease)
    (small_disk / "go").touch()
    fill(small_disk)
    assert finished(embedded.remote, "ends").exit_code == 4
    lease = embedded.remote.renew(lease)
    assert embedded.remote.cancel("runs", lease).why == "cancel"
    with pytest.raises(HostRefused, match="no space to claim") as caught:
        embedded.remote.launch(shell(embedded, "new", "true", **roomy), lease)
    assert caught.value.code == "disk_low"
    assert embedded.remote.poll("new").status is JobStatus.ABSENT
    with pytest.raises(HostRefused) as put:
        embedded.remote.put_file(f"{small_disk}/file", b"x" * 10000)
    assert put.value.code == "disk_low"
    (small_disk / "ballast").unlink()
    embedded.remote.launch(shell(embedded, "new", "exit 2", **roomy), lease)
    assert finished(embedded.remote, "new").exit_code == 2


def test_a_nearly_full_disk_refuses_the_launch(embedded: TestHost, small_disk: Path) -> None:
    """A launch wants a margin of free space and names both figures when there is none."""
    with pytest.raises(HostRefused, match=r"0 MiB free, 64 MiB are wanted"):
        embedded.remote.launch(shell(embedded, "job", "true"), lease_of(embedded))
    assert embedded.remote.poll("job").status is JobStatus.ABSENT


@pytest.mark.parametrize("jump_s", [7200, -7200])
def test_a_wall_clock_jump_changes_nothing(embedded: TestHost, jump_s: int) -> None:
    """Two hours forwards or back during a run: duration, heartbeat, deadline and lease keep the boot clock."""
    if FAKETIME is None:
        pytest.skip("no libfaketime on this machine")
    offset = embedded.directory / "offset"
    offset.write_text("+0\n")
    remote = embedded.with_agent_env(
        LD_PRELOAD=str(FAKETIME),
        FAKETIME_TIMESTAMP_FILE=str(offset),
        FAKETIME_NO_CACHE="1",
        DONT_FAKE_MONOTONIC="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
    )
    lease = remote.acquire("study", 60.0)
    remote.launch(shell(embedded, "job", "while [ ! -e go ]; do sleep 0.05; done; exit 4", ttl_s=30.0), lease)
    before = remote.facts().utc
    offset.write_text(f"{jump_s:+d}\n")
    jumped = remote.facts()
    assert abs((jumped.utc - before).total_seconds() - jump_s) < 60
    state = remote.poll("job")
    assert state.status is JobStatus.RUNNING
    assert (state.heartbeat_age_s or 0) < 5
    remote.renew(lease)
    (embedded.workdir / "go").touch()
    state = finished(remote, "job")
    assert state.exit_code == 4
    assert state.duration_s is not None
    assert 0 <= state.duration_s < 20


def test_a_noisy_login_shell_is_not_an_answer(host: TestHost) -> None:
    """Text before the agent speaks, with a forged frame in it, and a slow start: the answer is still the agent's."""
    script = host.directory / "noisy"
    forged = '@@000000000000000000000000 13 0\n{"ok": false}'
    script.write_text(
        f"#!/bin/sh\nprintf 'Welcome\\n{forged}\\n'; echo warn >&2; sleep 0.3\nexec {host.address.python} \"$@\"\n"
    )
    script.chmod(0o755)
    remote = host.another(python=str(script))
    facts = remote.facts()
    assert facts.login_shell_ms > 300
    assert remote.poll("job").status is JobStatus.ABSENT


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{}", "KeyError"),
        ("", "JSONDecodeError"),
        ('{"nonce": "other"}', "belongs to another run"),
        ("[]", "not an object"),
    ],
)
def test_a_damaged_exit_record_is_an_unknown_end(embedded: TestHost, content: str, why: str) -> None:
    """An exit record that is not ours or not whole is corrupt: no code is read out of it."""
    embedded.remote.launch(shell(embedded, "job", "exit 3"), lease_of(embedded))
    finished(embedded.remote, "job")
    record = embedded.workdir / ".tuneloop/jobs/job/exit.json"
    if content == "{}":
        content = json.dumps({"nonce": json.loads(record.read_text())["nonce"]})
    record.write_text(content)
    state = embedded.remote.poll("job")
    assert (state.status, state.sent, state.exit_code) == (JobStatus.CORRUPT, Sent.UNKNOWN, None)
    assert state.why is not None
    assert why in state.why


def test_a_torn_lease_record_leaves_the_one_before(embedded: TestHost) -> None:
    """A lease write that was cut half-way is not read; the record before it still holds."""
    embedded.remote.acquire("study", 60.0)
    embedded.remote.acquire("study", 60.0)
    path = embedded.workdir / ".tuneloop/lease"
    data = bytearray(path.read_bytes())
    data[20:40] = b"\0" * 20  # the second write is in slot 0
    path.write_bytes(data)
    with pytest.raises(LeaseRefused, match="held by study"):
        embedded.remote.acquire("other", 60.0)


def test_a_replaced_job_directory_is_refused(embedded: TestHost) -> None:
    """A root that was deleted and made anew knows no jobs: its "absent" is not taken for "never sent"."""
    lease = lease_of(embedded)
    before = embedded.remote.facts().root_id
    embedded.remote.launch(shell(embedded, "job", "true"), lease)
    finished(embedded.remote, "job")
    shutil.rmtree(embedded.workdir / ".tuneloop")
    for ask in (lambda: embedded.remote.poll("job"), lambda: embedded.another(root_id=before).poll("job")):
        with pytest.raises(HostRefused, match="no longer on record") as caught:
            ask()
        assert caught.value.code == "root_replaced"
    assert embedded.another().facts().root_id != before


def test_a_work_directory_that_others_may_write_is_refused(embedded: TestHost) -> None:
    """Records that anybody could forge are not used."""
    embedded.remote.facts()
    (embedded.workdir / ".tuneloop").chmod(0o777)
    with pytest.raises(HostRefused, match="mode 0700") as caught:
        embedded.remote.poll("job")
    assert caught.value.code == "root_unfit"


def test_an_endless_log_keeps_its_head_and_tail(embedded: TestHost) -> None:
    """The middle of a flood of output goes back to the disk; offsets, head and tail stay true."""
    flood = "echo first; head -c 4000000 /dev/zero | tr '\\0' x; echo last; while [ ! -e go ]; do sleep 0.05; done"
    spec = shell(embedded, "job", flood, log_cap_bytes=1 << 20)
    embedded.remote.launch(spec, lease_of(embedded))
    log = Path(embedded.remote.log_path("job"))
    eventually(lambda: log.stat().st_size > 4_000_000 and log.stat().st_blocks * 512 < 1_500_000)
    (embedded.workdir / "go").touch()
    state = finished(embedded.remote, "job")
    assert state.log_dropped > 2_000_000
    assert state.log_size == 4_000_000 + len("first\n") + len("last\n")
    assert embedded.remote.read_log("job", 0, 6).data == b"first\n"
    assert embedded.remote.read_log("job", state.log_size - 5, 10).data == b"last\n"
