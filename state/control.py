"""The operator's file on disk: read without trust, written whole or not at all.

Whatever is not clearly a complete order, in a file that only the operator or root could have written, means pause.
Reading never raises and never waits: a pipe, a link, a directory or a gigabyte is a reason to pause like any other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from experiments.control import ControlState, parse_control, paused
from experiments.errors import InputError
from state.errors import StoreUnusable

MAX_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class ControlReading:
    """What holds now. `problem` says why the file was not followed; `sha256` is of the bytes that were acted on."""

    state: ControlState
    problem: str | None
    sha256: str | None


class _Refused(Exception):
    """The file may not be followed."""


class ControlFile:
    """`state.yaml`. The service only reads it; the CLI and the dashboard write it through here."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._folder, self._name = os.path.split(os.path.abspath(self.path))
        self._last: ControlReading | None = None

    def read(self) -> ControlReading:
        try:
            content = self._content()
        except _Refused as refused:
            return _pause(f"{self._name} {refused}")
        except OSError as error:
            return _pause(f"{self._name} cannot be read: {error.strerror or error}")
        return self._understand(content, hashlib.sha256(content).hexdigest())

    def _understand(self, content: bytes, digest: str) -> ControlReading:
        """The same bytes mean the same: a running trial asks twice a second."""
        last = self._last
        if last is not None and last.sha256 == digest:
            return last
        try:
            reading = ControlReading(state=parse_control(content, self._name), problem=None, sha256=digest)
        except InputError as error:
            reading = _pause(str(error), digest)
        self._last = reading
        return reading

    def write(self, state: ControlState) -> None:
        """Replace the file: readers see the old one or the new one, also after a power cut.

        Raises StoreUnusable if it cannot be written; the old file is as it was.
        """
        with self._locked():
            self._replace(state)

    def update(self, change: Callable[[ControlState], ControlState]) -> ControlState:
        """Change what the file says, one writer at a time. Raises InputError if it cannot be followed as it is."""
        with self._locked():
            reading = self.read()
            if reading.problem is not None:
                raise InputError(self.path, 0, 0, f"{reading.problem}; repair it, or write a new one")
            return self._replace(change(reading.state))

    def _replace(self, state: ControlState) -> ControlState:
        text = format_control(state)
        written = parse_control(text, self._name)  # what could not be read back is never written
        write_atomically(os.path.join(self._folder, self._name), text)
        return written

    def _content(self) -> bytes:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_folder(os.fstat(folder))
            # O_NONBLOCK: opening a pipe must not wait for its writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(self._name, flags, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            _check_file(os.fstat(file))
            return _read_all(file)
        finally:
            os.close(file)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._lock():
                yield
        except OSError as error:
            raise StoreUnusable(f"{self.path} cannot be written: {error.strerror or error}") from error

    @contextmanager
    def _lock(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(os.path.join(self._folder, f".{self._name}.lock"), flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def write_status(path: str | os.PathLike[str], status: Mapping[str, object]) -> None:
    """The service's short reply to the operator: flat YAML, one `key: value` line each, replaced as a whole."""
    lines = [f"{key}: {_quoted(value)}\n" for key, value in status.items()]
    write_atomically(os.fspath(path), "".join(lines))


def write_atomically(path: str, text: str) -> None:
    """Replace `path`: the whole new text is on disk before its name is."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        _write_new(temporary, text.encode())
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def format_control(state: ControlState) -> str:
    """The text of the file, with the comments that explain it to whoever opens it next. `by` comes last."""
    until = state.authorized_until.isoformat() if state.authorized_until is not None else None
    lines = [
        f"mode: {state.mode.value}  # run | pause (start nothing) | drain (pause, then exit) | stop (cancel safely)",
        f"authorized_until: {until}  # nothing starts that cannot end before it" if until else "",
        f"allow: {json.dumps([str(cost) for cost in state.allow])}  # costs that need no further word: hot, restart",
        f"approve: {json.dumps(list(state.approve))}  # single cards beyond that, each once" if state.approve else "",
        f"only: {{card: {_quoted(_one_line(state.only.card))}}}  # run just this, then pause" if state.only else "",
        f"reason: {_quoted(_one_line(state.reason))}",
        f"by: {_quoted(_one_line(state.by))}",
    ]
    return "".join(f"{line}\n" for line in lines if line)


def _quoted(value: object) -> str:
    """JSON is YAML, but for the pairs of escapes that stand for one character, and for invisible characters."""
    return _one_line(json.dumps(value, ensure_ascii=False))


def _one_line(text: str) -> str:
    return "".join(ch if ch.isprintable() else " " for ch in text)


def _pause(problem: str, digest: str | None = None) -> ControlReading:
    return ControlReading(state=paused(problem), problem=problem, sha256=digest)


def _check_folder(found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise _Refused(f"is not followed: its folder belongs to user {found.st_uid}, not to the service or root")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise _Refused("is not followed: others may write its folder; run chmod go-w on the folder")


def _check_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _Refused("is not a regular file")
    if found.st_uid not in (os.geteuid(), 0):
        raise _Refused(f"is not followed: it belongs to user {found.st_uid}, not to the service or root")
    if found.st_mode & 0o022:
        raise _Refused("is not followed: others may write it; run chmod go-w on it")
    if found.st_size > MAX_BYTES:
        raise _Refused(f"has {found.st_size:,} bytes; a state file has at most {MAX_BYTES:,}")


def _read_all(file: int) -> bytes:
    parts, size = [], 0
    while part := os.read(file, MAX_BYTES + 1 - size):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise _Refused(f"grew beyond {MAX_BYTES:,} bytes while it was read")
    return b"".join(parts)


def _write_new(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        os.fchmod(file, 0o644)  # whatever the umask: the service may run as another user than the operator
        os.fsync(file)
    finally:
        os.close(file)


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
