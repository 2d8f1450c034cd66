"""The process that starts one command and records its end."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Dict, NoReturn, Optional

from executor.host_agent.cgroups import cgroup_members, join_cgroup, make_cgroup, remove_cgroup
from executor.host_agent.job import Job
from executor.host_agent.processes import (
    Process,
    all_processes,
    boot_clock,
    boot_id,
    descendants,
    read_process,
    send_signal,
)
from executor.host_agent.protocol import COOKIE, LOOP_S, PRIVATE_ENV, Doc, failpoint
from executor.host_agent.records import file_size, publish


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
