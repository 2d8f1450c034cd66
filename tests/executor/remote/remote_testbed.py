"""Hosts to run against: the embedded server, and a real OpenSSH sshd where there is one."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from executor.clock import SystemClock
from executor.remote_host import HostAddress, JobSpec, JobState, Lease, RemoteHost
from executor.ssh.agent_bundle import agent_sha256, agent_source
from executor.ssh.embedded import EmbeddedSshServer, default_environment
from executor.ssh.session import BOOTSTRAP

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)
numbers = itertools.count()


@dataclass
class TestHost:
    """One reachable host with a directory of its own, and what a test needs to hurt it."""

    __test__ = False

    directory: Path
    address: HostAddress
    remote: RemoteHost
    sshd_pid: int | None = None
    server: EmbeddedSshServer | None = None
    extra: list[RemoteHost] = field(default_factory=list)
    cleanups: list[Callable[[], object]] = field(default_factory=list)

    @property
    def workdir(self) -> Path:
        return Path(self.address.workdir)

    def another(self, **changes: object) -> RemoteHost:
        """A second client of the same host."""
        remote = RemoteHost(HostAddress(**{**vars(self.address), **changes}), SystemClock())
        self.extra.append(remote)
        return remote

    def with_agent_env(self, **variables: str) -> RemoteHost:
        """A client whose agent runs with these variables, on any kind of server."""
        script = self.directory / f"python-{next(numbers)}"
        exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        script.write_text(f'#!/bin/sh\n{exports}exec {sys.executable} "$@"\n')
        script.chmod(0o755)
        return self.another(python=str(script))

    def close(self) -> None:
        for remote in (self.remote, *self.extra):
            remote.close()
        kill_jobs(self.workdir)
        for cleanup in self.cleanups:
            cleanup()
        if self.server is not None:
            self.server.stop()
        if self.sshd_pid is not None:
            os.kill(self.sshd_pid, signal.SIGKILL)
            os.waitpid(self.sshd_pid, 0)


def kill_jobs(workdir: Path) -> None:
    """Ends what a test left running: only processes that hold files of a job of this work directory open."""
    jobs = str(workdir / ".tuneloop" / "jobs") + "/"
    for entry in Path("/proc").iterdir():
        try:
            files = [os.readlink(fd) for fd in (entry / "fd").iterdir()] if entry.name.isdigit() else []
            if any(name.startswith(jobs) for name in files):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
    for record in workdir.glob(".tuneloop/jobs/*/started.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            remove_cgroup(json.loads(record.read_text())["cgroup"])


def remove_cgroup(path: str | None) -> None:
    """A group whose last process was just killed takes a moment to become empty."""
    for _ in range(20):
        try:
            os.rmdir(path or "/nonexistent")
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)


def public_line(private: Path) -> str:
    return private.with_name(private.name + ".pub").read_text().strip()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def make_address(directory: Path, port: int, client_key: Path, host_key: Path) -> HostAddress:
    known_hosts = directory / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{port} {public_line(host_key)}\n")
    config = directory / "ssh_config"
    config.write_text(
        f"Host p0\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {client_key}\n"
        f"  UserKnownHostsFile {known_hosts}\n"
    )
    return HostAddress(
        name="p0", ssh="p0", ssh_config=str(config), workdir=str(directory / "work"), python=sys.executable
    )


def start_embedded(directory: Path, client_key: Path, host_key: Path) -> TestHost:
    server = EmbeddedSshServer(
        host_key=host_key,
        authorized_keys=(public_line(client_key),),
        home=directory,
        env=default_environment(directory),
    ).start()
    address = make_address(directory, server.port, client_key, host_key)
    return TestHost(directory=directory, address=address, remote=RemoteHost(address, SystemClock()), server=server)


def write_sshd_config(directory: Path, port: int, client_key: Path, host_key: Path) -> Path:
    authorized = directory / "authorized_keys"
    authorized.write_text(f"restrict,port-forwarding {public_line(client_key)}\n")
    config = directory / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {authorized}\nStrictModes no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nUseDNS no\nSubsystem sftp internal-sftp\nLogLevel ERROR\n"
    )
    return config


def start_sshd(directory: Path, client_key: Path, host_key: Path) -> TestHost:
    if SSHD is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    config = write_sshd_config(directory, port, client_key, host_key)
    log = (directory / "sshd.log").open("wb")
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
    log.close()
    process.returncode = 0  # reaped by close(); keeps Popen from warning
    wait_for_port(port)
    address = make_address(directory, port, client_key, host_key)
    return TestHost(
        directory=directory,
        address=address,
        remote=RemoteHost(address, SystemClock()),
        sshd_pid=process.pid,
    )


def wait_for_port(port: int, timeout_s: float = 10.0, host: str = "127.0.0.1") -> None:
    until = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def shell(host: TestHost, job_id: str, script: str, **changes: object) -> JobSpec:
    """A job that runs a shell script in the host's work directory."""
    fields: dict[str, object] = {
        "job_id": job_id,
        "argv": ("/bin/sh", "-c", script),
        "cwd": host.address.workdir,
        "ttl_s": 60.0,
    }
    return JobSpec(**{**fields, **changes})  # type: ignore[arg-type]


def lease_of(host: TestHost, owner: str = "study") -> Lease:
    return host.remote.acquire(owner, 600.0)


def finished(remote: RemoteHost, job_id: str, within_s: float = 15.0) -> JobState:
    state = remote.poll(job_id, wait_s=within_s)
    assert not state.is_live, state
    return state


class LocalAgent:
    """The agent without SSH: what it does with a request, byte for byte."""

    def __init__(self, workdir: Path, python: str = sys.executable, user: int | None = None) -> None:
        self.process = subprocess.Popen(
            [python, "-I", "-S", "-c", BOOTSTRAP, str(workdir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=user,
        )
        source = agent_source()
        self.send(b"%08x %s" % (len(source), agent_sha256().encode()) + source)

    def send(self, data: bytes) -> None:
        stream = self.process.stdin
        assert stream is not None
        try:
            stream.write(data)
            stream.flush()
        except BrokenPipeError:
            pass

    def ask(self, **request: object) -> dict[str, Any] | None:
        """The answer, or `None` when the agent died instead."""
        self.send(json.dumps({"id": "x", **request}).encode() + b"\n")
        return self.read_answer()

    def read_answer(self) -> dict[str, Any] | None:
        stream = self.process.stdout
        assert stream is not None
        if stream.readline() != b"\n":
            return None
        header = stream.readline().split()
        if len(header) != 3:
            return None
        answer: dict[str, Any] = json.loads(stream.read(int(header[1])))
        answer["data"] = stream.read(int(header[2]))
        return answer

    def close(self) -> bytes:
        """Ends the agent; returns what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=10)
        return errors


def run_count(host: TestHost) -> int:
    """How often the job's own marker says that it ran: the workload's truth, not ours."""
    marker = host.workdir / "runs"
    return len(marker.read_text().splitlines()) if marker.exists() else 0


def agent_processes(workdir: Path) -> list[int]:
    """Agents and supervisors of this work directory: both were started with it as their last argument."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")[:-1] if entry.name.isdigit() else []
        except OSError:
            continue
        if words and words[-1] == str(workdir).encode() and b"-S" in words:
            found.append(int(entry.name))
    return found


def supervisor_of(host: TestHost, job_id: str) -> int:
    record = json.loads((host.workdir / ".tuneloop" / "jobs" / job_id / "started.json").read_text())
    return int(record["supervisor"]["pid"])


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def eventually(check: Callable[[], object], within_s: float = 10.0) -> None:
    until = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < until, "did not come true"
        time.sleep(0.02)
