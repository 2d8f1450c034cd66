"""The directory in which the agent works: made once, refused where locks are not to be trusted, never left."""

from __future__ import annotations

import os
import stat
from typing import List

from executor.host_agent.job import Job
from executor.host_agent.mutex import Mutex
from executor.host_agent.protocol import JOB_ID, LEASE_SLOT_BYTES, NOT_LOCAL, Doc, Refused, agent_sha256, agent_source
from executor.host_agent.records import write_all


class Root:
    """The work directory and what is ours below it."""

    def __init__(self, workdir: str) -> None:
        self.workdir = os.path.realpath(workdir)
        self.root = os.path.join(self.workdir, ".tuneloop")
        self.jobs = os.path.join(self.root, "jobs")
        self.lease_path = os.path.join(self.root, "lease")

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
        if agent_source():
            try:  # a record of what ran here; what runs is always what was sent, so a full disk does not matter
                self._make_once(os.path.join(self.root, "agent-%s.py" % agent_sha256()), agent_source())
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

    def root_id(self) -> str:
        """Made with the root: every answer carries it, because the empty job list of a new root proves nothing."""
        with open(os.path.join(self.root, "id"), encoding="ascii") as stream:
            return stream.read().strip()

    def mutex(self, request: Doc) -> Mutex:
        return Mutex(os.path.join(self.root, "mutex"), float(request.get("limit_s", 10.0)))

    def job(self, request: Doc) -> Job:
        job_id = str(request["job_id"])
        if not JOB_ID.fullmatch(job_id):
            raise Refused("bad_request", "job id %r is not [A-Za-z0-9][A-Za-z0-9._-]{0,99}" % job_id)
        return Job(self.jobs, job_id)

    def all_jobs(self) -> List[Job]:
        return [Job(self.jobs, name) for name in sorted(os.listdir(self.jobs)) if JOB_ID.fullmatch(name)]

    def check_inside(self, directory: str) -> None:
        if not (os.path.realpath(directory) + "/").startswith(self.workdir + "/"):
            raise Refused("path_outside", "%s is not below %s" % (directory, self.workdir))

    def check_space(self, wanted: int) -> None:
        space = os.statvfs(self.jobs)
        free = space.f_bavail * space.f_frsize
        if free < wanted:
            message = "%s has %d MiB free, %d MiB are wanted; make room"
            raise Refused("disk_low", message % (self.jobs, free >> 20, wanted >> 20))

    def inside(self, path: str, writing: bool) -> str:
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
