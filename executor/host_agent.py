"""Runs on the host: answers requests about detached jobs and, forked from that, supervises one job each.

Standard library only, Python 3.8 or newer, one file: it is sent over the SSH channel, checked against its hash and run
from memory. It decides whether a command may start (once per job id, behind a lease and a gate) and what is known about
its end. It never guesses: an end that was not recorded stays unknown. Protocol: docs/design/remote-jobs.md.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import select
import signal
import stat
import sys
import time
import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Set

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
PROBES: Dict[str, List[str]] = {
    "npu_info": ["npu-smi", "info"],
    "npu_mapping": ["npu-smi", "info", "-m"],
    "npu_version": ["npu-smi", "-v"],
    "uname": ["uname", "-a"],
    "load": ["cat", "/proc/loadavg"],
    "memory": ["cat", "/proc/meminfo"],
}

Doc = Dict[str, Any]


class Refused(Exception):
    """The request was understood and nothing was done."""

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.facts = code, message, facts


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


# --- clock, boot, processes ---------------------------------------------------------------------------------------


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


# --- records on disk ----------------------------------------------------------------------------------------------


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


# --- cgroup, where the host lets us -------------------------------------------------------------------------------


def cgroup_parents() -> Iterator[str]:
    """Directories under which this process may perhaps make a group: cgroup v2 first, then the v1 freezer."""
    own: Dict[str, str] = {}
    with open("/proc/self/cgroup", encoding="utf-8") as stream:
        for line in stream:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            own[controllers] = path
    with open("/proc/self/mountinfo", encoding="utf-8") as stream:
        mounts = [line.split() for line in stream]
    for kind, controller in (("cgroup2", ""), ("cgroup", "freezer")):
        for fields in mounts:
            tail = fields[fields.index("-") :]
            if tail[1] == kind and (kind == "cgroup2" or controller in tail[3].split(",")) and controller in own:
                yield fields[4] + own[controller].rstrip("/")


def make_cgroup(name: str) -> Optional[str]:
    try:
        for parent in cgroup_parents():
            path = os.path.join(parent, name)
            try:
                os.mkdir(path)
                sweep_cgroups(parent)
                return path
            except OSError:
                continue
    except (OSError, ValueError):
        pass
    return None


def sweep_cgroups(parent: str) -> None:
    """Removes empty groups of jobs whose supervisor died. One that was made just now may be about to be joined."""
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if name.startswith("tuneloop-") and time.time() - os.stat(path).st_mtime > CGROUP_SWEEP_AGE_S:
            remove_cgroup(path)


def join_cgroup(path: Optional[str], pid: int) -> Optional[str]:
    """The group that `pid` is now in: `path`, or `None` where the kernel refused."""
    if path is None:
        return None
    try:
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as stream:
            stream.write(str(pid))
        return path
    except OSError:
        remove_cgroup(path)
        return None


def cgroup_members(path: Optional[str]) -> Set[int]:
    if not path:
        return set()
    try:
        with open(os.path.join(path, "cgroup.procs"), encoding="ascii") as stream:
            return {int(line) for line in stream}
    except (OSError, ValueError):
        return set()


def remove_cgroup(path: Optional[str]) -> None:
    try:
        if path:
            os.rmdir(path)
    except OSError:
        pass


# --- one job ------------------------------------------------------------------------------------------------------


class Job:
    """The directory of one job: what was asked, what is known."""

    def __init__(self, jobs: str, job_id: str) -> None:
        self.id, self.directory = job_id, os.path.join(jobs, job_id)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def exists(self) -> bool:
        return os.path.isdir(self.directory)

    def is_held(self) -> bool:
        """Whether a supervisor lives: the kernel knows, a pid file does not. Shared, so that askers do not collide."""
        try:
            fd = os.open(self.path("gate"), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return True
            raise
        finally:
            os.close(fd)

    def heartbeat_age(self) -> Optional[float]:
        try:
            with open(self.path("hb"), encoding="ascii") as stream:
                words = stream.read(64).split()
            return max(0.0, boot_clock() - float(words[1]))
        except (OSError, ValueError, IndexError):
            return None

    def spec(self) -> Doc:
        return read_record(self.directory, "spec") or {}

    def cookie(self, spec: Doc) -> bytes:
        return ("%s=%s:%s" % (COOKIE, self.id, spec.get("nonce"))).encode()

    def survivors(self, started: Doc) -> Dict[int, Process]:
        """Live processes of this job when its supervisor may be dead.

        Proof of membership, strongest first: the cgroup; the tree and session of the recorded child while it lives; the
        cookie in the environment.
        """
        if started.get("boot") != boot_id():
            return {}
        processes = all_processes()
        supervisor = started["supervisor"]
        roots = {supervisor["pid"]} if is_same(supervisor, processes) else set()
        members = descendants(roots, processes)
        child = started["child"]
        if is_same(child, processes):
            members |= {child["pid"]} | descendants({child["pid"]}, processes)
            members |= {p.pid for p in processes.values() if p.session == child["pid"]}
        cookie = self.cookie(self.spec())
        members |= cgroup_members(started.get("cgroup"))
        members |= {pid for pid, p in processes.items() if p.start >= child["start"] and has_cookie(pid, cookie)}
        members |= descendants(set(members), processes)
        members -= {os.getpid()} | roots
        return {pid: processes[pid] for pid in members if pid in processes}

    def state(self) -> Doc:
        """What is known now. exit, gate, exit again: a job may end between two looks."""
        document: Doc = {"job_id": self.id, "status": "absent", "log_size": 0, "pids": []}
        if not self.exists():
            return document
        try:
            document.update(self._state())
            spec = self.spec()
        except (ValueError, KeyError, TypeError) as error:
            document.update(status="corrupt", why="%s: %s" % (type(error).__name__, error))
            spec = {}
        document["log_size"] = file_size(self.path("out.log"))
        document["heartbeat_age_s"] = self.heartbeat_age()
        document["spec_digest"], document["owner"] = spec.get("digest"), spec.get("owner")
        document["epoch"] = spec.get("epoch")
        document["cancel_requested"] = os.path.exists(self.path("cancel.json"))
        return document

    def _state(self) -> Doc:
        ended = read_record(self.directory, "exit")
        held = ended is None and self.is_held()
        ended = ended or read_record(self.directory, "exit")
        started = read_record(self.directory, "started")
        if ended is not None:
            return self._ended(ended, started)
        if held:
            return self._alive(started)
        if started is None:
            fenced = read_record(self.directory, "fenced")
            return {"status": "fenced", "why": fenced.get("why")} if fenced else {"status": "claimed_dead"}
        if started.get("boot") != boot_id():
            return {"status": "lost_reboot", "started_boot_s": started["t0"], "why": "the host was rebooted"}
        members = self.survivors(started)
        late = read_record(self.directory, "exit")
        if late is not None:
            return self._ended(late, started)
        status = "unsupervised" if members else "lost"
        why = "its supervisor is gone" if members else "its supervisor and its processes are gone without a record"
        return {"status": status, "why": why, "started_boot_s": started["t0"], "pids": sorted(members)}

    def _alive(self, started: Optional[Doc]) -> Doc:
        if started is None:
            return {"status": "launching"}
        duration = boot_clock() - started["t0"]
        pids = [started["child"]["pid"]]
        return {"status": "running", "started_boot_s": started["t0"], "duration_s": duration, "pids": pids}

    def _ended(self, ended: Doc, started: Optional[Doc]) -> Doc:
        if ended["nonce"] != self.spec().get("nonce"):
            raise ValueError("exit.json belongs to another run")
        return {
            "status": "exited",
            "exit_code": ended["rc"],
            "signal": ended["sig"],
            "why": ended["why"],
            "started_boot_s": started["t0"] if started else None,
            "duration_s": ended["duration"],
            "log_dropped": ended.get("log_dropped", 0),
        }

    def fence(self, why: str) -> None:
        """Makes "not sent" true for ever. Only for a job that provably never ran; the caller holds the mutex."""
        record = {"why": why, "boot": boot_id(), "t": boot_clock()}
        if self.exists():
            write_durably(self.path("fenced.json"), encode(record))
            return
        parent = os.path.dirname(self.directory)
        fresh = os.path.join(parent, ".new-%s-%s" % (self.id, os.urandom(4).hex()))
        os.mkdir(fresh, 0o700)
        os.close(os.open(os.path.join(fresh, "gate"), os.O_WRONLY | os.O_CREAT, 0o600))
        write_durably(os.path.join(fresh, "fenced.json"), encode(record))
        os.rename(fresh, self.directory)
        sync_directory(parent)


# --- the supervisor of one job ------------------------------------------------------------------------------------


class Supervisor:
    """Parent of the command for its whole life. Holds the gate lock, kills the tree, writes the exit record."""

    def __init__(self, job: Job, spec: Doc, gate_fd: int, told_fd: int) -> None:
        self.job, self.spec, self.gate_fd, self.told_fd = job, spec, gate_fd, told_fd
        self.child = 0
        self.cgroup = None  # type: Optional[str]
        self.status = None  # type: Optional[int]
        self.reason = None  # type: Optional[str]
        self.exec_error = None  # type: Optional[str]
        self.t0 = self.t1 = 0.0
        self.termed = None  # type: Optional[float]
        self.beats = 0
        self.log_dropped = 0
        self.hb_fd = self.wake_fd = self.exec_fd = -1

    def run(self) -> None:
        self._detach()
        failpoint("supervisor_born")
        if os.path.exists(self.job.path("fenced.json")) or os.path.exists(self.job.path("started.json")):
            return
        self._adopt_orphans()
        open_gate = self._fork_child()
        failpoint("supervisor_before_started")
        self._record_start()
        failpoint("supervisor_before_gate")
        self._tell(open_gate)
        failpoint("supervisor_after_gate")
        self._tell(self.told_fd)
        self._watch()
        self._record_end()
        remove_cgroup(self.cgroup)

    def _tell(self, fd: int) -> None:
        """Nobody need be there to hear it: the child may be dead, the agent gone."""
        try:
            os.write(fd, b".")
        except BrokenPipeError:
            pass
        os.close(fd)

    def _detach(self) -> None:
        keep = {self.gate_fd, self.told_fd}
        null = os.open("/dev/null", os.O_RDWR)
        errors = os.open(self.job.path("super.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(errors, 2)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in keep:
                try:
                    os.close(int(name))
                except OSError:
                    pass
        os.chdir("/")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self.wake_fd = read_end
        self.hb_fd = os.open(self.job.path("hb"), os.O_WRONLY)

    def _adopt_orphans(self) -> None:
        """Orphans of the command become our children, whatever session or group they moved to."""
        self.cgroup = make_cgroup("tuneloop-%s-%s" % (self.job.id, self.spec["nonce"][:8]))
        try:
            import ctypes
        except ImportError:  # python3-minimal
            self._say("no ctypes in this Python: orphans are found by cgroup and cookie only")
            return
        if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) != 0:  # PR_SET_CHILD_SUBREAPER
            self._say("no sub-reaper on this kernel: errno %d" % ctypes.get_errno())

    def _fork_child(self) -> int:
        """Forks the command behind its gate; returns the end of the pipe that opens it."""
        gate_read, gate_write = os.pipe()
        self.exec_fd, exec_write = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                os.close(gate_write)
                os.close(self.gate_fd)
                self._exec(gate_read, exec_write)
            finally:
                os._exit(125)
        os.close(gate_read)
        os.close(exec_write)
        return gate_write

    def _exec(self, gate_read: int, exec_write: int) -> NoReturn:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in range(1, signal.NSIG):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
        if os.read(gate_read, 1) != b".":
            os._exit(125)
        try:
            os.umask(0o022)
            out = os.open(self.job.path("out.log"), os.O_WRONLY | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.chdir(self.spec["cwd"])
            os.execvpe(self.spec["argv"][0], self.spec["argv"], self._environment())
        except BaseException as error:
            os.write(exec_write, ("%s: %s" % (type(error).__name__, error)).encode()[:1000])
            os._exit(126 if isinstance(error, PermissionError) else 127)

    def _environment(self) -> Dict[str, str]:
        """The host's environment (a container image sets what its runtime needs), then the job's own."""
        kept = {k: v for k, v in os.environ.items() if k not in PRIVATE_ENV}
        kept.update(self.spec["env"])
        kept[COOKIE] = "%s:%s" % (self.job.id, self.spec["nonce"])
        kept["SPT_NOENV"] = "1"  # keeps setproctitle from overwriting the cookie in /proc/<pid>/environ
        return kept

    def _identity(self, pid: int) -> Doc:
        process = read_process(pid)
        if process is None:
            raise RuntimeError("process %d ended before its gate opened" % pid)
        return {"pid": pid, "start": process.start}

    def _record_start(self) -> None:
        self.cgroup = join_cgroup(self.cgroup, self.child)
        self.t0 = boot_clock()
        publish(
            self.job.directory,
            "started",
            {
                "boot": boot_id(),
                "child": self._identity(self.child),
                "supervisor": self._identity(os.getpid()),
                "cgroup": self.cgroup,
                "t0": self.t0,
                "wall": time.time(),  # for people only
                "pid_namespace": os.readlink("/proc/self/ns/pid"),
            },
        )

    def _watch(self) -> None:
        next_beat = 0.0
        while True:
            try:
                now = boot_clock()
                if now >= next_beat:
                    self._beat(now)
                    next_beat = now + 1.0
                if self._is_over(now):
                    return
                select.select([self.wake_fd], [], [], LOOP_S)
                self._drain_wakeups()
            except Exception as error:  # the loop must outlive everything: without it the end cannot be recorded
                self._say("%s: %s" % (type(error).__name__, error))
                select.select([], [], [], LOOP_S)

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self.wake_fd, 512):
                pass
        except BlockingIOError:
            pass

    def _beat(self, now: float) -> None:
        self.beats += 1
        os.pwrite(self.hb_fd, ("%d %.3f" % (self.beats, now)).ljust(63).encode() + b"\n", 0)
        self._cap_log()

    def _cap_log(self) -> None:
        """Gives the middle of an endless log back to the disk. Offsets stay true; the hole reads as NUL bytes."""
        cap = self.spec["log_cap"]
        size = file_size(self.job.path("out.log"))
        if size - self.log_dropped <= cap:
            return
        import ctypes

        keep = cap // 4
        start, length = keep, size - 2 * keep
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(self.job.path("out.log"), os.O_WRONLY)
        try:
            offsets = (ctypes.c_int64(start), ctypes.c_int64(length))
            if libc.fallocate(fd, 3, *offsets) == 0:  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
                self.log_dropped = length
        finally:
            os.close(fd)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status, self.t1 = status, boot_clock()

    def _members(self) -> Dict[int, Process]:
        processes = all_processes()
        members = descendants({os.getpid()}, processes) | cgroup_members(self.cgroup)
        return {pid: processes[pid] for pid in members if pid in processes and pid != os.getpid()}

    def _is_over(self, now: float) -> bool:
        self._reap()
        if self.reason is None:
            self.reason = self._reason_to_stop(now)
        if self.status is None and self.reason is None:
            return False
        members = self._members()
        if self.status is not None and not members:
            return True
        if self.reason is None and not self.spec["allow_daemons"]:
            self.reason = "main_exit_leftover"
        if self.reason is not None:
            self._kill(members, now)
        return False

    def _reason_to_stop(self, now: float) -> Optional[str]:
        if os.path.exists(self.job.path("cancel.json")):
            return "cancel"
        if now - self.t0 > self.spec["ttl"]:
            return "ttl"
        return None

    def _kill(self, members: Dict[int, Process], now: float) -> None:
        """TERM once, then KILL again and again: processes may be born between two looks."""
        if self.termed is None:
            self.termed = now
            number = signal.SIGTERM
        elif now - self.termed < self.spec["grace"]:
            return
        else:
            number = signal.SIGKILL
        for process in members.values():
            send_signal(process, number)

    def _record_end(self) -> None:
        status = self.status if self.status is not None else 0
        exec_error = os.read(self.exec_fd, 400).decode("utf-8", "replace")
        signalled = os.WIFSIGNALED(status)
        record: Doc = {
            "rc": None if signalled else os.WEXITSTATUS(status),
            "sig": os.WTERMSIG(status) if signalled else None,
            "why": "exec_failed: " + exec_error if exec_error else self.reason,
            "t1": self.t1,
            "duration": self.t1 - self.t0,
            "nonce": self.spec["nonce"],
            "log_dropped": self.log_dropped,
        }
        failpoint("supervisor_exit_seen")
        while os.path.isdir(self.job.directory):
            try:
                fd = os.open(self.job.path("out.log"), os.O_WRONLY)
                os.fsync(fd)
                os.close(fd)
                record["log_size"] = file_size(self.job.path("out.log"))
                publish(self.job.directory, "exit", record)
                break
            except OSError as error:
                self._say("exit record: %s" % error)
                select.select([], [], [], 1.0)
        failpoint("supervisor_exit_written")

    def _say(self, text: str) -> None:
        try:
            os.write(2, ("%.3f %s\n" % (boot_clock(), text)).encode())
        except OSError:
            pass


# --- the agent: one host's directory of jobs ----------------------------------------------------------------------


class Host:
    """Answers requests. Every change happens under one lock, and checks the lease inside it."""

    def __init__(self, workdir: str) -> None:
        self.workdir = os.path.realpath(workdir)
        self.root = os.path.join(self.workdir, ".tuneloop")
        self.jobs = os.path.join(self.root, "jobs")
        self.lease_path = os.path.join(self.root, "lease")
        self.tunnel = None  # type: Any

    def prepare(self) -> None:
        os.makedirs(self.workdir, mode=0o755, exist_ok=True)
        self._refuse_remote_file_system()
        for path in (self.root, self.jobs):
            if not os.path.isdir(path):
                try:
                    os.mkdir(path, 0o700)
                except FileExistsError:
                    pass
        status = os.lstat(self.root)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise Refused("root_unfit", "%s must be a directory of mode 0700 that belongs to this user" % self.root)
        self._make_once(os.path.join(self.root, "id"), os.urandom(16).hex().encode())
        self._make_once(self.lease_path, b"\0" * (2 * LEASE_SLOT_BYTES))
        source = globals().get("AGENT_SOURCE")
        if source:
            try:  # a record of what ran here; what runs is always what was sent, so a full disk does not matter
                self._make_once(os.path.join(self.root, "agent-%s.py" % agent_sha256()), source)
            except OSError:
                pass

    def _make_once(self, path: str, data: bytes) -> None:
        if os.path.exists(path):
            return
        temporary = "%s.%s.tmp" % (path, os.urandom(6).hex())
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                write_all(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            try:
                os.unlink(temporary)
            except OSError:
                pass

    def _refuse_remote_file_system(self) -> None:
        best, kind = "", ""
        with open("/proc/self/mountinfo", encoding="utf-8") as stream:
            for line in stream:
                fields = line.split()
                point = fields[4].rstrip("/") + "/"
                if (self.workdir + "/").startswith(point) and len(point) >= len(best):
                    best, kind = point, fields[fields.index("-") + 1]
        if kind.startswith(NOT_LOCAL):
            message = "%s is on %s: locks and renames are not to be trusted there; choose a local workdir"
            raise Refused("root_unfit", message % (self.workdir, kind))

    # requests about the host

    def facts(self, request: Doc) -> Doc:
        space = os.statvfs(self.root)
        return {
            "boot_id": boot_id(),
            "python_version": sys.version.split()[0],
            "disk_free_bytes": space.f_bavail * space.f_frsize,
            "agent_sha256": agent_sha256(),
            "wall_s": time.time(),
            "boot_s": boot_clock(),
            "pid": os.getpid(),
        }

    def root_id(self) -> str:
        """Made with the root: every answer carries it, because the empty job list of a new root proves nothing."""
        with open(os.path.join(self.root, "id"), encoding="ascii") as stream:
            return stream.read().strip()

    def probe(self, request: Doc) -> Doc:
        import subprocess

        argv = PROBES.get(str(request.get("name")))
        if argv is None:
            raise Refused("bad_request", "no probe %r; known: %s" % (request.get("name"), ", ".join(sorted(PROBES))))
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=float(request["limit_s"])
            )
        except FileNotFoundError:
            return {"available": False, "exit_code": None, "text": ""}
        except subprocess.TimeoutExpired:
            message = "%s did not end in %s s" % (" ".join(argv), request["limit_s"])
            raise Refused("probe_timeout", message) from None
        text = (done.stdout + done.stderr)[: 256 << 10].decode("utf-8", "replace")
        return {"available": True, "exit_code": done.returncode, "text": text}

    def listeners(self, request: Doc) -> Doc:
        """Who listens on the asked ports of this network namespace, and whose job tree that process belongs to."""
        inodes = listening_inodes({int(port) for port in request["ports"]})
        processes = all_processes()
        owners = socket_owners(set(inodes), processes)
        members = self._members_by_job(processes) if inodes else {}
        found = []
        for inode, port in sorted(inodes.items(), key=lambda item: item[1]):
            for pid in sorted(owners.get(inode, ())) or [0]:
                process = processes.get(pid)
                found.append(
                    {
                        "port": port,
                        "pid": pid or None,
                        "start": process.start if process else None,
                        "job_id": members.get(pid),
                        "command": command_line(pid) if pid else "",
                    }
                )
        return {"listeners": found}

    def _members_by_job(self, processes: Dict[int, Process]) -> Dict[int, str]:
        members: Dict[int, str] = {}
        for job in self._all_jobs():
            started = self._started_here(job)
            if started is not None and not os.path.exists(job.path("exit.json")):
                members.update((pid, job.id) for pid in job.survivors(started))
        return members

    def _started_here(self, job: Job) -> Optional[Doc]:
        try:
            started = read_record(job.directory, "started")
        except ValueError:
            return None
        return started if started is not None and started.get("boot") == boot_id() else None

    def connect(self, request: Doc) -> Doc:
        """Opens a connection to a port of this network namespace; `main` then copies bytes and ends with it."""
        import socket

        try:
            self.tunnel = socket.create_connection(("127.0.0.1", int(request["port"])), timeout=5)
        except OSError as error:
            raise Refused("connection_refused", str(error)) from error
        self.tunnel.settimeout(None)
        return {}

    # the mutex and the lease

    def mutex(self, request: Doc) -> "Mutex":
        return Mutex(os.path.join(self.root, "mutex"), float(request.get("limit_s", 10.0)))

    def acquire(self, request: Doc) -> Doc:
        owner, nonce, ttl = str(request["owner"]), str(request["nonce"]), float(request["ttl_s"])
        with self.mutex(request):
            current, now = self._read_lease(), boot_clock()
            live = current is not None and current["boot"] == boot_id() and now < current["exp"]
            if current is not None and live and current["owner"] != owner:
                left = current["exp"] - now
                raise Refused("lease_refused", "held by %s for another %.0f s" % (current["owner"], left), kind="held")
            if current is not None and current["owner"] != owner:
                self._refuse_foreign_jobs(owner)
            again = current is not None and live and current["nonce"] == nonce
            epoch = current["epoch"] + (0 if again else 1) if current is not None else 1
            self._write_lease(
                current, {"owner": owner, "nonce": nonce, "epoch": epoch, "boot": boot_id(), "exp": now + ttl}
            )
            return {"owner": owner, "epoch": epoch, "boot_id": boot_id(), "ttl_s": ttl}

    def _refuse_foreign_jobs(self, owner: str) -> None:
        live = []
        for job in self._all_jobs():
            state = job.state()
            if state["status"] in ("launching", "running", "unsupervised") and state.get("owner") != owner:
                live.append("%s of %s" % (job.id, state.get("owner")))
        if live:
            message = "jobs of another owner still live here: %s; cancel them or wait" % ", ".join(live[:5])
            raise Refused("lease_refused", message, kind="foreign_jobs", jobs=live[:50])

    def renew(self, request: Doc) -> Doc:
        with self.mutex(request):
            current = self._check_lease(request, allow_expired=True)
            ttl = float(request["ttl_s"])
            self._write_lease(current, dict(current, exp=boot_clock() + ttl))
            return {"owner": current["owner"], "epoch": current["epoch"], "boot_id": boot_id(), "ttl_s": ttl}

    def release(self, request: Doc) -> Doc:
        with self.mutex(request):
            current = self._check_lease(request, allow_expired=True)
            self._write_lease(current, dict(current, exp=0.0))
            return {}

    def _check_lease(self, request: Doc, allow_expired: bool = False) -> Doc:
        """Raises unless the request's owner and epoch are the current ones. The caller holds the mutex."""
        current, asked = self._read_lease(), request["lease"]
        if current is None:
            raise Refused("lease_refused", "nobody holds a lease on this host", kind="none")
        if current["owner"] != asked["owner"] or current["epoch"] != asked["epoch"]:
            message = "epoch %s of %s is stale: epoch %s of %s is current"
            facts = (asked["epoch"], asked["owner"], current["epoch"], current["owner"])
            raise Refused("lease_refused", message % facts, kind="fenced")
        if current["boot"] != boot_id():
            raise Refused("lease_refused", "the host was rebooted since the lease was taken", kind="rebooted")
        if not allow_expired and boot_clock() >= current["exp"]:
            raise Refused("lease_refused", "the lease ran out", kind="expired")
        return current

    def _read_lease(self) -> Optional[Doc]:
        with open(self.lease_path, "rb") as stream:
            data = stream.read(2 * LEASE_SLOT_BYTES)
        slots = []
        for slot in (0, 1):
            line = data[slot * LEASE_SLOT_BYTES : (slot + 1) * LEASE_SLOT_BYTES].split(b"\n", 1)[0]
            checksum, _, body = line.partition(b" ")
            if body and checksum == b"%08x" % zlib.crc32(body):
                slots.append(json.loads(body.decode()))
        return max(slots, key=lambda document: document["seq"]) if slots else None

    def _write_lease(self, current: Optional[Doc], document: Doc) -> None:
        """Into the older of two slots of a file that has its space already: a torn write leaves the other one."""
        document["seq"] = current["seq"] + 1 if current else 1
        body = encode(document)
        data = b"%08x " % zlib.crc32(body) + body + b"\n"
        fd = os.open(self.lease_path, os.O_WRONLY)
        try:
            os.pwrite(fd, data.ljust(LEASE_SLOT_BYTES, b"\0"), (document["seq"] % 2) * LEASE_SLOT_BYTES)
            os.fsync(fd)
        finally:
            os.close(fd)

    # jobs

    def _job(self, request: Doc) -> Job:
        job_id = str(request["job_id"])
        if not JOB_ID.fullmatch(job_id):
            raise Refused("bad_request", "job id %r is not [A-Za-z0-9][A-Za-z0-9._-]{0,99}" % job_id)
        return Job(self.jobs, job_id)

    def _all_jobs(self) -> List[Job]:
        return [Job(self.jobs, name) for name in sorted(os.listdir(self.jobs)) if JOB_ID.fullmatch(name)]

    def launch(self, request: Doc) -> Doc:
        """Starts the job unless its id was ever used here. Asking again is how a lost answer is learnt."""
        job, spec = self._job(request), request["spec"]
        with self.mutex(request):
            failpoint("launch_locked")
            if job.exists():
                state = job.state()
                state.update(duplicate=True, same_spec=state.get("spec_digest") == spec["digest"])
                return state
            lease = self._check_lease(request)
            self._check_inside(str(spec["cwd"]))
            self._check_space(int(spec["min_free_bytes"]))
            spec = dict(spec, nonce=os.urandom(16).hex(), owner=lease["owner"], epoch=lease["epoch"], boot=boot_id())
            gate_fd = self._claim(job, dict(spec, protocol=PROTOCOL))
            failpoint("launch_after_claim")
            try:
                told = self._fork_supervisor(job, spec, gate_fd)
            finally:
                os.close(gate_fd)  # the supervisor's copy keeps the lock; without a supervisor the claim is dead
        failpoint("launch_forked")
        self._await_told(told, float(request.get("limit_s", 10.0)))
        state = job.state()
        state.update(duplicate=False, same_spec=True)
        return state

    def _check_inside(self, directory: str) -> None:
        if not (os.path.realpath(directory) + "/").startswith(self.workdir + "/"):
            raise Refused("path_outside", "%s is not below %s" % (directory, self.workdir))

    def _check_space(self, wanted: int) -> None:
        space = os.statvfs(self.jobs)
        free = space.f_bavail * space.f_frsize
        if free < wanted:
            message = "%s has %d MiB free, %d MiB are wanted; make room"
            raise Refused("disk_low", message % (self.jobs, free >> 20, wanted >> 20))

    def _claim(self, job: Job, spec: Doc) -> int:
        """Makes the whole directory aside and renames it: the one permission to start. Returns the locked gate."""
        fresh = os.path.join(self.jobs, ".new-%s-%s" % (job.id, os.urandom(4).hex()))
        os.mkdir(fresh, 0o700)
        gate_fd = -1
        try:
            gate_fd = os.open(os.path.join(fresh, "gate"), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(gate_fd, fcntl.LOCK_EX)
            for name in ("started", "exit", "cancel"):
                reserve(os.path.join(fresh, name + ".pre"))
            with open(os.path.join(fresh, "hb"), "wb") as stream:
                stream.write(b" " * 63 + b"\n")
            os.close(os.open(os.path.join(fresh, "out.log"), os.O_WRONLY | os.O_CREAT, 0o600))
            write_durably(os.path.join(fresh, "spec.json"), encode(spec))
            failpoint("launch_before_claim")
            os.rename(fresh, job.directory)
        except BaseException as error:
            if gate_fd >= 0:
                os.close(gate_fd)
            remove_flat_directory(fresh)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Refused("disk_low", "no space to claim job %s: %s" % (job.id, error)) from error
            raise
        sync_directory(self.jobs)
        return gate_fd

    def _fork_supervisor(self, job: Job, spec: Doc, gate_fd: int) -> int:
        told_read, told_write = os.pipe()
        middle = os.fork()
        if middle == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    Supervisor(job, spec, gate_fd, told_write).run()
            except BaseException as error:
                try:
                    os.write(2, ("supervisor: %s: %s\n" % (type(error).__name__, error)).encode())
                except OSError:
                    pass
            finally:
                os._exit(0)
        os.close(told_write)
        os.waitpid(middle, 0)
        return told_read

    def _await_told(self, told: int, limit_s: float) -> None:
        select.select([told], [], [], limit_s)
        os.close(told)

    def poll(self, request: Doc) -> Doc:
        """The state; waits up to `wait_s` for the job to leave its live states."""
        job, until = self._job(request), boot_clock() + float(request.get("wait_s", 0.0))
        pause = 0.01
        while True:
            state = job.state()
            left = until - boot_clock()
            if state["status"] not in ("launching", "running", "unsupervised") or left <= 0:
                return state
            select.select([], [], [], min(pause, left))
            pause = min(pause * 1.5, 0.2)

    def list_jobs(self, request: Doc) -> Doc:
        return {"jobs": [job.state() for job in self._all_jobs()]}

    def fence(self, request: Doc) -> Doc:
        job = self._job(request)
        with self.mutex(request):
            self._check_lease(request)
            return self._fence(job, "fenced by its controller")

    def _fence(self, job: Job, why: str) -> Doc:
        state = job.state()
        if state["status"] in ("absent", "claimed_dead"):
            failpoint("fence_before_write")
            job.fence(why)
            state = job.state()
        return state

    def cancel(self, request: Doc) -> Doc:
        """Asks the supervisor to end the job; ends the processes itself where the supervisor is gone."""
        job = self._job(request)
        with self.mutex(request):
            self._check_lease(request)
            state = self._fence(job, "cancelled before it ran")
            if state["status"] in ("launching", "running") and not state["cancel_requested"]:
                publish(job.directory, "cancel", {"boot": boot_id(), "t": boot_clock()})
                self._signal_supervisor(job, signal.SIGCHLD)  # it looks at once, not within LOOP_S
        failpoint("cancel_recorded")
        until, pause = boot_clock() + float(request.get("wait_s", 0.0)), 0.005
        while state["status"] in ("launching", "running", "unsupervised"):
            if state["status"] == "unsupervised":
                self._kill_survivors(job)
            elif (state["heartbeat_age_s"] or 0.0) > STALE_HEARTBEAT_S:
                self._signal_supervisor(job, signal.SIGCONT)  # a stopped one cannot kill what it supervises
            if boot_clock() >= until:
                break
            select.select([], [], [], pause)
            pause = min(pause * 1.5, 0.1)
            state = job.state()
        return state

    def _signal_supervisor(self, job: Job, number: int) -> None:
        started = self._started_here(job)
        process = read_process(started["supervisor"]["pid"]) if started else None
        if started and process and process.start == started["supervisor"]["start"]:
            send_signal(process, number)

    def _kill_survivors(self, job: Job) -> None:
        started = self._started_here(job)
        if started is None:
            return
        for process in job.survivors(started).values():
            send_signal(process, signal.SIGKILL)
        remove_cgroup(started.get("cgroup"))

    # files, all below the work directory

    def _inside(self, path: str, writing: bool) -> str:
        if not path.startswith("/") or "\0" in path:
            raise Refused("bad_request", "path must be absolute: %r" % path)
        parent = os.path.realpath(os.path.dirname(path))
        real = os.path.join(parent, os.path.basename(path)) if writing else os.path.realpath(path)
        inside = (real + "/").startswith(self.workdir + "/")
        if not inside or os.path.basename(path) in ("", ".", ".."):
            raise Refused("path_outside", "%s is not below %s" % (path, self.workdir))
        if writing and (real + "/").startswith(self.root + "/"):
            raise Refused("path_outside", "%s belongs to the agent" % path)
        return real

    def put(self, request: Doc) -> Doc:
        path = self._inside(str(request["path"]), writing=True)
        data: bytes = request["data"]
        if os.path.isdir(path):
            raise Refused("bad_request", "%s is a directory" % path)
        write_durably(path, data, int(request["mode"]) & 0o777)
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def read(self, request: Doc) -> Doc:
        path, offset = self._inside(str(request["path"]), writing=False), int(request["offset"])
        cap = min(int(request["cap"]), MAX_READ_BYTES)
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Refused("bad_request", "%s is not a regular file" % path)
            stream.seek(offset)
            data = stream.read(cap) if offset < status.st_size else b""
        return {"size": max(status.st_size, offset + len(data)) if data else status.st_size, "data": data}

    def digest(self, request: Doc) -> Doc:
        path, hasher, size = self._inside(str(request["path"]), writing=False), hashlib.sha256(), 0
        try:
            with open(path, "rb") as stream:
                for block in iter(lambda: stream.read(1 << 20), b""):
                    hasher.update(block)
                    size += len(block)
        except FileNotFoundError:
            return {"found": False}
        return {"found": True, "sha256": hasher.hexdigest(), "size": size}

    def make_directory(self, request: Doc) -> Doc:
        asked = str(request["path"])
        missing, parent = [], asked.rstrip("/")
        while parent not in ("", "/") and not os.path.lexists(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        if os.path.realpath(parent) != self.workdir:
            self._inside(parent, writing=True)
        for path in reversed(missing):
            os.mkdir(self._inside(path, writing=True), 0o755)
        if not os.path.isdir(asked):
            raise Refused("bad_request", "%s exists and is no directory" % asked)
        return {}

    def list_directory(self, request: Doc) -> Doc:
        asked = str(request["path"])
        path = self.workdir if os.path.realpath(asked) == self.workdir else self._inside(asked, writing=False)
        entries = []
        with os.scandir(path) as found:
            for entry in found:
                status = entry.stat(follow_symlinks=False)
                kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
                kind = next((name for test, name in kinds if test(status.st_mode)), "other")
                entries.append([entry.name, kind, status.st_size])
                if len(entries) >= 10000:
                    break
        return {"entries": sorted(entries)}


def remove_flat_directory(path: str) -> None:
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass


def listening_inodes(ports: Set[int]) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name, encoding="ascii") as stream:
                next(stream)
                for line in stream:
                    fields = line.split()
                    port = int(fields[1].rpartition(":")[2], 16)
                    if fields[3] == "0A" and port in ports:
                        found[fields[9]] = port
        except FileNotFoundError:
            continue
    return found


def socket_owners(inodes: Set[str], processes: Dict[int, Process]) -> Dict[str, Set[int]]:
    owners: Dict[str, Set[int]] = {}
    wanted = {"socket:[%s]" % inode: inode for inode in inodes}
    for pid in processes if wanted else ():
        try:
            for fd in os.listdir("/proc/%d/fd" % pid):
                inode = wanted.get(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
                if inode is not None:
                    owners.setdefault(inode, set()).add(pid)
        except OSError:
            continue
    return owners


class Mutex:
    """A lock of the kernel around every change. Waiting for it ends, too."""

    def __init__(self, path: str, limit_s: float) -> None:
        self.path, self.limit_s, self.fd = path, limit_s, -1

    def __enter__(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        until = boot_clock() + self.limit_s
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if boot_clock() > until:
                    os.close(self.fd)
                    message = "another request has held %s for %.0f s" % (self.path, self.limit_s)
                    raise Refused("busy", message) from None
                select.select([], [], [], 0.01)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


# --- requests and answers -----------------------------------------------------------------------------------------


def agent_sha256() -> str:
    return str(globals().get("AGENT_SHA256", ""))


class Wire:
    """Requests: a JSON line, then `payload` raw bytes. Answers: a frame that carries the request's own random id."""

    def __init__(self) -> None:
        self.pending = b""

    def _fill(self) -> None:
        ready, _, _ = select.select([0], [], [], IDLE_EXIT_S)
        data = os.read(0, 1 << 16) if ready else b""
        if not data:
            raise EOFError
        self.pending += data

    def request(self) -> Doc:
        while b"\n" not in self.pending:
            if len(self.pending) > MAX_REQUEST_BYTES:
                raise EOFError
            self._fill()
        line, _, self.pending = self.pending.partition(b"\n")
        document: Doc = json.loads(line.decode())
        size = int(document.get("payload", 0))
        if not 0 <= size <= MAX_WRITE_BYTES:
            raise EOFError
        blocks, have = [self.pending], len(self.pending)
        while have < size:
            self.pending = b""
            self._fill()
            blocks.append(self.pending)
            have += len(self.pending)
        data = b"".join(blocks)
        document["data"], self.pending = data[:size], data[size:]
        return document

    def answer(self, request_id: str, document: Doc) -> None:
        data = document.pop("data", b"")
        body = encode(document)
        write_all(1, b"\n@@%s %d %d\n" % (request_id.encode(), len(body), len(data)) + body + data)


def handle(host: Host, request: Doc) -> Doc:
    operations: Dict[str, Callable[[Doc], Doc]] = {
        "facts": host.facts,
        "acquire": host.acquire,
        "renew": host.renew,
        "release": host.release,
        "launch": host.launch,
        "poll": host.poll,
        "jobs": host.list_jobs,
        "fence": host.fence,
        "cancel": host.cancel,
        "listeners": host.listeners,
        "connect": host.connect,
        "probe": host.probe,
        "put": host.put,
        "read": host.read,
        "digest": host.digest,
        "make_directory": host.make_directory,
        "list_directory": host.list_directory,
    }
    try:
        host.prepare()
        operation = operations.get(str(request.get("op")))
        if operation is None:
            raise Refused("bad_request", "unknown operation %r" % request.get("op"))
        root_id = host.root_id()
        return dict(operation(request), ok=True, root_id=root_id)
    except Refused as refusal:
        return dict(refusal.facts, ok=False, error=refusal.code, message=refusal.message)
    except OSError as error:
        codes = {errno.ENOSPC: "disk_low", errno.EDQUOT: "disk_low", errno.ENOENT: "not_found"}
        code = codes.get(error.errno or 0, "os_error")
        return {"ok": False, "error": code, "errno": error.errno or 0, "message": str(error)}
    except (KeyError, ValueError, TypeError) as error:
        return {"ok": False, "error": "bad_request", "message": "%s: %s" % (type(error).__name__, error)}
    except Exception as error:
        return {"ok": False, "error": "agent_error", "message": "%s: %s" % (type(error).__name__, error)}


def relay(ahead: bytes, tunnel: Any) -> None:
    """Copies our stdin to the socket and the socket to our stdout until the socket ends."""
    write_all(tunnel.fileno(), ahead)
    sources = [0, tunnel.fileno()]
    while True:
        ready, _, _ = select.select(sources, [], [], IDLE_EXIT_S)
        if not ready:
            return
        for source in ready:
            data = os.read(source, 1 << 16)
            if data:
                write_all(tunnel.fileno() if source == 0 else 1, data)
            elif source == 0:
                sources.remove(0)
                tunnel.shutdown(1)
            else:
                return


def main() -> None:
    os.umask(0o077)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the channel is gone: so are we
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 2)
    os.close(null)
    host, wire = Host(sys.argv[1]), Wire()
    while True:
        try:
            request = wire.request()
        except (EOFError, ValueError):
            return
        answer = handle(host, request)
        failpoint("answer_%s" % request.get("op"))
        wire.answer(str(request.get("id")), answer)
        if host.tunnel is not None:
            relay(wire.pending, host.tunnel)
            return


if __name__ == "__main__":
    main()
