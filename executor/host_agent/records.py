"""Records on disk: whole and durable, or not there; in space that was reserved where a full disk must not matter."""

from __future__ import annotations

import json
import os
from typing import Optional

from executor.host_agent.protocol import RESERVED_BYTES, Doc, failpoint


def sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_durably(path: str, data: bytes, mode: int = 0o600) -> None:
    """Whole and on the disk, or not there at all."""
    temporary = "%s.%s.tmp" % (path, os.urandom(6).hex())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        try:
            write_all(fd, data)
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        failpoint("write_before_rename")
        os.rename(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    sync_directory(os.path.dirname(path))


def reserve(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(fd, 0, RESERVED_BYTES)
    finally:
        os.close(fd)


def encode(document: Doc) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def publish(directory: str, name: str, document: Doc) -> None:
    """Writes a record into the space that was reserved for it, so that a full disk cannot make it empty."""
    data = encode(document)
    if len(data) > RESERVED_BYTES:
        raise ValueError("record %s has %d bytes, %d are reserved" % (name, len(data), RESERVED_BYTES))
    prepared = os.path.join(directory, name + ".pre")
    fd = os.open(prepared, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        write_all(fd, data)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)
    failpoint("publish_%s_before_rename" % name)
    os.rename(prepared, os.path.join(directory, name + ".json"))
    sync_directory(directory)


def read_record(directory: str, name: str) -> Optional[Doc]:
    """The record, or `None` if it was never published. `ValueError` if what is there is not a record."""
    try:
        with open(os.path.join(directory, name + ".json"), "rb") as stream:
            document = json.loads(stream.read(RESERVED_BYTES * 64).decode())
    except FileNotFoundError:
        return None
    if not isinstance(document, dict):
        raise ValueError("%s.json is not an object" % name)
    return document


def file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def remove_flat_directory(path: str) -> None:
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass
