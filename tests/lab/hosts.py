"""The lab's two hosts: a real OpenSSH sshd each, on loopback, with a work directory of its own, and their pool file.

Everything is written below one folder; ports and keys are chosen once and stay with it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import string
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from executor.ssh.keys import public_key_of, write_new_key
from tests.executor.remote.remote_testbed import kill_jobs, wait_for_port

HERE = Path(__file__).parent
LAB = Path(os.environ.get("TUNELOOP_LAB", Path.home() / ".cache" / "tuneloop-lab"))
NAMES = ("p0", "d0")
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"

# What the engine needs to be told about this machine: no accelerator, no network, KV over TCP on loopback.
ENGINE_ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_HOST_IP": "127.0.0.1",
    "HOST_IP": "127.0.0.1",
    "MC_FORCE_TCP": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(HERE / "stand_ins"),
}


def make_model() -> None:
    """The model folders of the lab, from the engine's own tokenizer library; the same bytes each time."""
    program = [LAB / "engine/bin/python", HERE / "make_model.py"]
    subprocess.run([*program, LAB / "model"], check=True)
    subprocess.run([*program, LAB / "model-experts", "experts"], check=True)


def write_hosts(folder: Path) -> Path:
    """Keys, sshd and ssh configurations and pool.yaml below `folder`, once. Returns the pool file."""
    pool_file = folder / "pool.yaml"
    if pool_file.exists():
        return pool_file
    folder.mkdir(parents=True)
    write_new_key(folder / "client_key")
    (folder / "authorized_keys").write_text(f"restrict,port-forwarding {public_key_of(folder / 'client_key')}\n")
    ports = free_ports(7)
    known, config = "", ""
    for name in NAMES:
        (folder / name / "work").mkdir(parents=True)
        host_key, port = folder / name / "host_key", ports.pop()
        write_new_key(host_key)
        (folder / name / "sshd_config").write_text(sshd_config(folder, host_key, port))
        known += f"[127.0.0.1]:{port} {public_key_of(host_key)}\n"
        config += (
            f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/client_key\n"
            "  IdentitiesOnly yes\n\n"
        )
    (folder / "known_hosts").write_text(known)
    (folder / "ssh_config").write_text(config)
    names = ("prefill_port", "bootstrap_port", "decode_port", "router_port", "metrics_port")
    values = dict(zip(names, ports, strict=True))
    values |= {"folder": folder, "lab": LAB, "python": sys.executable, "env": json.dumps(ENGINE_ENV)}
    pool_file.write_text(string.Template((HERE / "pool.yaml").read_text()).substitute(values))
    return pool_file


def sshd_config(folder: Path, host_key: Path, port: int) -> str:
    return (
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nUseDNS no\nLogLevel ERROR\n"
    )


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


@contextmanager
def running_hosts(folder: Path) -> Iterator[None]:
    """Both hosts up. Afterwards neither they nor anything that was started on them runs."""
    Path("/run/sshd").mkdir(exist_ok=True)
    daemons = []
    try:
        for name in NAMES:
            config = folder / name / "sshd_config"
            with (folder / name / "sshd.log").open("ab") as log:
                daemons.append(subprocess.Popen([SSHD, "-D", "-e", "-f", config], stdout=log, stderr=log))
            wait_for_port(int(config.read_text().split()[1]))
        yield
    finally:
        for name in NAMES:
            kill_jobs(folder / name / "work")
        for daemon in daemons:
            daemon.terminate()
            daemon.wait(timeout=10)
