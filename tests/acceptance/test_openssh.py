"""The same small study over real OpenSSH servers: nothing of it depends on the embedded one."""

from __future__ import annotations

import getpass
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from executor.failpoints import VARIABLE
from executor.ssh.keys import public_key_of
from tests.acceptance.goal_text import goal_text
from tests.acceptance.killing import judge
from tests.acceptance.testbed import PoolBed, describe_pool, make_study, read, run_to_end

pytestmark = [pytest.mark.slow, pytest.mark.sshd, pytest.mark.timeout(400)]

SSHD = shutil.which("sshd") or next((p for p in ("/usr/sbin/sshd",) if Path(p).exists()), None)


@dataclass
class SshdPool(PoolBed):
    """The hosts of a pool folder behind one sshd each."""

    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait(timeout=10)
        super().close()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[SshdPool]:
    if SSHD is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    if not Path("/run/sshd").is_dir():
        pytest.skip("sshd needs /run/sshd, which only root can make")
    folder = tmp_path / "pool"
    describe_pool(folder)
    made = SshdPool(folder=folder, process=None)
    ports = rewrite_client_files(folder)
    try:
        for name, port in ports.items():
            made.daemons.append(start_sshd(folder, name, port))
        yield made
    finally:
        made.close()


def rewrite_client_files(folder: Path) -> dict[str, int]:
    """The pool's ssh files for this user; returns the port of each host."""
    config = folder / "ssh_config"
    text = config.read_text().replace("User tuneloop", f"User {getpass.getuser()}")
    config.write_text(text)
    ports, name = {}, ""
    for words in (line.split() for line in text.splitlines()):
        if words[:1] == ["Host"]:
            name = words[1]
        elif words[:1] == ["Port"]:
            ports[name] = int(words[1])
    lines = [f"[127.0.0.1]:{port} {public_key_of(folder / f'{name}_host_key')}\n" for name, port in ports.items()]
    (folder / "known_hosts").write_text("".join(lines))
    (folder / "authorized_keys").write_text(f"restrict,port-forwarding {public_key_of(folder / 'client_key')}\n")
    return ports


def start_sshd(folder: Path, name: str, port: int) -> subprocess.Popen[bytes]:
    config = folder / f"sshd_config_{name}"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/{name}_host_key\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nUseDNS no\nLogLevel ERROR\n"
    )
    with (folder / f"sshd_{name}.log").open("wb") as log:
        daemon = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
    until = time.monotonic() + 10.0
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < until, "sshd does not listen"
            time.sleep(0.02)
        else:
            return daemon


def test_a_study_with_kills_runs_over_openssh(pool: SshdPool, tmp_path: Path) -> None:
    """A baseline, a card and its screening; the service is killed as the load is sent and as it is collected."""
    workspace = make_study(tmp_path / "study", pool, goal_text(trials=4, repeats=2))
    codes = [
        run_to_end(workspace, 120.0, **{VARIABLE: place})
        for place in ("launch.decode.after_send", "measure.after_send", "collect.before_outcome")
    ]
    code = run_to_end(workspace, 200.0)
    found = judge(workspace, pool)

    assert codes == [-signal.SIGKILL] * 3
    assert code == 0
    assert len(read(workspace).trials) == 4
    assert (found.duplicated, found.lost, found.violations) == (0, 0, [])
