"""An SSH server in this process that runs real local processes: a host of the simulated pool.

Speaks what the product needs of sshd: public keys, exec without a terminal, direct-tcpip (so that it is a ProxyJump
hop, too). As with sshd, closing a channel does not kill the command. Not a security boundary: it runs commands as the
user of this process and listens on loopback only.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import threading
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_SUCCEEDED,
)

LOGIN_TIMEOUT_S = 20.0
BLOCK_BYTES = 1 << 16
GONE = (OSError, EOFError, ValueError, paramiko.SSHException)  # ways in which the other end can be no more


class EmbeddedSshServer:
    """Listens from `start()` to `stop()`. `env` is the whole environment of what it runs."""

    def __init__(
        self,
        *,
        host_key: Path,
        authorized_keys: tuple[str, ...],
        home: Path,
        env: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self._host_key = paramiko.PKey.from_path(host_key)
        self._authorized = tuple(_parse_public_key(line) for line in authorized_keys)
        self._home = home
        self._env = dict(env) if env is not None else default_environment(home)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._lock = threading.Lock()
        self._transports: set[paramiko.Transport] = set()
        self._stopping = False

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def known_hosts_line(self) -> str:
        return f"[127.0.0.1]:{self.port} {self._host_key.get_name()} {self._host_key.get_base64()}"

    def start(self) -> EmbeddedSshServer:
        _in_background(self._accept)
        return self

    def stop(self) -> None:
        """Ends the connections. Detached jobs go on, as on a host whose sshd was stopped."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        """Cuts every live connection, as a fault or at the end."""
        with self._lock:
            transports, self._transports = self._transports, set()
        for transport in transports:
            transport.close()

    def __enter__(self) -> EmbeddedSshServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _in_background(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        transport = paramiko.Transport(client)
        transport.add_server_key(self._host_key)
        transport.auth_timeout = LOGIN_TIMEOUT_S
        with self._lock:
            self._transports = {live for live in self._transports if live.is_active()} | {transport}
        session = _Session(transport, self._authorized, self._home, self._env)
        try:
            transport.start_server(server=session)
        except (paramiko.SSHException, OSError, EOFError):
            transport.close()
            return
        session.forward_channels()


class _Session(paramiko.ServerInterface):
    """What one authenticated connection may ask for."""

    def __init__(
        self,
        transport: paramiko.Transport,
        authorized: tuple[paramiko.PKey, ...],
        home: Path,
        env: Mapping[str, str],
    ) -> None:
        self._transport, self._authorized, self._home, self._env = transport, authorized, home, env
        self._targets: dict[int, socket.socket] = {}

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if key in self._authorized else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if kind == "session":
            return OPEN_SUCCEEDED
        return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        _in_background(_run_command, channel, command.decode(), self._home, self._env)
        return True

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        try:
            target = socket.create_connection(destination, timeout=5)
        except OSError:
            return OPEN_FAILED_CONNECT_FAILED
        target.settimeout(None)
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._targets[chanid] = target
        return OPEN_SUCCEEDED

    def forward_channels(self) -> None:
        """Serves tunnels while the connection lives. paramiko hands channels out by `accept`, to one taker only:
        with several, a wake-up can be lost. A session channel that nobody holds is closed before its exec comes."""
        sessions: list[paramiko.Channel] = []
        while self._transport.is_active():
            channel = self._transport.accept(1.0)
            sessions = [live for live in sessions if not live.closed]
            if channel is None:
                continue
            target = self._targets.pop(channel.get_id(), None)
            if target is None:
                sessions.append(channel)
            else:
                _in_background(_relay, channel, target)
        for target in self._targets.values():
            target.close()


def _relay(channel: paramiko.Channel, target: socket.socket) -> None:
    """Copies both ways until both sides have ended; each end of input is passed on."""
    _in_background(_pump, channel.recv, target.sendall, lambda: target.shutdown(socket.SHUT_WR))
    _pump(target.recv, channel.sendall, channel.shutdown_write)
    with contextlib.suppress(*GONE):
        target.shutdown(socket.SHUT_RDWR)
    target.close()
    with contextlib.suppress(*GONE):
        channel.close()


def _pump(read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]) -> None:
    try:
        while data := read(BLOCK_BYTES):
            write(data)
    except GONE:
        pass
    with contextlib.suppress(*GONE):
        end()


def _run_command(channel: paramiko.Channel, command: str, home: Path, env: Mapping[str, str]) -> None:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=home,
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise RuntimeError("pipes were asked for")
    out, err = stdout.fileno(), stderr.fileno()
    _in_background(_pump, channel.recv, lambda data: _write_all(stdin.fileno(), data), stdin.close)
    errors = _in_background(_pump, lambda size: os.read(err, size), channel.sendall_stderr, lambda: None)
    outputs = _in_background(_pump, lambda size: os.read(out, size), channel.sendall, lambda: None)
    code = process.wait()
    for thread in (outputs, errors):
        thread.join(1.0)  # a daemon of the command may hold the pipe for ever
    with contextlib.suppress(*GONE):
        if code >= 0:
            channel.send_exit_status(code)
        channel.close()
    for pipe in (stdout, stderr):
        if not any(thread.is_alive() for thread in (outputs, errors)):
            pipe.close()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        select.select([], [fd], [], 60.0)
        view = view[os.write(fd, view) :]


def _in_background(work: Callable[..., object], *args: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True, name=f"embedded-ssh-{work.__name__}")
    thread.start()
    return thread


def _parse_public_key(line: str) -> paramiko.PKey:
    kind, base64 = line.split()[:2]
    return paramiko.PKey.from_type_string(kind, b64decode(base64))


def default_environment(home: Path) -> dict[str, str]:
    """What a fresh login would have; nothing of this process's own settings or secrets reaches a job."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8"}
