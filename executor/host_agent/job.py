"""The directory of one job: what was asked, and what is known of it. Never a guess."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Dict, Optional

from executor.host_agent.cgroups import cgroup_members
from executor.host_agent.processes import Process, all_processes, boot_clock, boot_id, descendants, has_cookie, is_same
from executor.host_agent.protocol import COOKIE, Doc
from executor.host_agent.records import encode, file_size, read_record, sync_directory, write_durably


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


def started_here(job: Job) -> Optional[Doc]:
    try:
        started = read_record(job.directory, "started")
    except ValueError:
        return None
    return started if started is not None and started.get("boot") == boot_id() else None
