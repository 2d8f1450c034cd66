"""Hosts to run against: the embedded server, and a real OpenSSH sshd where there is one."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from executor.clock import SystemClock
from executor.remote_host import HostAddress, JobSpec, JobState, Lease, RemoteHost
from executor.ssh.embedded import EmbeddedSshServer, default_environment

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


def wait_for_port(port: int, timeout_s: float = 10.0) -> None:
    until = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
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
    return host.remote.acquire(owner, 60.0)


def finished(remote: RemoteHost, job_id: str, within_s: float = 15.0) -> JobState:
    state = remote.poll(job_id, wait_s=within_s)
    assert not state.is_live, state
    return state
