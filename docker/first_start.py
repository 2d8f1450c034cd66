"""The first start of the compose installation: keys, passwords, and a workspace on its simulated pool.

Everything is made once and kept: what exists is never written again. Each key goes only into the volume of whoever
needs it. Run as `python first_start.py /`.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from agent.entrypoints.make_workspace import copy_goal, write_control
from agent.workspace import Workspace
from executor.simulated import programs
from executor.ssh.keys import public_key_of, write_new_key

HOSTS = {"p0": "prefill", "d0": "decode"}
SSH_PORT, SERVER_PORT, ROUTER_PORT, BOOTSTRAP_PORT = 2222, 30000, 30100, 8998
GOAL = "16k-zero-cache"

POOL = """\
# SIMULATED: two containers that stand in for machines. Nothing that is measured here was measured on hardware.
name: simulated-containers
simulated: true
cards: {{prefill: 8, decode: 8}}
hosts:
{hosts}router: {{on: p0, port: {router}}}
client: {{on: p0, model_path: /data/model}}
ssh: {{config: {keys}/ssh_config, known_hosts: {keys}/known_hosts}}
workdir: /data/work
programs:
{programs}timeouts: {{ready: 60, canary: 30, warm_up: 120, cache: 120, measure: 300}}
"""
SERVICE = """\
# `tuneloop serve` reads this; docs/operations.md says what else may stand here.
name: compose
workspaces: [demo]
keep_artifacts_days: 90
"""


def main(root: Path) -> int:
    keys, studies = root / "keys", root / "studies"
    write_ssh_files(keys)
    write_database_files(keys)
    write_workspace(studies / "demo", Path("/keys/service"))
    write_once(studies / "service.yaml", SERVICE)
    return 0


def write_ssh_files(keys: Path) -> None:
    """One key for the service, one for each host, and nothing that has to be believed at the first connection."""
    client = make_key(keys / "service" / "client_key")
    known = config = ""
    for name in HOSTS:
        host_key = make_key(keys / name / "host_key")
        write_once(keys / name / "authorized_keys", f"restrict,port-forwarding {client}\n", 0o600)
        known += f"[{name}]:{SSH_PORT} {host_key}\n"
        config += (
            f"Host {name}\n  HostName {name}\n  Port {SSH_PORT}\n  User tuneloop\n"
            "  IdentityFile /keys/service/client_key\n  IdentitiesOnly yes\n\n"
        )
    write_once(keys / "service" / "known_hosts", known)
    write_once(keys / "service" / "ssh_config", config)


def make_key(path: Path) -> str:
    """Its public part."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new_key(path)
    return public_key_of(path)


def write_database_files(keys: Path) -> None:
    """The password for the server, which reads it as a user of its own, and the whole URL for the service."""
    password = keys / "database" / "password"
    write_once(password, secrets.token_hex(24) + "\n", 0o644)
    url = f"postgresql+psycopg://tuneloop:{password.read_text().strip()}@database/tuneloop\n"
    write_once(keys / "service" / "database.url", url, 0o600)
    password.parent.chmod(0o755)  # mounted into the database's container only


def write_workspace(root: Path, keys: Path) -> None:
    if not Workspace(root).goal_file.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        copy_goal(root, GOAL)
    write_once(root / "pool.yaml", describe_pool(keys))
    if not Workspace(root).control_file.exists():
        write_control(root, by="setup", reason="simulated pool")


def describe_pool(keys: Path) -> str:
    hosts = "".join(
        f"  {name}: {{role: {role}, ssh: {name}, address: {name}, python: {sys.executable},"
        f" port: {SERVER_PORT}, bootstrap_port: {BOOTSTRAP_PORT}}}\n"
        for name, role in HOSTS.items()
    )
    listed = {
        "server": programs.SERVER,
        "router": programs.ROUTER,
        "aisbench": programs.AISBENCH,
        "bench_serving": programs.BENCH_SERVING,
        "dataset": programs.DATASET,
        "argument_check": programs.ARGUMENT_CHECK,
        "admission_check": programs.ADMISSION_CHECK,
    }
    lines = "".join(f"  {name}: [{', '.join(argv)}]\n" for name, argv in listed.items())
    return POOL.format(hosts=hosts, router=ROUTER_PORT, keys=keys, programs=lines)


def write_once(path: Path, text: str, mode: int = 0o644) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as stream:
        stream.write(text)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
