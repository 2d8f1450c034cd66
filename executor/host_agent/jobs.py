"""Start, look at, fence and end jobs. A job id is claimed once, ever; asking again is how a lost answer is learnt."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal

from executor.host_agent.cgroups import remove_cgroup
from executor.host_agent.job import Job, started_here
from executor.host_agent.leases import Leases
from executor.host_agent.processes import boot_clock, boot_id, read_process, send_signal
from executor.host_agent.protocol import PROTOCOL, STALE_HEARTBEAT_S, Doc, Refused, failpoint
from executor.host_agent.records import encode, publish, remove_flat_directory, reserve, sync_directory, write_durably
from executor.host_agent.root import Root
from executor.host_agent.supervisor import Supervisor


class Jobs:
    """The jobs of this host."""

    def __init__(self, root: Root, leases: Leases) -> None:
        self.root, self.leases = root, leases

    def launch(self, request: Doc) -> Doc:
        """Starts the job unless its id was ever used here. Asking again is how a lost answer is learnt."""
        job, spec = self.root.job(request), request["spec"]
        with self.root.mutex(request):
            failpoint("launch_locked")
            if job.exists():
                state = job.state()
                state.update(duplicate=True, same_spec=state.get("spec_digest") == spec["digest"])
                return state
            lease = self.leases.check(request)
            self.root.check_inside(str(spec["cwd"]))
            self.root.check_space(int(spec["min_free_bytes"]))
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

    def _claim(self, job: Job, spec: Doc) -> int:
        """Makes the whole directory aside and renames it: the one permission to start. Returns the locked gate."""
        fresh = os.path.join(self.root.jobs, ".new-%s-%s" % (job.id, os.urandom(4).hex()))
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
        sync_directory(self.root.jobs)
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
        job, until = self.root.job(request), boot_clock() + float(request.get("wait_s", 0.0))
        pause = 0.01
        while True:
            state = job.state()
            left = until - boot_clock()
            if state["status"] not in ("launching", "running", "unsupervised") or left <= 0:
                return state
            select.select([], [], [], min(pause, left))
            pause = min(pause * 1.5, 0.2)

    def list_jobs(self, request: Doc) -> Doc:
        return {"jobs": [job.state() for job in self.root.all_jobs()]}

    def fence(self, request: Doc) -> Doc:
        job = self.root.job(request)
        with self.root.mutex(request):
            self.leases.check(request)
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
        job = self.root.job(request)
        with self.root.mutex(request):
            self.leases.check(request)
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
        started = started_here(job)
        process = read_process(started["supervisor"]["pid"]) if started else None
        if started and process and process.start == started["supervisor"]["start"]:
            send_signal(process, number)

    def _kill_survivors(self, job: Job) -> None:
        started = started_here(job)
        if started is None:
            return
        for process in job.survivors(started).values():
            send_signal(process, signal.SIGKILL)
        remove_cgroup(started.get("cgroup"))
