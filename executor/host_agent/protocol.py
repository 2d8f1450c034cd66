"""What both ends of a conversation agree on, and the limits of this side."""

from __future__ import annotations

import os
import re
import signal
from typing import Any, Dict

PROTOCOL = 1
JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RESERVED_BYTES = 4096  # one record each of started, exit and cancel, allocated when the job is claimed
LEASE_SLOT_BYTES = 4096
MAX_REQUEST_BYTES = 1 << 20
MAX_READ_BYTES = 16 << 20
MAX_WRITE_BYTES = 256 << 20
IDLE_EXIT_S = 900.0
LOOP_S = 0.2
STALE_HEARTBEAT_S = 3.0
CGROUP_SWEEP_AGE_S = 3600.0
NOT_LOCAL = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "gpfs", "glusterfs", "afs")
COOKIE = "TUNELOOP_JOB"
FAILPOINT = "TUNELOOP_FAILPOINT"  # name of the boundary at which this process kills itself, in tests
FAILPOINT_ONCE = "TUNELOOP_FAILPOINT_ONCE"  # path: fire only for the one who creates it
BOOT_ID_FILE = "TUNELOOP_BOOT_ID_FILE"  # a simulated host has a boot id of its own
LOGIN_ENV = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "OLDPWD", "SHLVL", "_")
PRIVATE_ENV = (*LOGIN_ENV, FAILPOINT, FAILPOINT_ONCE, BOOT_ID_FILE)

Doc = Dict[str, Any]


class Refused(Exception):
    """The request was understood and nothing was done."""

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.facts = code, message, facts


def agent_source() -> bytes:
    """The bytes that run here, as they were sent; empty where they were not sent but imported."""
    return bytes(globals().get("AGENT_SOURCE", b""))


def agent_sha256() -> str:
    return str(globals().get("AGENT_SHA256", ""))


def failpoint(name: str) -> None:
    """Dies here when a test asks for it, as if by kill -9."""
    if os.environ.get(FAILPOINT) != name:
        return
    once = os.environ.get(FAILPOINT_ONCE)
    if once:
        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
