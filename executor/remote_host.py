"""Typed, blocking client of the agent on one host. Thread-safe; reconnects by itself.

Every call ends by its deadline as an answer, as `HostUnreachable` (nothing was learned), as `HostRefused` or
`LeaseRefused` (nothing was done). A lost connection repeats the question: each request is safe to ask again, because
the host claims a job id once and answers with what it already has.
"""

from __future__ import annotations

import posixpath
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx

from executor.clock import Clock
from executor.http import tunnel_client
from executor.remote_types import (
    LIVE,
    UNKNOWN_END,
    DirectoryEntry,
    FileChunk,
    FileDigest,
    HostAddress,
    HostFacts,
    HostRefused,
    JobSpec,
    JobState,
    JobStatus,
    Lease,
    Listener,
    ProbeName,
    ProbeResult,
)
from executor.ssh import ConnectionLost, SshConnection, resolve_endpoint
from executor.ssh.connection import Stream
from executor.ssh.errors import NoFreeChannel
from executor.ssh.session import MAX_DATA_BYTES, AgentSession, agent_command
from experiments.errors import HostUnreachable, LeaseRefused
from experiments.serving_config import digest

__all__ = [
    "LIVE",
    "UNKNOWN_END",
    "DirectoryEntry",
    "FileChunk",
    "FileDigest",
    "HostAddress",
    "HostFacts",
    "HostRefused",
    "JobSpec",
    "JobState",
    "JobStatus",
    "Lease",
    "Listener",
    "ProbeName",
    "ProbeResult",
    "RemoteHost",
]

CALL_TIMEOUT_S = 20.0
CONNECT_TIMEOUT_S = 10.0
SESSION_START_S = 10.0
WAIT_SLICE_S = 5.0
READ_CHUNK_BYTES = 4 << 20
IDLE_SESSIONS = 3
BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0

Answer = dict[str, Any]


class RemoteHost:
    """One host. Construction does not connect; the first call does."""

    def __init__(self, address: HostAddress, clock: Clock) -> None:
        if not posixpath.isabs(address.workdir) or posixpath.normpath(address.workdir) != address.workdir:
            raise HostRefused(address.name, "bad_request", f"workdir {address.workdir!r} must be a plain absolute path")
        self.address = address
        self._clock = clock
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._connection: SshConnection | None = None
        self._idle: list[AgentSession] = []
        self._command = agent_command(workdir=address.workdir, python=address.python, container=address.container)

    # connection

    def connect(self, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Connects and starts the agent, so that a wrong key or a missing python3 is known now."""
        self.facts(timeout_s)

    def close(self) -> None:
        """Ends the connection. Jobs on the host go on. A later call connects again."""
        with self._lock:
            idle, connection = self._idle, self._connection
            self._idle, self._connection = [], None
        for session in idle:
            session.close()
        if connection is not None:
            connection.close()

    def facts(self, timeout_s: float = CALL_TIMEOUT_S) -> HostFacts:
        started_ms = 0.0
        before = 0.0

        def ask(session: AgentSession, deadline: float) -> Answer:
            nonlocal started_ms, before
            started_ms, before = session.start_ms, self._clock.monotonic()
            return session.ask({"op": "facts"}, b"", deadline)[0]

        answer = self._checked(self._retried(ask, timeout_s))
        return HostFacts(
            boot_id=answer["boot_id"],
            python_version=answer["python_version"],
            disk_free_bytes=answer["disk_free_bytes"],
            agent_sha256=answer["agent_sha256"],
            root_id=answer["root_id"],
            utc=datetime.fromtimestamp(answer["wall_s"], UTC),
            boot_s=answer["boot_s"],
            monotonic_before_s=before,
            monotonic_after_s=self._clock.monotonic(),
            login_shell_ms=started_ms,
        )

    # lease

    def acquire(self, owner: str, ttl_s: float, timeout_s: float = CALL_TIMEOUT_S) -> Lease:
        """Takes the host. The same owner takes it over from itself under a new epoch, which makes the old one stale."""
        before = self._clock.monotonic()
        request = {"op": "acquire", "owner": owner, "ttl_s": ttl_s, "nonce": secrets.token_hex(16)}
        answer = self._call(request, timeout_s)
        return Lease(
            owner=answer["owner"],
            epoch=answer["epoch"],
            ttl_s=ttl_s,
            boot_id=answer["boot_id"],
            expires_at=before + ttl_s,
        )

    def renew(self, lease: Lease, timeout_s: float = CALL_TIMEOUT_S) -> Lease:
        before = self._clock.monotonic()
        self._call({"op": "renew", "lease": _key(lease), "ttl_s": lease.ttl_s}, timeout_s)
        return replace(lease, expires_at=before + lease.ttl_s)

    def release(self, lease: Lease, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._call({"op": "release", "lease": _key(lease)}, timeout_s)

    # jobs

    def launch(self, spec: JobSpec, lease: Lease, timeout_s: float = CALL_TIMEOUT_S) -> JobState:
        """Starts the job unless its id was ever claimed on this host; then says what became of it."""
        document = {
            "argv": list(spec.argv),
            "env": dict(spec.env),
            "cwd": self._inside(spec.cwd),
            "ttl": spec.ttl_s,
            "allow_daemons": spec.allow_daemons,
            "grace": spec.grace_s,
            "log_cap": spec.log_cap_bytes,
        }
        document |= {"digest": digest(document), "min_free_bytes": spec.min_free_bytes}
        request = {"op": "launch", "job_id": spec.job_id, "spec": document, "lease": _key(lease)}
        return _job_state(self._call(request, timeout_s))

    def poll(self, job_id: str, wait_s: float = 0.0, timeout_s: float = CALL_TIMEOUT_S) -> JobState:
        """What is known now; with `wait_s`, the host answers when the job has ended or that time has passed."""
        request = {"op": "poll", "job_id": job_id, "wait_s": wait_s}
        return _job_state(self._call(request, timeout_s + wait_s))

    def fence(self, job_id: str, lease: Lease, timeout_s: float = CALL_TIMEOUT_S) -> JobState:
        """Makes sure that a job that has not run never will. A job that runs or ran is left as it is and told."""
        return _job_state(self._call({"op": "fence", "job_id": job_id, "lease": _key(lease)}, timeout_s))

    def cancel(
        self, job_id: str, lease: Lease, patience_s: float = 30.0, timeout_s: float = CALL_TIMEOUT_S
    ) -> JobState:
        """Ends the whole process tree; a job that never ran is fenced. Returns a live state if patience ran out.

        Patience is real time of the host: killing takes as long as it takes, whatever clock we were given.
        """
        until = time.monotonic() + patience_s
        while True:
            wait = max(0.0, min(WAIT_SLICE_S, until - time.monotonic()))
            request = {"op": "cancel", "job_id": job_id, "lease": _key(lease), "wait_s": wait}
            state = _job_state(self._call(request, timeout_s + wait))
            if not state.is_live or time.monotonic() >= until:
                return state

    def jobs(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[JobState, ...]:
        return tuple(_job_state(job) for job in self._call({"op": "jobs"}, timeout_s)["jobs"])

    def read_log(self, job_id: str, offset: int = 0, cap: int = 1 << 20) -> FileChunk:
        return self.read_file(self.log_path(job_id), offset, cap)

    def log_path(self, job_id: str) -> str:
        return posixpath.join(self.address.workdir, ".tuneloop", "jobs", job_id, "out.log")

    # the host around the jobs

    def listeners(self, ports: Iterable[int], timeout_s: float = CALL_TIMEOUT_S) -> tuple[Listener, ...]:
        found = self._call({"op": "listeners", "ports": list(ports)}, timeout_s)["listeners"]
        return tuple(Listener(**entry) for entry in found)

    def run_probe(self, name: ProbeName, timeout_s: float = CALL_TIMEOUT_S) -> ProbeResult:
        answer = self._call({"op": "probe", "name": name.value, "limit_s": timeout_s * 0.8}, timeout_s)
        return ProbeResult(available=answer["available"], exit_code=answer["exit_code"], text=answer["text"])

    def http(self, port: int, timeout_s: float) -> httpx.Client:
        """A client whose every request goes to 127.0.0.1:`port` on the host and ends within `timeout_s` in all."""
        return tunnel_client(lambda deadline: self._open_tunnel(port, deadline), port, timeout_s)

    # files below the work directory

    def put_file(self, path: str, data: bytes, mode: int = 0o644, timeout_s: float = CALL_TIMEOUT_S) -> FileDigest:
        """Whole and durable, or not at all; the same again is harmless."""
        request = {"op": "put", "path": self._inside(path), "mode": mode}
        answer = self._call(request, timeout_s, data)
        return FileDigest(sha256=answer["sha256"], size=answer["size"])

    def read_file(self, path: str, offset: int = 0, cap: int = 1 << 20, timeout_s: float = CALL_TIMEOUT_S) -> FileChunk:
        """At most `cap` bytes from `offset` on. `HostRefused` with code not_found if there is no such file."""
        cap = min(cap, MAX_DATA_BYTES)
        request = {"op": "read", "path": self._inside(path), "offset": offset, "cap": cap}
        answer = self._call(request, timeout_s)
        return FileChunk(data=answer["data"], size=answer["size"], shrank=answer["size"] < offset)

    def fetch(self, path: str, cap: int, timeout_s: float = 300.0) -> bytes:
        """The whole file; `HostRefused` with code too_large beyond `cap`, or changed if it shrinks meanwhile."""
        deadline = time.monotonic() + timeout_s
        data = bytearray()
        while True:
            left = max(0.001, deadline - time.monotonic())
            chunk = self.read_file(path, len(data), READ_CHUNK_BYTES, min(left, CALL_TIMEOUT_S * 3))
            if chunk.size > cap:
                raise HostRefused(
                    self.address.name, "too_large", f"{path} has {chunk.size} bytes, at most {cap} are wanted"
                )
            if chunk.shrank:
                raise HostRefused(self.address.name, "changed", f"{path} became shorter while it was read")
            data += chunk.data
            if len(data) >= chunk.size or not chunk.data:
                return bytes(data)

    def file_digest(self, path: str, timeout_s: float = 120.0) -> FileDigest | None:
        answer = self._call({"op": "digest", "path": self._inside(path)}, timeout_s)
        return FileDigest(sha256=answer["sha256"], size=answer["size"]) if answer["found"] else None

    def make_directory(self, path: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._call({"op": "make_directory", "path": self._inside(path)}, timeout_s)

    def list_directory(self, path: str, timeout_s: float = CALL_TIMEOUT_S) -> tuple[DirectoryEntry, ...]:
        entries = self._call({"op": "list_directory", "path": self._inside(path)}, timeout_s)["entries"]
        return tuple(DirectoryEntry(name=name, kind=kind, size=size) for name, kind, size in entries)

    def _inside(self, path: str) -> str:
        workdir = self.address.workdir
        if "\0" in path or posixpath.normpath(path) != path or not f"{path}/".startswith(f"{workdir}/"):
            raise HostRefused(self.address.name, "path_outside", f"{path!r} is not a plain path below {workdir}")
        return path

    # one question, asked until it is answered or the deadline passes

    def _call(self, request: Mapping[str, Any], timeout_s: float, payload: bytes = b"") -> Answer:
        def ask(session: AgentSession, deadline: float) -> Answer:
            limit = max(0.1, (deadline - time.monotonic()) * 0.8)
            answer, data = session.ask({"limit_s": limit, **request}, payload, deadline)
            return {**answer, "data": data}

        return self._checked(self._retried(ask, timeout_s))

    def _checked(self, answer: Answer) -> Answer:
        if answer.get("ok") is True:
            return answer
        code, message = str(answer.get("error")), str(answer.get("message"))
        if code == "lease_refused":
            raise LeaseRefused(self.address.name, message)
        raise HostRefused(self.address.name, code, message)

    def _retried(self, ask: Callable[[AgentSession, float], Answer], timeout_s: float) -> Answer:
        deadline = time.monotonic() + timeout_s
        backoff = BACKOFF_S
        while True:
            try:
                return self._asked_once(ask, deadline)
            except ConnectionLost as error:
                wait = backoff * (0.5 + secrets.randbelow(1000) / 1000)
                if time.monotonic() + wait >= deadline:
                    raise HostUnreachable(
                        self.address.name, f"no answer in {timeout_s:g} s; last attempt: {error}"
                    ) from error
                threading.Event().wait(wait)
                backoff = min(backoff * 2, MAX_BACKOFF_S)

    def _asked_once(self, ask: Callable[[AgentSession, float], Answer], deadline: float) -> Answer:
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
            fresh = self._connect_once(deadline)
            with self._lock:
                self._connection = fresh
            return fresh
        finally:
            self._connecting.release()

    def _connect_once(self, deadline: float) -> SshConnection:
        address = self.address
        endpoint = resolve_endpoint(address.ssh, ssh_config=address.ssh_config, known_hosts=address.known_hosts)
        return SshConnection(endpoint, min(deadline, time.monotonic() + CONNECT_TIMEOUT_S))

    def _open_tunnel(self, port: int, deadline: float) -> Stream:
        return self._connected(deadline).open_tunnel("127.0.0.1", port, deadline)


def _key(lease: Lease) -> dict[str, object]:
    return {"owner": lease.owner, "epoch": lease.epoch}


def _job_state(answer: Answer) -> JobState:
    """From what the host said: unknown words are an error of the protocol, not a state."""
    return JobState(
        job_id=answer["job_id"],
        status=JobStatus(answer["status"]),
        exit_code=answer.get("exit_code"),
        signal=answer.get("signal"),
        why=answer.get("why"),
        started_boot_s=answer.get("started_boot_s"),
        duration_s=answer.get("duration_s"),
        log_size=answer["log_size"],
        log_dropped=answer.get("log_dropped", 0),
        heartbeat_age_s=answer.get("heartbeat_age_s"),
        duplicate=answer.get("duplicate", False),
        same_spec=answer.get("same_spec"),
        pids=tuple(answer["pids"]),
        owner=answer.get("owner"),
        epoch=answer.get("epoch"),
    )
