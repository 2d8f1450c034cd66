"""The right to change things on this host: one owner at a time, with an epoch that fences those before it."""

from __future__ import annotations

import json
import os
import zlib
from typing import Optional

from executor.host_agent.processes import boot_clock, boot_id
from executor.host_agent.protocol import LEASE_SLOT_BYTES, Doc, Refused
from executor.host_agent.records import encode
from executor.host_agent.root import Root


class Leases:
    """Every change of a host happens under its mutex and checks the lease inside it."""

    def __init__(self, root: Root) -> None:
        self.root = root

    def acquire(self, request: Doc) -> Doc:
        owner, nonce, ttl = str(request["owner"]), str(request["nonce"]), float(request["ttl_s"])
        with self.root.mutex(request):
            current, now = self._read(), boot_clock()
            live = current is not None and current["boot"] == boot_id() and now < current["exp"]
            if current is not None and live and current["owner"] != owner:
                left = current["exp"] - now
                raise Refused("lease_refused", "held by %s for another %.0f s" % (current["owner"], left), kind="held")
            if current is not None and current["owner"] != owner:
                self._refuse_foreign_jobs(owner)
            again = current is not None and live and current["nonce"] == nonce
            epoch = current["epoch"] + (0 if again else 1) if current is not None else 1
            self._write(current, {"owner": owner, "nonce": nonce, "epoch": epoch, "boot": boot_id(), "exp": now + ttl})
            return {"owner": owner, "epoch": epoch, "boot_id": boot_id(), "ttl_s": ttl}

    def renew(self, request: Doc) -> Doc:
        with self.root.mutex(request):
            current = self.check(request, allow_expired=True)
            ttl = float(request["ttl_s"])
            self._write(current, dict(current, exp=boot_clock() + ttl))
            return {"owner": current["owner"], "epoch": current["epoch"], "boot_id": boot_id(), "ttl_s": ttl}

    def release(self, request: Doc) -> Doc:
        with self.root.mutex(request):
            current = self.check(request, allow_expired=True)
            self._write(current, dict(current, exp=0.0))
            return {}

    def check(self, request: Doc, allow_expired: bool = False) -> Doc:
        """Raises unless the request's owner and epoch are the current ones. The caller holds the mutex."""
        current, asked = self._read(), request["lease"]
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

    def _refuse_foreign_jobs(self, owner: str) -> None:
        live = []
        for job in self.root.all_jobs():
            state = job.state()
            if state["status"] in ("launching", "running", "unsupervised") and state.get("owner") != owner:
                live.append("%s of %s" % (job.id, state.get("owner")))
        if live:
            message = "jobs of another owner still live here: %s; cancel them or wait" % ", ".join(live[:5])
            raise Refused("lease_refused", message, kind="foreign_jobs", jobs=live[:50])

    def _read(self) -> Optional[Doc]:
        with open(self.root.lease_path, "rb") as stream:
            data = stream.read(2 * LEASE_SLOT_BYTES)
        slots = []
        for slot in (0, 1):
            line = data[slot * LEASE_SLOT_BYTES : (slot + 1) * LEASE_SLOT_BYTES].split(b"\n", 1)[0]
            checksum, _, body = line.partition(b" ")
            if body and checksum == b"%08x" % zlib.crc32(body):
                slots.append(json.loads(body.decode()))
        return max(slots, key=lambda document: document["seq"]) if slots else None

    def _write(self, current: Optional[Doc], document: Doc) -> None:
        """Into the older of two slots of a file that has its space already: a torn write leaves the other one."""
        document["seq"] = current["seq"] + 1 if current else 1
        body = encode(document)
        data = b"%08x " % zlib.crc32(body) + body + b"\n"
        fd = os.open(self.root.lease_path, os.O_WRONLY)
        try:
            os.pwrite(fd, data.ljust(LEASE_SLOT_BYTES, b"\0"), (document["seq"] % 2) * LEASE_SLOT_BYTES)
            os.fsync(fd)
        finally:
            os.close(fd)
