"""A job on a host, seen through the client: both kinds of server must agree."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from executor.remote_host import HostRefused, JobSpec, JobStatus, RemoteHost
from experiments.errors import LeaseRefused
from experiments.trial import Sent
from tests.executor.remote.remote_testbed import TestHost, finished, lease_of, shell


def test_a_finished_job_tells_its_exit_code_and_output(host: TestHost) -> None:
    """The exit code, the output and the duration of a detached job are read back."""
    lease = lease_of(host)
    launched = host.remote.launch(shell(host, "t1.measure.1", "echo hello; exit 4"), lease)
    assert (launched.duplicate, launched.same_spec) == (False, True)
    state = finished(host.remote, "t1.measure.1")
    assert (state.status, state.exit_code, state.signal, state.why) == (JobStatus.EXITED, 4, None, None)
    assert state.sent is Sent.FINISHED
    assert state.duration_s is not None
    assert 0 <= state.duration_s < 10
    assert host.remote.read_log("t1.measure.1").data == b"hello\n"


def test_a_job_id_starts_once_for_ever(host: TestHost) -> None:
    """Launching the same id again, while it runs or after its end, never starts it again and says so."""
    lease = lease_of(host)
    spec = shell(host, "once", "echo run >> runs; sleep 0.2")
    host.remote.launch(spec, lease)
    assert host.remote.launch(spec, lease).duplicate
    finished(host.remote, "once")
    again = host.remote.launch(spec, lease)
    assert (again.status, again.duplicate, again.same_spec) == (JobStatus.EXITED, True, True)
    assert (host.workdir / "runs").read_text() == "run\n"


def test_a_reused_id_with_another_command_is_seen(host: TestHost) -> None:
    """A launch that asks for something else under a claimed id is told that the spec differs."""
    lease = lease_of(host)
    host.remote.launch(shell(host, "job", "true"), lease)
    assert host.remote.launch(shell(host, "job", "false"), lease).same_spec is False


def test_parallel_launches_of_one_id_start_one_process(host: TestHost) -> None:
    """Eight threads that launch the same id at once start it once."""
    lease = lease_of(host)
    spec = shell(host, "race", "echo run >> runs")
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda _: host.remote.launch(spec, lease), range(8)))
    finished(host.remote, "race")
    assert sum(not state.duplicate for state in states) == 1
    assert (host.workdir / "runs").read_text() == "run\n"


def test_argv_arrives_byte_for_byte(host: TestHost) -> None:
    """Values full of shell syntax are values: no shell reads them on the way."""
    values = ("$(touch /tmp/x)", "a;b", "it's", "--", "two\nlines", "ünï", "`id`", "*", "")
    spec = shell(host, "argv", "")
    argv = ("/usr/bin/printf", "%s\\0", *values)
    host.remote.launch(dataclasses.replace(spec, argv=argv), lease_of(host))
    finished(host.remote, "argv")
    assert host.remote.read_log("argv").data.decode().split("\0")[:-1] == list(values)


def test_the_environment_reaches_the_job(host: TestHost) -> None:
    """The job sees its own variables on top of the host's."""
    spec = shell(host, "env", 'echo "$HCCL_BUFFSIZE $TUNELOOP_JOB"; test -n "$PATH"', env={"HCCL_BUFFSIZE": "200"})
    host.remote.launch(spec, lease_of(host))
    assert finished(host.remote, "env").exit_code == 0
    assert host.remote.read_log("env").data.startswith(b"200 env:")


def test_a_program_that_is_not_there_is_a_known_end(host: TestHost) -> None:
    """A command that cannot be executed ends as finished with the reason, not as unknown."""
    spec = dataclasses.replace(shell(host, "nope", ""), argv=("/no/such/program",))
    host.remote.launch(spec, lease_of(host))
    state = finished(host.remote, "nope")
    assert state.exit_code == 127
    assert state.why is not None
    assert state.why.startswith("exec_failed: FileNotFoundError")


def test_a_fenced_job_never_starts(host: TestHost) -> None:
    """After a fence a late launch of the same id is refused for ever: not sent is made true."""
    lease = lease_of(host)
    assert host.remote.poll("late").status is JobStatus.ABSENT
    assert host.remote.poll("late").sent is None
    fenced = host.remote.fence("late", lease)
    assert (fenced.status, fenced.sent) == (JobStatus.FENCED, Sent.NOT_SENT)
    late = host.remote.launch(shell(host, "late", "echo run >> runs"), lease)
    assert (late.status, late.duplicate) == (JobStatus.FENCED, True)
    assert not (host.workdir / "runs").exists()


def test_fencing_what_runs_changes_nothing(host: TestHost) -> None:
    """A fence answers with the truth about a job that is running or has run."""
    lease = lease_of(host)
    host.remote.launch(shell(host, "job", "sleep 0.3; exit 3"), lease)
    assert host.remote.fence("job", lease).status is JobStatus.RUNNING
    assert finished(host.remote, "job").exit_code == 3
    assert host.remote.fence("job", lease).status is JobStatus.EXITED


def test_cancel_ends_the_job_and_says_why(host: TestHost) -> None:
    """A cancelled job is over, with the signal and the reason."""
    lease = lease_of(host)
    host.remote.launch(shell(host, "job", "exec sleep 60"), lease)
    state = host.remote.cancel("job", lease)
    assert (state.status, state.signal, state.why) == (JobStatus.EXITED, 15, "cancel")


def test_cancel_of_an_absent_job_is_a_fence(host: TestHost) -> None:
    """What is cancelled before it was sent will never run."""
    assert host.remote.cancel("never", lease_of(host)).sent is Sent.NOT_SENT


def test_the_host_keeps_the_deadline(host: TestHost) -> None:
    """A job past its time is killed by the host itself, whoever is away."""
    host.remote.launch(shell(host, "slow", "exec sleep 60", ttl_s=0.3), lease_of(host))
    state = finished(host.remote, "slow")
    assert (state.signal, state.why) == (15, "ttl")


def test_jobs_are_listed(host: TestHost) -> None:
    """Every job that was ever claimed is listed with its owner and epoch."""
    lease = lease_of(host)
    for name in ("b", "a"):
        host.remote.launch(shell(host, name, "true"), lease)
        finished(host.remote, name)
    host.remote.fence("c", lease)
    listed = [(job.job_id, job.status, job.owner, job.epoch) for job in host.remote.jobs()]
    exited = JobStatus.EXITED
    assert listed == [("a", exited, "study", 1), ("b", exited, "study", 1), ("c", JobStatus.FENCED, None, None)]


@pytest.mark.parametrize("job_id", ["", "../x", "a/b", "-x", ".x", "x" * 101, "a b", "x\n"])
def test_a_job_id_that_is_no_name_is_refused(embedded: TestHost, job_id: str) -> None:
    """A job id is a file name of a safe alphabet, checked on the host."""
    with pytest.raises(HostRefused, match="job id"):
        embedded.remote.poll(job_id)


def test_nothing_starts_without_a_lease(host: TestHost) -> None:
    """A launch whose lease is unknown to the host is refused and claims nothing."""
    lease = lease_of(host)
    host.remote.release(lease)
    with pytest.raises(LeaseRefused, match="ran out"):
        host.remote.launch(shell(host, "job", "true"), lease)
    assert host.remote.poll("job").status is JobStatus.ABSENT


def test_two_owners_exclude_one_another(host: TestHost) -> None:
    """A held host refuses another owner, naming the holder; after the release it does not."""
    lease = lease_of(host, "study-a")
    other = host.another()
    with pytest.raises(LeaseRefused, match="held by study-a"):
        other.acquire("study-b", 60.0)
    host.remote.release(lease)
    assert other.acquire("study-b", 60.0).epoch == lease.epoch + 1


def test_a_stale_epoch_is_refused_in_every_change(host: TestHost) -> None:
    """The owner's next process makes the leases of the one before it worthless."""
    stale = lease_of(host)
    host.remote.launch(shell(host, "old", "exec sleep 30"), stale)
    fresh = host.another().acquire("study", 60.0)
    assert fresh.epoch == stale.epoch + 1
    spec = shell(host, "new", "true")
    changes = (
        lambda: host.remote.launch(spec, stale),
        lambda: host.remote.fence("new", stale),
        lambda: host.remote.cancel("old", stale),
        lambda: host.remote.renew(stale),
        lambda: host.remote.release(stale),
    )
    for change in changes:
        with pytest.raises(LeaseRefused, match="epoch 1 of study is stale: epoch 2"):
            change()
    assert host.remote.poll("new").status is JobStatus.ABSENT
    assert host.remote.cancel("old", fresh).why == "cancel"


def test_a_stale_owner_still_learns_what_became_of_its_job(host: TestHost) -> None:
    """Asking for a launch that was made before is answered even without a valid lease."""
    stale = lease_of(host)
    spec = shell(host, "job", "exit 5")
    host.remote.launch(spec, stale)
    finished(host.remote, "job")
    host.another().acquire("study", 60.0)
    assert host.remote.launch(spec, stale).exit_code == 5


def test_an_expired_lease_with_live_jobs_is_not_given_away(host: TestHost) -> None:
    """A host on which another owner's job still lives is refused, with the job's name."""
    lease = host.remote.acquire("study-a", 60.0)
    host.remote.launch(shell(host, "server", "exec sleep 30"), lease)
    host.remote.release(lease)
    with pytest.raises(LeaseRefused, match="server of study-a"):
        host.remote.acquire("study-b", 60.0)
    again = host.remote.acquire("study-a", 60.0)
    host.remote.cancel("server", again)


def test_a_renewed_lease_lives_on(host: TestHost) -> None:
    """Renewal extends the same epoch; expiry counts from before the question."""
    lease = host.remote.acquire("study", 0.5)
    renewed = host.remote.renew(dataclasses.replace(lease, ttl_s=60.0))
    assert renewed.epoch == lease.epoch
    assert renewed.expires_at > lease.expires_at
    host.remote.launch(shell(host, "job", "true"), renewed)


def test_a_lease_runs_out_on_the_hosts_own_clock(host: TestHost) -> None:
    """After its time the lease starts nothing, though nobody else took the host."""
    lease = host.remote.acquire("study", 0.05)
    host.remote.poll("wait", wait_s=0.0)
    finished_by = host.remote.acquire("study", 0.0)
    with pytest.raises(LeaseRefused, match="ran out"):
        host.remote.launch(shell(host, "job", "true"), finished_by)
    with pytest.raises(LeaseRefused, match="stale"):
        host.remote.launch(shell(host, "job", "true"), lease)


def test_a_job_outlives_its_connection(host: TestHost) -> None:
    """Closing the client ends nothing; a new client reads the end."""
    host.remote.launch(shell(host, "job", "sleep 0.3; exit 6"), lease_of(host))
    host.remote.close()
    assert finished(host.another(), "job").exit_code == 6


def run_lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def spec_of(remote: RemoteHost, job_id: str, *argv: str) -> JobSpec:
    return JobSpec(job_id=job_id, argv=argv, cwd=remote.address.workdir, ttl_s=30.0)
