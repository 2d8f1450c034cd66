"""The conversation: requests in, framed answers out, until the channel closes."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
from typing import Any, Callable, Dict

from executor.host_agent.facts import facts, probe
from executor.host_agent.files import Files
from executor.host_agent.jobs import Jobs
from executor.host_agent.leases import Leases
from executor.host_agent.network import Network
from executor.host_agent.protocol import IDLE_EXIT_S, MAX_REQUEST_BYTES, MAX_WRITE_BYTES, Doc, Refused, failpoint
from executor.host_agent.records import encode, write_all
from executor.host_agent.root import Root


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


class Host:
    """Everything that can be asked of this host, by its name in a request."""

    def __init__(self, workdir: str) -> None:
        self.root = Root(workdir)
        self.network = Network(self.root)
        leases, files = Leases(self.root), Files(self.root)
        jobs = Jobs(self.root, leases)
        self.operations: Dict[str, Callable[[Doc], Doc]] = {
            "facts": lambda _: facts(self.root),
            "acquire": leases.acquire,
            "renew": leases.renew,
            "release": leases.release,
            "launch": jobs.launch,
            "poll": jobs.poll,
            "jobs": jobs.list_jobs,
            "fence": jobs.fence,
            "cancel": jobs.cancel,
            "listeners": self.network.listeners,
            "connect": self.network.connect,
            "probe": probe,
            "put": files.put,
            "read": files.read,
            "digest": files.digest,
            "make_directory": files.make_directory,
            "list_directory": files.list_directory,
        }


def handle(host: Host, request: Doc) -> Doc:
    try:
        host.root.prepare()
        operation = host.operations.get(str(request.get("op")))
        if operation is None:
            raise Refused("bad_request", "unknown operation %r" % request.get("op"))
        root_id = host.root.root_id()
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
        if host.network.tunnel is not None:
            relay(wire.pending, host.network.tunnel)
            return


if __name__ == "__main__":
    main()
