"""One SSH connection as a client: strict host keys, own socket options, a limited number of channels.

Every wait ends at an absolute deadline of the monotonic clock. A failure is `ConnectionLost`; it says nothing about
what the host did with what was sent.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import paramiko

from executor.ssh.config import Endpoint
from executor.ssh.errors import (
    AuthenticationRefused,
    ConnectionLost,
    DeadlinePassed,
    HostKeyRefused,
    NoFreeChannel,
)
from executor.ssh.keys import read_private_keys
from executor.ssh.known_hosts import read_known_keys

MAX_CHANNELS = 8  # sshd's MaxSessions is 10
MAX_KEYS_TRIED = 3  # sshd's MaxAuthTries is 6, and some hosts punish failures
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 3, 2, 3
USER_TIMEOUT_MS = 8000
CHUNK_BYTES = 1 << 16


def remaining(deadline: float) -> float:
    """Seconds left; raises ConnectionLost when there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlinePassed("the deadline passed")
    return left


def described(error: BaseException) -> str:
    """Some errors of sockets and paramiko have no words."""
    return str(error) or type(error).__name__


class Stream:
    """A channel as a byte stream. Not thread-safe; `close` gives the channel's slot back."""

    def __init__(self, channel: paramiko.Channel, slots: threading.BoundedSemaphore) -> None:
        self._channel, self._slots = channel, slots
        self._closed = False

    def read(self, deadline: float) -> bytes:
        """At least one byte, or b"" at the end of the stream."""
        self._channel.settimeout(remaining(deadline))
        try:
            return self._channel.recv(CHUNK_BYTES)
        except TimeoutError as error:
            raise DeadlinePassed("no answer before the deadline") from error
        except (OSError, paramiko.SSHException) as error:
            raise ConnectionLost(f"read: {described(error)}") from error

    def write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._channel.settimeout(remaining(deadline))
            try:
                sent = self._channel.send(view[:CHUNK_BYTES])  # type: ignore[arg-type]
            except (OSError, paramiko.SSHException, EOFError) as error:
                raise ConnectionLost(f"write: {described(error)}") from error
            if sent == 0:
                raise ConnectionLost("write: the host closed the channel")
            view = view[sent:]

    @property
    def is_open(self) -> bool:
        return not self._closed and not self._channel.closed and not self._channel.eof_received

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(Exception):
                self._channel.close()
            self._slots.release()


class SshConnection:
    """Connected from construction on. Thread-safe; dead for ever once `is_alive` is false."""

    def __init__(self, endpoint: Endpoint, deadline: float, max_channels: int = MAX_CHANNELS) -> None:
        self.endpoint = endpoint
        self._slots = threading.BoundedSemaphore(max_channels)
        self._jump: SshConnection | None = None
        self._socket: socket.socket | Stream | None = None
        try:
            self._transport = self._connect(deadline)
        except BaseException:
            self._close_below()
            raise

    @property
    def is_alive(self) -> bool:
        return self._transport.is_active()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._transport.close()
        self._close_below()

    def open_command(self, command: str, deadline: float) -> Stream:
        """Runs `command` under the login shell of the host, without a terminal. stderr comes with stdout."""
        channel = self._open("session", None, deadline)
        stream = Stream(channel, self._slots)
        try:
            channel.settimeout(remaining(deadline))
            channel.set_combine_stderr(True)
            channel.exec_command(command)
        except (OSError, paramiko.SSHException, EOFError) as error:
            stream.close()
            raise ConnectionLost(f"exec: {described(error)}") from error
        return stream

    def open_tunnel(self, host: str, port: int, deadline: float) -> Stream:
        """A TCP connection from the far host to `host:port`. `ConnectionRefusedError` if nothing listens there."""
        return Stream(self._open("direct-tcpip", (host, port), deadline), self._slots)

    def _open(self, kind: str, target: tuple[str, int] | None, deadline: float) -> paramiko.Channel:
        if not self._slots.acquire(timeout=remaining(deadline)):
            raise NoFreeChannel("no free channel before the deadline")
        try:
            source = ("127.0.0.1", 0) if target else None
            return self._transport.open_channel(kind, target, source, timeout=remaining(deadline))
        except paramiko.ChannelException as error:
            self._slots.release()
            if target and error.code == 2:
                raise ConnectionRefusedError(f"{target[0]}:{target[1]} on {self.endpoint.name}") from error
            raise NoFreeChannel(f"channel refused: {error}") from error
        except (OSError, paramiko.SSHException, EOFError) as error:
            self._slots.release()
            raise ConnectionLost(f"open channel: {described(error)}") from error
        except BaseException:
            self._slots.release()
            raise

    def _connect(self, deadline: float) -> paramiko.Transport:
        known = read_known_keys(self.endpoint)
        keys = read_private_keys(self.endpoint)
        sock = self._open_socket(deadline)
        with closing_at(sock, deadline):
            try:
                transport = paramiko.Transport(sock)
                self._negotiate(transport, known, deadline)
                authenticate(self.endpoint, transport, keys)
            except (OSError, paramiko.SSHException, EOFError) as error:
                raise ConnectionLost(f"connect: {described(error)}") from error
        transport.set_keepalive(KEEPALIVE_IDLE_S)
        return transport

    def _open_socket(self, deadline: float) -> socket.socket | paramiko.Channel:
        endpoint = self.endpoint
        if endpoint.jump is not None:
            self._jump = SshConnection(endpoint.jump, deadline)
            try:
                self._socket = self._jump.open_tunnel(endpoint.hostname, endpoint.port, deadline)
            except ConnectionRefusedError as error:
                raise ConnectionLost(f"through {endpoint.jump.name}: {error} refused") from error
            return self._socket._channel
        try:
            sock = socket.create_connection((endpoint.hostname, endpoint.port), timeout=remaining(deadline))
        except OSError as error:
            raise ConnectionLost(f"{endpoint.hostname}:{endpoint.port}: {error}") from error
        self._socket = sock
        tune(sock)
        return sock

    def _negotiate(self, transport: paramiko.Transport, known: list[paramiko.PKey], deadline: float) -> None:
        left = remaining(deadline)
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = left
        transport.channel_timeout = left
        prefer_known_key_types(transport, known)
        transport.start_client(timeout=left)
        presented = transport.get_remote_server_key()
        if presented not in known:
            transport.close()
            raise HostKeyRefused(
                self.endpoint.name,
                f"its key {presented.get_name()} {presented.fingerprint} is not the known one "
                f"({', '.join(key.fingerprint for key in known)} in {', '.join(self.endpoint.known_hosts)}); "
                f"if the host was really replaced, correct the line of {self.endpoint.known_as}",
            )

    def _close_below(self) -> None:
        with contextlib.suppress(Exception):
            if self._socket is not None:
                self._socket.close()
        if self._jump is not None:
            self._jump.close()


@contextlib.contextmanager
def closing_at(sock: socket.socket | paramiko.Channel, deadline: float) -> Iterator[None]:
    """Closes the socket at the deadline: a peer that drips single bytes defeats every per-read timeout."""
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), sock.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tune(sock: socket.socket) -> None:
    """Nagle off (40 ms a round trip otherwise); a dead peer is noticed in about 9 s, idle or not."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def prefer_known_key_types(transport: paramiko.Transport, known: list[paramiko.PKey]) -> None:
    """A host has several keys; ask for one of a type that known_hosts lists."""
    names = {key.get_name() for key in known}
    names |= {"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in names else set()
    options = transport.get_security_options()
    wanted = [kind for kind in options.key_types if kind in names]
    if wanted:
        options.key_types = wanted


def authenticate(endpoint: Endpoint, transport: paramiko.Transport, keys: list[paramiko.PKey]) -> None:
    for key in keys[:MAX_KEYS_TRIED]:
        try:
            transport.auth_publickey(endpoint.user, key)
        except paramiko.AuthenticationException as error:
            if not transport.is_active():
                raise ConnectionLost(f"authentication: {error}") from error
            continue
        if transport.is_authenticated():
            return
    transport.close()
    tried = ", ".join(key.fingerprint for key in keys[:MAX_KEYS_TRIED])
    raise AuthenticationRefused(
        endpoint.name, f"user {endpoint.user} may not log in with {tried}; look at authorized_keys on the host"
    )
