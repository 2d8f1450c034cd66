"""What a host can be asked and what it can answer, as plain data. `executor.remote_host` re-exports all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from executor.clock import Clock
from experiments.errors import HostError
from experiments.trial import Sent


class HostRefused(HostError):
    """The host understood and did nothing.

    `code`: disk_low, path_outside, not_found, too_large, changed, busy, bad_request, root_unfit, root_replaced,
    os_error, agent_error, probe_timeout.
    """

    def __init__(self, host: str, code: str, message: str) -> None:
        self.code = code
        super().__init__(host, message)


@dataclass(frozen=True, kw_only=True)
class HostAddress:
    """How one host (or one container on it) is reached. `ssh` is an alias of the ssh config or a host name."""

    name: str
    ssh: str
    ssh_config: str | None = None
    known_hosts: str | None = None
    container: str | None = None
    workdir: str
    python: str = "python3"
    servers_at: str = "127.0.0.1"  # where our servers on it listen, asked from the host itself
    root_id: str | None = None  # of the job directory, once it is known: another one there is refused


class JobStatus(StrEnum):
    """What is known about a job. The table with its tests is in docs/design/remote-jobs.md."""

    ABSENT = "absent"  # never claimed here; says nothing for ever until it is fenced
    FENCED = "fenced"  # never ran and never will
    CLAIMED_DEAD = "claimed_dead"  # claimed, its starter died before the gate: never ran, fence it
    LAUNCHING = "launching"
    RUNNING = "running"
    UNSUPERVISED = "unsupervised"  # runs, but nobody will record its end
    EXITED = "exited"
    LOST = "lost"
    LOST_REBOOT = "lost_reboot"
    CORRUPT = "corrupt"


LIVE = frozenset({JobStatus.LAUNCHING, JobStatus.RUNNING, JobStatus.UNSUPERVISED})
UNKNOWN_END = frozenset({JobStatus.LOST, JobStatus.LOST_REBOOT, JobStatus.CORRUPT})


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One command. `env` is added to the host's own environment and is stored on the host: no secrets in it."""

    job_id: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str
    ttl_s: float  # the host's own deadline: at its end the whole tree is killed, whoever is away
    allow_daemons: bool = False  # descendants may outlive the main process
    grace_s: float = 3.0  # between TERM and KILL
    log_cap_bytes: int = 2 << 30  # beyond it the middle of the log is given back to the disk
    min_free_bytes: int = 64 << 20  # less free space than this on the host refuses the launch


@dataclass(frozen=True, kw_only=True)
class JobState:
    job_id: str
    status: JobStatus
    exit_code: int | None = None
    signal: int | None = None
    why: str | None = None  # "cancel", "ttl", "main_exit_leftover", "exec_failed: …"; for lost ones, what is known
    started_boot_s: float | None = None  # on the host's boot clock
    duration_s: float | None = None  # on the host's boot clock; so far, for a running job
    log_size: int = 0
    log_dropped: int = 0  # bytes of the log's middle that were given back to the disk
    heartbeat_age_s: float | None = None
    duplicate: bool = False  # answer to a launch: the id was claimed before
    same_spec: bool | None = None  # answer to a launch: the claimed one is what was asked for
    pids: tuple[int, ...] = ()
    owner: str | None = None
    epoch: int | None = None

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def sent(self) -> Sent | None:
        """The answer for the trial; `None` while it is open (live, or not fenced yet)."""
        if self.status is JobStatus.EXITED:
            return Sent.FINISHED
        if self.status is JobStatus.FENCED:
            return Sent.NOT_SENT
        return Sent.UNKNOWN if self.status in UNKNOWN_END else None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to change things on one host. `expires_at` is on our monotonic clock, counted from before asking."""

    owner: str
    epoch: int
    ttl_s: float
    boot_id: str
    expires_at: float

    def remaining_s(self, clock: Clock) -> float:
        return self.expires_at - clock.monotonic()


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    boot_id: str
    python_version: str
    disk_free_bytes: int
    agent_sha256: str
    root_id: str  # made once per work directory: another one means that the directory was replaced
    utc: datetime  # the host's wall clock
    boot_s: float  # the host's boot clock at the same moment
    monotonic_before_s: float  # our monotonic clock around the question
    monotonic_after_s: float
    login_shell_ms: float  # from asking for the agent to its first answer; seconds mean a slow login shell


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A process that listens on a port. `job_id` is ours, or `None`: a stranger (`pid` None: not even visible)."""

    port: int
    pid: int | None
    start: int | None  # clock ticks since boot; (boot id, pid, start) is an identity
    job_id: str | None
    command: str


@dataclass(frozen=True, kw_only=True)
class FileChunk:
    data: bytes
    size: int  # of the file when it was read
    shrank: bool  # the file is shorter than the offset: it was truncated or rotated, what was read is not the whole


@dataclass(frozen=True, kw_only=True)
class DirectoryEntry:
    name: str
    kind: str  # file, directory, link, other
    size: int


@dataclass(frozen=True, kw_only=True)
class FileDigest:
    sha256: str
    size: int


class ProbeName(StrEnum):
    """The read-only commands that the agent knows. Nothing else can be run outside a job."""

    NPU_INFO = "npu_info"
    NPU_MAPPING = "npu_mapping"
    NPU_VERSION = "npu_version"
    UNAME = "uname"
    LOAD = "load"
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    available: bool  # the program exists on the host
    exit_code: int | None
    text: str  # untrusted
