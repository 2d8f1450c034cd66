"""Connecting: who is trusted, who is not, and that every wait ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paramiko import HostKeys

from executor.clock import SystemClock
from executor.remote_host import HostAddress, JobStatus, RemoteHost
from executor.ssh import AuthenticationRefused, HostKeyRefused
from executor.ssh.keys import write_new_key
from experiments.errors import HostUnreachable
from tests.executor.remote.remote_testbed import TestHost, finished, lease_of, public_line, shell, start_embedded


def test_an_unknown_host_is_refused_before_anything_is_sent(host: TestHost, tmp_path: Path) -> None:
    """A host without a line in known_hosts is not connected to at all."""
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(HostKeyRefused, match=r"is in none of .*empty"):
        host.another(known_hosts=str(empty)).facts()


def test_a_grown_known_hosts_file_is_understood(embedded: TestHost, tmp_path: Path, host_key: Path) -> None:
    """Bad lines, comments, certificates, hashed names and an older key of the same type do not hide the right one."""
    port = embedded.server.port if embedded.server else 0
    older = write_new_key(tmp_path / "older")
    hashed = HostKeys.hash_host(f"[127.0.0.1]:{port}")
    known = tmp_path / "grown"
    known.write_text(
        f"# comment\n\nbroken\nhost ssh-ed25519 !!!notbase64\n@cert-authority * {older}\n"
        f"{hashed} {public_line(host_key)}\n[127.0.0.1]:{port},other {older}\n"
    )
    assert embedded.another(known_hosts=str(known)).poll("job").status is JobStatus.ABSENT


def test_a_revoked_host_key_is_refused(embedded: TestHost, tmp_path: Path, host_key: Path) -> None:
    """A key that known_hosts lists and revokes is not trusted."""
    known = tmp_path / "revoked"
    text = Path(embedded.directory / "known_hosts").read_text()
    known.write_text(f"{text}@revoked * {public_line(host_key)}\n")
    with pytest.raises(HostKeyRefused, match="revoked"):
        embedded.another(known_hosts=str(known)).facts()


def test_a_changed_host_key_is_refused_with_both_fingerprints(host: TestHost, tmp_path: Path) -> None:
    """A host that shows another key than the known one gets no authentication and no second try."""
    other = tmp_path / "other_key"
    line = write_new_key(other)
    port = dict(part.split(" ") for part in Path(host.address.ssh_config or "").read_text().split("\n  ")[1:3])
    known = tmp_path / "changed"
    known.write_text(f"[127.0.0.1]:{port['Port']} {line}\n")
    started = time.monotonic()
    with pytest.raises(HostKeyRefused, match=r"SHA256:.*is not the known one \(SHA256:"):
        host.another(known_hosts=str(known)).facts()
    assert time.monotonic() - started < 5


def test_a_key_that_the_host_does_not_know_is_refused_once(host: TestHost, tmp_path: Path) -> None:
    """Authentication is not tried again and again: some hosts lock the account."""
    stranger = tmp_path / "stranger"
    write_new_key(stranger)
    config = tmp_path / "config2"
    text = Path(host.address.ssh_config or "").read_text()
    config.write_text(text.replace(text.split("IdentityFile ")[1].split("\n")[0], str(stranger)))
    remote = host.another(ssh_config=str(config))
    started = time.monotonic()
    with pytest.raises(AuthenticationRefused, match="may not log in with SHA256:"):
        remote.facts()
    assert time.monotonic() - started < 5
    config.unlink()
    with pytest.raises(AuthenticationRefused, match="may not log in"):
        remote.facts(timeout_s=0.1)


def test_a_key_that_others_may_read_is_not_used(embedded: TestHost, tmp_path: Path) -> None:
    """A private key of mode 0644 is refused with the command that repairs it."""
    loose = tmp_path / "loose"
    write_new_key(loose)
    loose.chmod(0o644)
    config = tmp_path / "config3"
    text = Path(embedded.address.ssh_config or "").read_text()
    config.write_text(text.replace(text.split("IdentityFile ")[1].split("\n")[0], str(loose)))
    with pytest.raises(AuthenticationRefused, match=r"mode 0644; run chmod 600"):
        embedded.another(ssh_config=str(config)).facts()


def test_a_host_behind_a_jump_is_reached(host: TestHost, tmp_path: Path, client_key: Path, host_key: Path) -> None:
    """A second server is driven through the first: jobs, files and HTTP need no route of our own."""
    inner_directory = tmp_path / "inner"
    inner_directory.mkdir()
    inner = start_embedded(inner_directory, client_key, host_key)
    try:
        config = inner_directory / "jump_config"
        outer_text = Path(host.address.ssh_config or "").read_text()
        inner_text = Path(inner.address.ssh_config or "").read_text()
        config.write_text(outer_text + inner_text.replace("Host p0", "Host d0\n  ProxyJump p0"))
        remote = inner.another(ssh="d0", ssh_config=str(config))
        lease = remote.acquire("study", 30.0)
        remote.launch(shell(inner, "job", "exit 9"), lease)
        assert finished(remote, "job").exit_code == 9
    finally:
        inner.close()


def test_a_dropped_connection_is_replaced_without_the_caller(embedded: TestHost) -> None:
    """A poll on a connection that was cut reconnects and is answered; the job never noticed."""
    embedded.remote.launch(shell(embedded, "job", "sleep 0.5; exit 3"), lease_of(embedded))
    assert embedded.server is not None
    embedded.server.drop_connections()
    assert embedded.remote.poll("job").status is JobStatus.RUNNING
    embedded.server.drop_connections()
    assert finished(embedded.remote, "job").exit_code == 3


@pytest.mark.sshd
def test_killing_the_sshd_of_the_connection_loses_nothing(sshd: TestHost) -> None:
    """kill -9 of the process that serves our connection: the job goes on, the next question is answered."""
    sshd.remote.launch(shell(sshd, "job", "sleep 0.5; exit 3"), lease_of(sshd))
    assert sshd.sshd_pid is not None
    children = Path(f"/proc/{sshd.sshd_pid}/task/{sshd.sshd_pid}/children").read_text().split()
    assert children
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)
    assert finished(sshd.remote, "job").exit_code == 3


@pytest.mark.sshd
def test_a_frozen_sshd_costs_the_deadline_and_no_more(sshd: TestHost) -> None:
    """A stopped sshd is neither an answer nor a hang: unreachable at the deadline, well again afterwards."""
    sshd.remote.facts()
    assert sshd.sshd_pid is not None
    children = Path(f"/proc/{sshd.sshd_pid}/task/{sshd.sshd_pid}/children").read_text().split()
    frozen = [sshd.sshd_pid, *map(int, children)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert_unreachable_in(lambda: sshd.remote.poll("job", timeout_s=1.0), 1.0)
        assert_unreachable_in(lambda: sshd.another().poll("job", timeout_s=1.0), 1.0)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert sshd.remote.poll("job").status is JobStatus.ABSENT


def assert_unreachable_in(call: Callable[[], object], seconds: float) -> None:
    started = time.monotonic()
    with pytest.raises(HostUnreachable):
        call()
    assert time.monotonic() - started < seconds + 1.0


@contextmanager
def impostor(talk: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """A TCP server that does anything but SSH."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk_and_close, args=(client,), daemon=True).start()

    def talk_and_close(client: socket.socket) -> None:
        with client:
            try:
                talk(client, stop)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    yield int(listener.getsockname()[1])
    stop.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def silent(client: socket.socket, stop: threading.Event) -> None:
    stop.wait(10)


def dripping(client: socket.socket, stop: threading.Event) -> None:
    while not stop.wait(0.05):
        client.sendall(b"x")


def flooding(client: socket.socket, stop: threading.Event) -> None:
    while not stop.is_set():
        client.sendall(b"not ssh\r\n" * 1000)


def banner_then_silence(client: socket.socket, stop: threading.Event) -> None:
    client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    stop.wait(10)


def hanging_up(client: socket.socket, stop: threading.Event) -> None:
    client.close()


@pytest.mark.parametrize("talk", [silent, dripping, flooding, banner_then_silence, hanging_up])
def test_a_server_that_is_no_sshd_cannot_hold_us(
    tmp_path: Path, client_key: Path, host_key: Path, talk: Callable[[socket.socket, threading.Event], None]
) -> None:
    """Silence, dripping, flooding, a stalled handshake and hanging up all end at the deadline."""
    with impostor(talk) as port:
        known = tmp_path / "known"
        known.write_text(f"[127.0.0.1]:{port} {public_line(host_key)}\n")
        config = tmp_path / "config"
        config.write_text(f"Host p0\n HostName 127.0.0.1\n Port {port}\n IdentityFile {client_key}\n")
        address = HostAddress(
            name="p0", ssh="p0", ssh_config=str(config), known_hosts=str(known), workdir=str(tmp_path / "w")
        )
        assert_unreachable_in(lambda: RemoteHost(address, SystemClock()).poll("job", timeout_s=0.8), 0.8)


@pytest.mark.sshd
def test_more_clients_than_sessions_are_served(sshd: TestHost) -> None:
    """Thirty threads on one connection stay within sshd's MaxSessions of ten."""
    lease_of(sshd)
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            sshd.remote.poll("none", wait_s=0.05)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
