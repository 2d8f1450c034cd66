"""A group of the kernel per job, where the host lets us: nothing that a job starts can leave it."""

from __future__ import annotations

import os
import time
from typing import Dict, Iterator, Optional, Set

from executor.host_agent.protocol import CGROUP_SWEEP_AGE_S


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
