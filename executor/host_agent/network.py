"""Who listens on which port, and a connection to one of them over the agent's own channel."""

from __future__ import annotations

import os
from typing import Any, Dict, Set

from executor.host_agent.job import started_here
from executor.host_agent.processes import Process, all_processes, command_line
from executor.host_agent.protocol import Doc, Refused
from executor.host_agent.root import Root


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


class Network:
    """Ports of the network namespace that the agent runs in."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.tunnel: Any = None

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
        for job in self.root.all_jobs():
            started = started_here(job)
            if started is not None and not os.path.exists(job.path("exit.json")):
                members.update((pid, job.id) for pid in job.survivors(started))
        return members

    def connect(self, request: Doc) -> Doc:
        """Opens a connection to a port of this network namespace; `main` then copies bytes and ends with it."""
        import socket

        try:
            host = str(request.get("host", "127.0.0.1"))
            self.tunnel = socket.create_connection((host, int(request["port"])), timeout=5)
        except OSError as error:
            raise Refused("connection_refused", str(error)) from error
        self.tunnel.settimeout(None)
        return {}
