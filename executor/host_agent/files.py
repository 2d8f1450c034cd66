"""Files below the work directory, and nowhere else: symbolic links are followed before a path is judged."""

from __future__ import annotations

import hashlib
import os
import stat

from executor.host_agent.protocol import MAX_READ_BYTES, Doc, Refused
from executor.host_agent.records import write_durably
from executor.host_agent.root import Root


class Files:
    """Reading and writing for the controller."""

    def __init__(self, root: Root) -> None:
        self.root = root

    def put(self, request: Doc) -> Doc:
        path = self.root.inside(str(request["path"]), writing=True)
        data: bytes = request["data"]
        if os.path.isdir(path):
            raise Refused("bad_request", "%s is a directory" % path)
        write_durably(path, data, int(request["mode"]) & 0o777)
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def read(self, request: Doc) -> Doc:
        path, offset = self.root.inside(str(request["path"]), writing=False), int(request["offset"])
        cap = min(int(request["cap"]), MAX_READ_BYTES)
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Refused("bad_request", "%s is not a regular file" % path)
            stream.seek(offset)
            data = stream.read(cap) if offset < status.st_size else b""
        return {"size": max(status.st_size, offset + len(data)) if data else status.st_size, "data": data}

    def digest(self, request: Doc) -> Doc:
        path, hasher, size = self.root.inside(str(request["path"]), writing=False), hashlib.sha256(), 0
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
        if os.path.realpath(parent) != self.root.workdir:
            self.root.inside(parent, writing=True)
        for path in reversed(missing):
            os.mkdir(self.root.inside(path, writing=True), 0o755)
        if not os.path.isdir(asked):
            raise Refused("bad_request", "%s exists and is no directory" % asked)
        return {}

    def list_directory(self, request: Doc) -> Doc:
        asked = str(request["path"])
        is_top = os.path.realpath(asked) == self.root.workdir
        path = self.root.workdir if is_top else self.root.inside(asked, writing=False)
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
