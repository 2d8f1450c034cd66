"""Link cut, lost acknowledgement, power cut, reboot and pid reuse, on a machine of namespaces with a real sshd."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.remote_host import JobStatus
from experiments.errors import HostUnreachable, LeaseRefused
from experiments.trial import Sent
from tests.executor.remote.machine import Machine, start_machine
from tests.executor.remote.remote_testbed import finished, lease_of, run_count, shell

pytestmark = pytest.mark.sshd

PID_THIEF = """
import os, sys, time
wanted = int(sys.argv[1])
while True:
    with open("/proc/sys/kernel/ns_last_pid", "w") as stream:
        stream.write(str(wanted - 1))
    pid = os.fork()
    if pid == 0:
        if os.getpid() == wanted:
            os.setsid()
            print("stolen", flush=True)
            time.sleep(60)
        os._exit(0)
    if pid == wanted:
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.fixture
def machine(tmp_path: Path, client_key: Path, host_key: Path) -> Iterator[Machine]:
    found = start_machine(tmp_path, client_key, host_key)
    yield found
    found.close()


def test_a_cut_link_is_unreachable_and_the_job_goes_on(machine: Machine) -> None:
    """With every frame lost a question ends at its deadline; after healing the job's end is read."""
    machine.remote.launch(shell(machine, "job", "sleep 1; exit 4"), lease_of(machine))
    machine.cut()
    started = time.monotonic()
    with pytest.raises(HostUnreachable, match="no answer in 1 s"):
        machine.remote.poll("job", timeout_s=1.0)
    assert time.monotonic() - started < 2.0
    machine.heal()
    assert finished(machine.remote, "job").exit_code == 4


def test_lost_acknowledgements_start_each_job_once(machine: Machine) -> None:
    """Answers or everything lost around a launch, at random instants: asking again shows one run each."""
    lease = lease_of(machine)
    dice = random.Random(5)
    for number in range(6):
        timer = threading.Timer(dice.uniform(0, 0.04), machine.cut, ["answers"] if number % 2 else [])
        timer.start()
        time.sleep(dice.uniform(0, 0.02))
        with contextlib.suppress(HostUnreachable):
            machine.remote.launch(shell(machine, f"job-{number}", "echo run >> runs"), lease, timeout_s=0.4)
        timer.join()
        machine.heal()
        machine.remote.launch(shell(machine, f"job-{number}", "echo run >> runs"), lease)
        assert finished(machine.remote, f"job-{number}").exit_code == 0
        assert run_count(machine) == number + 1


def test_a_reboot_during_a_run_is_known_at_once(machine: Machine) -> None:
    """Everything dies, the boot id changes: what ran is lost with its cause, what had ended is kept."""
    lease = lease_of(machine)
    machine.remote.launch(shell(machine, "ended", "exit 3"), lease)
    finished(machine.remote, "ended")
    machine.remote.launch(shell(machine, "running", "exec sleep 60"), lease)
    machine.power_off()
    with pytest.raises(HostUnreachable):
        machine.remote.poll("running", timeout_s=0.5)
    machine.power_on()
    started = time.monotonic()
    state = machine.remote.poll("running")
    assert time.monotonic() - started < 5.0
    assert (state.status, state.sent) == (JobStatus.LOST_REBOOT, Sent.UNKNOWN)
    assert machine.remote.poll("ended").exit_code == 3
    with pytest.raises(LeaseRefused, match="rebooted"):
        machine.remote.renew(lease)
    lease = machine.remote.acquire("study", 60.0)
    assert machine.remote.launch(shell(machine, "running", "true"), lease).status is JobStatus.LOST_REBOOT


def test_a_power_cut_without_a_last_word_does_not_hold_us(machine: Machine) -> None:
    """The machine vanishes without a packet while we wait for an answer: the deadline ends it, the truth follows."""
    machine.remote.launch(shell(machine, "job", "exec sleep 60"), lease_of(machine))
    vanish = threading.Timer(0.3, lambda: (machine.cut(), machine.power_off()))
    vanish.start()
    started = time.monotonic()
    with pytest.raises(HostUnreachable):
        machine.remote.poll("job", wait_s=1.0, timeout_s=1.0)
    assert time.monotonic() - started < 3.0
    vanish.join()
    machine.drop_network()
    machine.build_network()
    machine.power_on()
    assert machine.remote.poll("job").status is JobStatus.LOST_REBOOT


def test_a_reused_pid_is_a_stranger(machine: Machine) -> None:
    """A foreign process that was given the pid of our dead job is neither our job nor ever signalled."""
    lease = lease_of(machine)
    machine.remote.launch(shell(machine, "job", "exec sleep 60"), lease)
    record = json.loads((machine.workdir / ".tuneloop/jobs/job/started.json").read_text())
    child, supervisor = record["child"]["pid"], record["supervisor"]["pid"]
    kill = f"import os; [os.kill(pid, 9) for pid in ({supervisor}, {child})]"
    with machine.run_inside(kill) as killer:
        assert killer.wait() == 0
    with machine.run_inside(PID_THIEF, str(child)) as thief:
        assert thief.stdout is not None
        assert thief.stdout.readline() == b"stolen\n"
        assert machine.remote.poll("job").status is JobStatus.LOST
        assert machine.remote.cancel("job", lease).status is JobStatus.LOST
        with machine.run_inside(f"import os; os.kill({child}, 0)") as look:
            assert look.wait() == 0
        thief.kill()
