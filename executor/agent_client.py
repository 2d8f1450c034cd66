"""Asks the agent on one host until it answers or the deadline passes: sessions, reconnection, errors.

A lost connection repeats the question, never an action: every request is safe to ask again. Thread-safe.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from executor.remote_types import HostAddress, HostRefused
from executor.ssh import AuthenticationRefused, ConnectionLost, HostKeyRefused, SshConnection, resolve_endpoint
from executor.ssh.connection import Stream
from executor.ssh.errors import DeadlinePassed, NoFreeChannel
from executor.ssh.session import AgentSession, SessionStream, agent_command
from experiments.errors import HostUnreachable, LeaseRefused

CONNECT_TIMEOUT_S = 10.0
SESSION_START_S = 10.0
IDLE_SESSIONS = 4
REFUSAL_PAUSE_S = 30.0
MAX_REQUEST_BYTES = 900_000  # the agent's own limit is 1 MiB
MAX_PAYLOAD_BYTES = 256 << 20
BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0

Answer = dict[str, Any]
Ask = Callable[[AgentSession, float], Answer]


class AgentClient:
    """One SSH connection and a few agent sessions on it. Nothing is connected before the first question."""

    def __init__(self, address: HostAddress) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._connection: SshConnection | None = None
        self._idle: list[AgentSession] = []
        self._root_id = address.root_id
        self._refusal: HostKeyRefused | AuthenticationRefused | None = None
        self._refused_at = 0.0
        self._command = agent_command(workdir=address.workdir, python=address.python, container=address.container)

    def close(self) -> None:
        """Ends the connection. Jobs on the host go on. A later question connects again."""
        with self._lock:
            idle, connection = self._idle, self._connection
            self._idle, self._connection = [], None
        for session in idle:
            session.close()
        if connection is not None:
            connection.close()

    def call(self, request: Mapping[str, Any], timeout_s: float, payload: bytes = b"") -> Answer:
        """The answer, with its raw bytes under `data` and the start-up cost of its session under `session_ms`."""
        if len(payload) > MAX_PAYLOAD_BYTES or len(json.dumps(request)) > MAX_REQUEST_BYTES:
            raise HostRefused(
                self.address.name, "too_large", f"the request {request['op']} is larger than the agent takes"
            )

        def ask(session: AgentSession, deadline: float) -> Answer:
            limit = max(0.1, (deadline - time.monotonic()) * 0.8)
            answer, data = session.ask({"limit_s": limit, **request}, payload, deadline)
            return {**answer, "data": data, "session_ms": session.start_ms}

        answer = self._retried(ask, timeout_s)
        if answer.get("ok") is True:
            self._check_root(str(answer.get("root_id")))
            return answer
        code, message = str(answer.get("error")), str(answer.get("message"))
        if code == "lease_refused":
            raise LeaseRefused(self.address.name, message)
        raise HostRefused(self.address.name, code, message)

    def _check_root(self, root_id: str) -> None:
        """A job directory that was deleted and made anew knows no jobs; "absent" there must not become "not sent"."""
        self._root_id = self._root_id or root_id
        if root_id != self._root_id:
            raise HostRefused(
                self.address.name,
                "root_replaced",
                f"{self.address.workdir}/.tuneloop is not the directory that was used before (id {root_id}, was "
                f"{self._root_id}); what ran here is no longer on record: look for leftover processes, then start anew",
            )

    def open_tunnel(self, port: int, deadline: float) -> Stream | SessionStream:
        """A TCP connection to one of our servers where the jobs are: on the host, or in the container.

        A container may have a network of its own, in which the same port means another server: so it is entered by
        the same way as for jobs, at the price of an agent's start per connection.
        """
        if self.address.container is None:
            return self._connected(deadline).open_tunnel(self.address.servers_at, port, deadline)
        session = self._take_session(deadline)
        try:
            answer, _ = session.ask({"op": "connect", "host": self.address.servers_at, "port": port}, b"", deadline)
        except BaseException:
            session.close()
            raise
        if answer.get("ok") is not True:
            self._give_back(session)
            place = f"{self.address.servers_at}:{port} in {self.address.container}"
            raise ConnectionRefusedError(f"{place}: {answer.get('message')}")
        return session.as_stream()

    def _retried(self, ask: Ask, timeout_s: float) -> Answer:
        deadline = time.monotonic() + timeout_s
        backoff, cause = BACKOFF_S, ""
        while True:
            try:
                return self._asked_once(ask, deadline)
            except ConnectionLost as error:
                if not (cause and isinstance(error, DeadlinePassed)):
                    cause = str(error)
                wait = backoff * (0.5 + secrets.randbelow(1000) / 1000)
                if time.monotonic() + wait >= deadline:
                    raise HostUnreachable(
                        self.address.name, f"no answer in {timeout_s:g} s; last attempt: {cause}"
                    ) from error
                threading.Event().wait(wait)
                backoff = min(backoff * 2, MAX_BACKOFF_S)

    def _asked_once(self, ask: Ask, deadline: float) -> Answer:
        session = self._take_session(deadline)
        try:
            answer = ask(session, deadline)
        except BaseException:
            session.close()
            raise
        self._give_back(session)
        return answer

    def _take_session(self, deadline: float) -> AgentSession:
        with self._lock:
            while self._idle:
                session = self._idle.pop()
                if session.is_open:
                    return session
                session.close()
        return self._new_session(deadline)

    def _new_session(self, deadline: float) -> AgentSession:
        """A connection on which no agent starts in half the time that is left may be half dead: the next try gets
        a fresh one."""
        connection = self._connected(deadline)
        left = deadline - time.monotonic()
        start_by = time.monotonic() + max(left / 2, min(left, SESSION_START_S))
        try:
            return AgentSession(connection, self._command, start_by)
        except ConnectionLost as error:
            if time.monotonic() >= start_by and not isinstance(error, NoFreeChannel):
                connection.close()
            raise

    def _give_back(self, session: AgentSession) -> None:
        with self._lock:
            keep = session.is_open and len(self._idle) < IDLE_SESSIONS
            if keep:
                self._idle.append(session)
        if not keep:
            session.close()

    def _connected(self, deadline: float) -> SshConnection:
        if not self._connecting.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise ConnectionLost("another thread is still connecting")
        try:
            with self._lock:
                current = self._connection
            if current is not None and current.is_alive:
                return current
            if current is not None:
                current.close()
            self._respect_refusal(deadline)
            fresh = self._connect_once(deadline)
            with self._lock:
                self._connection = fresh
            return fresh
        finally:
            self._connecting.release()

    def _respect_refusal(self, deadline: float) -> None:
        """A host that refused our key is not asked again for a while, however often we are: it may lock the account."""
        if self._refusal is not None and time.monotonic() < self._refused_at + REFUSAL_PAUSE_S:
            threading.Event().wait(max(0.0, min(1.0, deadline - time.monotonic())))
            raise self._refusal.with_traceback(None)

    def _connect_once(self, deadline: float) -> SshConnection:
        address = self.address
        endpoint = resolve_endpoint(address.ssh, ssh_config=address.ssh_config, known_hosts=address.known_hosts)
        try:
            return SshConnection(endpoint, min(deadline, time.monotonic() + CONNECT_TIMEOUT_S))
        except (HostKeyRefused, AuthenticationRefused) as refusal:
            self._refusal, self._refused_at = refusal, time.monotonic()
            raise
