"""What the controller may ask about the machine itself. Read-only, and only commands that are named here."""

from __future__ import annotations

import os
import sys
import time
from typing import Dict, List

from executor.host_agent.processes import boot_clock, boot_id
from executor.host_agent.protocol import Doc, Refused, agent_sha256
from executor.host_agent.root import Root

PROBES: Dict[str, List[str]] = {
    "npu_info": ["npu-smi", "info"],
    "npu_mapping": ["npu-smi", "info", "-m"],
    "npu_version": ["npu-smi", "-v"],
    "uname": ["uname", "-a"],
    "load": ["cat", "/proc/loadavg"],
    "memory": ["cat", "/proc/meminfo"],
}


def facts(root: Root) -> Doc:
    space = os.statvfs(root.root)
    return {
        "boot_id": boot_id(),
        "python_version": sys.version.split()[0],
        "disk_free_bytes": space.f_bavail * space.f_frsize,
        "agent_sha256": agent_sha256(),
        "wall_s": time.time(),
        "boot_s": boot_clock(),
        "pid": os.getpid(),
    }


def probe(request: Doc) -> Doc:
    import subprocess

    argv = PROBES.get(str(request.get("name")))
    if argv is None:
        raise Refused("bad_request", "no probe %r; known: %s" % (request.get("name"), ", ".join(sorted(PROBES))))
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=float(request["limit_s"]))
    except FileNotFoundError:
        return {"available": False, "exit_code": None, "text": ""}
    except subprocess.TimeoutExpired:
        message = "%s did not end in %s s" % (" ".join(argv), request["limit_s"])
        raise Refused("probe_timeout", message) from None
    text = (done.stdout + done.stderr)[: 256 << 10].decode("utf-8", "replace")
    return {"available": True, "exit_code": done.returncode, "text": text}
