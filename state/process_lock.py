"""One service process per workspace on this machine. The kernel drops the lock with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import Self

from state.errors import DriverRefused


class ProcessLock:
    """A context in which no other process of this machine holds the same file. Never waits."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._file: int | None = None

    def __enter__(self) -> Self:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            folder = os.path.dirname(os.path.abspath(self._path))
            raise DriverRefused(
                f"{folder} is driven by process {holder} on this machine; see tuneloop status, or end it first"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: removing it would let two processes lock two files of one name.
        if self._file is not None:
            os.close(self._file)
            self._file = None
