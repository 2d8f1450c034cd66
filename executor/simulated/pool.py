"""A simulated pool on this machine: one embedded SSH server per host, and the files by which it is reached.

`python -m executor.simulated.pool FOLDER` serves until it is told to end. Only what runs behind SSH is simulated: the
product reaches it by its `pool.yaml`, ssh config and known_hosts, as it would reach a real one.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from executor.simulated import programs
from executor.ssh.embedded import EmbeddedSshServer, default_environment
from executor.ssh.keys import public_key_of, write_new_key

POOL_FILE, SSH_CONFIG, KNOWN_HOSTS, FAULTS, RUNS = "pool.yaml", "ssh_config", "known_hosts", "faults.json", "runs.jsonl"
READY_LINE = "simulated pool ready"
CARDS_PER_SIDE = 8


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """One simulated machine."""

    name: str
    role: str  # prefill, decode or mixed


PD_HOSTS = (HostPlan(name="p0", role="prefill"), HostPlan(name="d0", role="decode"))
MIXED_HOSTS = (HostPlan(name="m0", role="mixed"),)


def write_pool_files(folder: Path, hosts: tuple[HostPlan, ...] = PD_HOSTS, pace_s: float = 0.0) -> Path:
    """Keys, ssh config and pool.yaml for these hosts, once; later starts keep their ports and keys."""
    folder = folder.resolve()
    pool_file = folder / POOL_FILE
    if pool_file.exists():
        return pool_file
    folder.mkdir(parents=True, exist_ok=True)
    write_new_key(folder / "client_key")
    ports = _free_ports(len(hosts) * 3 + 1)
    described: dict[str, Any] = {}
    config = []
    for host in hosts:
        (folder / host.name / "work").mkdir(parents=True, exist_ok=True)
        write_new_key(folder / f"{host.name}_host_key")
        ssh_port, port, bootstrap = ports.pop(), ports.pop(), ports.pop()
        config += _ssh_entry(folder, host.name, ssh_port)
        described[host.name] = {
            "role": host.role,
            "ssh": host.name,
            "python": sys.executable,
            "port": port,
            "bootstrap_port": bootstrap,
            "workdir": str(folder / host.name / "work"),
            "env": _environment(folder, pace_s),
        }
    (folder / SSH_CONFIG).write_text("".join(config))
    _write_yaml(pool_file, _pool(folder, hosts, described, ports.pop()))
    return pool_file


def _pool(folder: Path, hosts: tuple[HostPlan, ...], described: Mapping[str, Any], router_port: int) -> dict[str, Any]:
    first = hosts[0].name
    return {
        "name": "simulated-" + "-".join(f"{h.role[0]}{CARDS_PER_SIDE}" for h in hosts),
        "simulated": True,
        "cards": {host.role: CARDS_PER_SIDE for host in hosts},
        "hosts": dict(described),
        "router": {"on": first, "port": router_port},
        "client": {"on": first, "model_path": str(folder / "model")},
        "ssh": {"config": str(folder / SSH_CONFIG), "known_hosts": str(folder / KNOWN_HOSTS)},
        "workdir": str(folder / first / "work"),
        "programs": {
            "server": list(programs.SERVER),
            "router": list(programs.ROUTER),
            "aisbench": list(programs.AISBENCH),
            "bench_serving": list(programs.BENCH_SERVING),
            "dataset": list(programs.DATASET),
            "argument_check": list(programs.ARGUMENT_CHECK),
            "admission_check": list(programs.ADMISSION_CHECK),
        },
        "timeouts": {"ready": 60.0, "canary": 30.0, "warm_up": 120.0, "cache": 120.0, "measure": 300.0},
    }


def _environment(folder: Path, pace_s: float) -> dict[str, str]:
    """What the simulated programs read; the real ones have no such variables."""
    return {
        "TUNELOOP_SIM_PACE": f"{pace_s:g}",
        "TUNELOOP_SIM_FAULTS": str(folder / FAULTS),
        "TUNELOOP_SIM_RUNS_FILE": str(folder / RUNS),
    }


def _ssh_entry(folder: Path, name: str, port: int) -> list[str]:
    return [
        f"Host {name}\n",
        "  HostName 127.0.0.1\n",
        f"  Port {port}\n",
        "  User tuneloop\n",
        f"  IdentityFile {folder / 'client_key'}\n",
        "  IdentitiesOnly yes\n\n",
    ]


def _write_yaml(path: Path, data: object) -> None:
    yaml = YAML()
    yaml.width = 4096
    with path.open("w") as stream:
        yaml.dump(data, stream)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


def serve(folder: Path) -> list[EmbeddedSshServer]:
    """Start the SSH server of every host of a pool folder, and write its known_hosts."""
    folder = folder.resolve()
    pool = YAML(typ="safe").load(folder / POOL_FILE)
    ports = _ssh_ports((folder / SSH_CONFIG).read_text())
    authorized = (public_key_of(folder / "client_key"),)
    servers = []
    for name in pool["hosts"]:
        home = folder / name
        server = EmbeddedSshServer(
            host_key=folder / f"{name}_host_key",
            authorized_keys=authorized,
            home=home,
            env=default_environment(home),
            port=ports[name],
        )
        servers.append(server.start())
    lines = "".join(server.known_hosts_line + "\n" for server in servers)
    (folder / KNOWN_HOSTS).write_text(lines)
    return servers


def _ssh_ports(config: str) -> dict[str, int]:
    ports, name = {}, ""
    for line in config.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "Host":
            name = words[1]
        elif len(words) == 2 and words[0] == "Port":
            ports[name] = int(words[1])
    return ports


def main() -> int:
    """Serve until SIGTERM or SIGINT, or until the folder is gone."""
    folder = Path(sys.argv[1])
    servers = serve(folder)
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    (folder / "pool.pid").write_text(str(os.getpid()))
    print(READY_LINE, flush=True)
    while not done.wait(1.0):
        if not folder.exists():
            break
    for server in servers:
        server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
