"""Typed, blocking client of the agent on one host. Thread-safe; reconnects by itself.

Every call ends by its deadline as an answer, as `HostUnreachable` (nothing was learned), as `HostRefused` or
`LeaseRefused` (nothing was done). A lost connection repeats the question: each request is safe to ask again, because
the host claims a job id once and answers with what it already has.
"""

from __future__ import annotations

import posixpath
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter

from executor.agent_client import AgentClient, Answer
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
from executor.ssh.session import MAX_DATA_BYTES
from experiments.errors import HostUnreachable
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
WAIT_SLICE_S = 5.0
READ_CHUNK_BYTES = 4 << 20

T = TypeVar("T")

# What a host says is not trusted: every answer is validated into our types before it means anything.
_JOB_STATE: TypeAdapter[JobState] = TypeAdapter(JobState)
_JOB_STATES: TypeAdapter[tuple[JobState, ...]] = TypeAdapter(tuple[JobState, ...])
_LISTENERS: TypeAdapter[tuple[Listener, ...]] = TypeAdapter(tuple[Listener, ...])
_PROBE: TypeAdapter[ProbeResult] = TypeAdapter(ProbeResult)
_DIGEST: TypeAdapter[FileDigest] = TypeAdapter(FileDigest)
_ENTRIES: TypeAdapter[list[tuple[str, str, int]]] = TypeAdapter(list[tuple[str, str, int]])


class RemoteHost:
    """One host. Construction does not connect; the first call does."""

    def __init__(self, address: HostAddress, clock: Clock) -> None:
        if not posixpath.isabs(address.workdir) or posixpath.normpath(address.workdir) != address.workdir:
            message = f"workdir {address.workdir!r} must be a plain absolute path"
            raise HostRefused(address.name, "bad_request", message)
        self.address = address
        self._clock = clock
        self._client = AgentClient(address)

    # connection

    def connect(self, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Connects and starts the agent, so that a wrong key or a missing python3 is known now."""
        self.facts(timeout_s)

    def close(self) -> None:
        """Ends the connection. Jobs on the host go on. A later call connects again."""
        self._client.close()

    def facts(self, timeout_s: float = CALL_TIMEOUT_S) -> HostFacts:
        before = self._clock.monotonic()

        def read(answer: Answer) -> HostFacts:
            return HostFacts(
                boot_id=str(answer["boot_id"]),
                python_version=str(answer["python_version"]),
                disk_free_bytes=int(answer["disk_free_bytes"]),
                agent_sha256=str(answer["agent_sha256"]),
                root_id=str(answer["root_id"]),
                utc=datetime.fromtimestamp(answer["wall_s"], UTC),
                boot_s=float(answer["boot_s"]),
                monotonic_before_s=before,
                monotonic_after_s=self._clock.monotonic(),
                login_shell_ms=answer["session_ms"],
            )

        return self._ask({"op": "facts"}, timeout_s, read)

    # lease

    def acquire(self, owner: str, ttl_s: float, timeout_s: float = CALL_TIMEOUT_S) -> Lease:
        """Takes the host. The same owner takes it over from itself under a new epoch, which makes the old one stale."""
        before = self._clock.monotonic()
        request = {"op": "acquire", "owner": owner, "ttl_s": ttl_s, "nonce": secrets.token_hex(16)}

        def read(answer: Answer) -> Lease:
            epoch, boot_id = int(answer["epoch"]), str(answer["boot_id"])
            return Lease(owner=owner, epoch=epoch, ttl_s=ttl_s, boot_id=boot_id, expires_at=before + ttl_s)

        return self._ask(request, timeout_s, read)

    def renew(self, lease: Lease, timeout_s: float = CALL_TIMEOUT_S) -> Lease:
        before = self._clock.monotonic()
        self._ask({"op": "renew", "lease": _key(lease), "ttl_s": lease.ttl_s}, timeout_s, _nothing)
        return replace(lease, expires_at=before + lease.ttl_s)

    def release(self, lease: Lease, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._ask({"op": "release", "lease": _key(lease)}, timeout_s, _nothing)

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
        return self._ask(request, timeout_s, _JOB_STATE.validate_python)

    def poll(self, job_id: str, wait_s: float = 0.0, timeout_s: float = CALL_TIMEOUT_S) -> JobState:
        """What is known now; with `wait_s`, the host answers when the job has ended or that time has passed."""
        request = {"op": "poll", "job_id": job_id, "wait_s": wait_s}
        return self._ask(request, timeout_s + wait_s, _JOB_STATE.validate_python)

    def fence(self, job_id: str, lease: Lease, timeout_s: float = CALL_TIMEOUT_S) -> JobState:
        """Makes sure that a job that has not run never will. A job that runs or ran is left as it is and told."""
        request = {"op": "fence", "job_id": job_id, "lease": _key(lease)}
        return self._ask(request, timeout_s, _JOB_STATE.validate_python)

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
            state = self._ask(request, timeout_s + wait, _JOB_STATE.validate_python)
            if not state.is_live or time.monotonic() >= until:
                return state

    def jobs(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[JobState, ...]:
        return self._ask({"op": "jobs"}, timeout_s, lambda said: _JOB_STATES.validate_python(said["jobs"]))

    def read_log(self, job_id: str, offset: int = 0, cap: int = 1 << 20) -> FileChunk:
        return self.read_file(self.log_path(job_id), offset, cap)

    def log_path(self, job_id: str) -> str:
        return posixpath.join(self.address.workdir, ".tuneloop", "jobs", job_id, "out.log")

    # the host around the jobs

    def listeners(self, ports: Iterable[int], timeout_s: float = CALL_TIMEOUT_S) -> tuple[Listener, ...]:
        request = {"op": "listeners", "ports": list(ports)}
        return self._ask(request, timeout_s, lambda said: _LISTENERS.validate_python(said["listeners"]))

    def run_probe(self, name: ProbeName, timeout_s: float = CALL_TIMEOUT_S) -> ProbeResult:
        request = {"op": "probe", "name": name.value, "limit_s": timeout_s * 0.8}
        return self._ask(request, timeout_s, _PROBE.validate_python)

    def http(self, port: int, timeout_s: float) -> httpx.Client:
        """A client whose every request goes to our server at `port` of the host and ends within `timeout_s` in all."""
        return tunnel_client(lambda deadline: self._client.open_tunnel(port, deadline), port, timeout_s)

    # files below the work directory

    def put_file(self, path: str, data: bytes, mode: int = 0o644, timeout_s: float = CALL_TIMEOUT_S) -> FileDigest:
        """Whole and durable, or not at all; the same again is harmless."""
        request = {"op": "put", "path": self._inside(path), "mode": mode}
        return self._ask(request, timeout_s, _DIGEST.validate_python, data)

    def read_file(self, path: str, offset: int = 0, cap: int = 1 << 20, timeout_s: float = CALL_TIMEOUT_S) -> FileChunk:
        """At most `cap` bytes from `offset` on. `HostRefused` with code not_found if there is no such file."""
        cap = min(cap, MAX_DATA_BYTES)
        request = {"op": "read", "path": self._inside(path), "offset": offset, "cap": cap}

        def read(answer: Answer) -> FileChunk:
            size = int(answer["size"])
            return FileChunk(data=answer["data"], size=size, shrank=size < offset)

        return self._ask(request, timeout_s, read)

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
        request = {"op": "digest", "path": self._inside(path)}
        return self._ask(request, timeout_s, lambda said: _DIGEST.validate_python(said) if said["found"] else None)

    def make_directory(self, path: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._ask({"op": "make_directory", "path": self._inside(path)}, timeout_s, _nothing)

    def list_directory(self, path: str, timeout_s: float = CALL_TIMEOUT_S) -> tuple[DirectoryEntry, ...]:
        def read(answer: Answer) -> tuple[DirectoryEntry, ...]:
            found = _ENTRIES.validate_python(answer["entries"])
            return tuple(DirectoryEntry(name=name, kind=kind, size=size) for name, kind, size in found)

        return self._ask({"op": "list_directory", "path": self._inside(path)}, timeout_s, read)

    def _inside(self, path: str) -> str:
        workdir = self.address.workdir
        if "\0" in path or posixpath.normpath(path) != path or not f"{path}/".startswith(f"{workdir}/"):
            raise HostRefused(self.address.name, "path_outside", f"{path!r} is not a plain path below {workdir}")
        return path

    def _ask(
        self,
        request: Mapping[str, Any],
        timeout_s: float,
        read: Callable[[Answer], T],
        payload: bytes = b"",
    ) -> T:
        """One question; `read` turns the answer into our types, and what it cannot read was not an answer."""
        answer = self._client.call(request, timeout_s, payload)
        try:
            return read(answer)
        except (KeyError, ValueError, TypeError, OverflowError, OSError) as error:
            first_line = str(error).splitlines()[0] if str(error) else ""
            raise HostUnreachable(
                self.address.name,
                f"this service does not understand the answer to {request['op']}: {type(error).__name__}: {first_line}",
            ) from error


def _key(lease: Lease) -> dict[str, object]:
    return {"owner": lease.owner, "epoch": lease.epoch}


def _nothing(_: Answer) -> None:
    return None
