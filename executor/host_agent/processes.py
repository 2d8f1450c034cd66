"""Clock, boot and processes, as the kernel shows them. An identity is (boot id, pid, start), never a pid alone."""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import Dict, List, NamedTuple, Optional, Set

from executor.host_agent.protocol import BOOT_ID_FILE, Doc


def boot_clock() -> float:
    """Seconds since boot, suspend included: no wall-clock step moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    path = os.environ.get(BOOT_ID_FILE, "/proc/sys/kernel/random/boot_id")
    with open(path, encoding="ascii") as stream:
        return stream.read().strip()


class Process(NamedTuple):
    pid: int
    ppid: int
    session: int
    start: int  # clock ticks since boot: with the boot id and the pid, an identity that is never reused
    state: str


def read_process(pid: int) -> Optional[Process]:
    """The process as the kernel shows it now; `None` if there is none. A zombie counts as none: it holds nothing."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            text = stream.read().decode("ascii", "replace")
    except OSError:
        return None
    fields = text[text.rfind(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0])


def all_processes() -> Dict[int, Process]:
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(roots: Set[int], processes: Dict[int, Process]) -> Set[int]:
    """Every process below `roots`, which are themselves left out."""
    children: Dict[int, List[int]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process.pid)
    found: Set[int] = set()
    pending = list(roots)
    while pending:
        for pid in children.get(pending.pop(), ()):
            if pid not in found:
                found.add(pid)
                pending.append(pid)
    return found - roots


def is_same(identity: Optional[Doc], processes: Dict[int, Process]) -> bool:
    """Whether the process of a record still lives, and is not a stranger that was given its pid."""
    if not identity:
        return False
    process = processes.get(identity["pid"])
    return process is not None and process.start == identity["start"]


def send_signal(process: Process, number: int) -> None:
    """Signals exactly this process. The identity is read again after the handle is taken, so a reused pid is spared."""
    if process.pid <= 1 or process.pid == os.getpid():
        return
    try:
        handle = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
    except OSError as error:
        if error.errno == errno.ESRCH:
            return
        handle = None  # kernel before 5.3
    try:
        now = read_process(process.pid)
        if now is None or now.start != process.start:
            return
        if handle is not None and hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        pass
    finally:
        if handle is not None:
            os.close(handle)


def has_cookie(pid: int, cookie: bytes) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            return cookie in stream.read(1 << 20).split(b"\0")
    except OSError:
        return False


def command_line(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as stream:
            words = stream.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "".join(char if char.isprintable() else "?" for char in words)
