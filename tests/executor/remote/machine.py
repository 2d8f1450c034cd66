"""A host that can lose its link, its power and its memory: namespaces of this kernel with a real sshd inside.

Needs root, `ip` and `unshare`; `start_machine` skips the test with the reason where one is missing or forbidden. The
link is cut by a wrong neighbour entry: frames go out and reach nobody, so that no reset and no error tells anyone.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from executor.clock import SystemClock
from executor.remote_host import HostAddress, RemoteHost
from tests.executor.remote.remote_testbed import SSHD, TestHost, eventually, public_line, wait_for_port

PORT = 2222
NOBODY = "02:00:00:00:00:66"
INIT = """
mount --bind "$1" /proc/sys/kernel/random/boot_id
[ -e "$HOME/.bashrc" ] && mount --bind /dev/null "$HOME/.bashrc"
"$2" -D -e -f "$3" &
while :; do wait; sleep 0.1; done
"""


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)


class Machine(TestHost):
    """A TestHost with a link and a power switch."""

    __test__ = False
    namespace: str
    net: str = ""
    process: subprocess.Popen[bytes] | None = None

    def build_network(self) -> None:
        self.namespace = f"tl{uuid.uuid4().hex[:8]}"
        dice = random.SystemRandom()
        self.net = self.net or f"10.{dice.randrange(64, 128)}.{dice.randrange(1, 250)}"
        out, inner = f"{self.namespace}o", f"{self.namespace}i"
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", out, "type", "veth", "peer", "name", inner)
        run("ip", "link", "set", inner, "netns", self.namespace)
        run("ip", "addr", "add", f"{self.net}.1/30", "dev", out)
        run("ip", "link", "set", out, "up")
        run("ip", "-n", self.namespace, "addr", "add", f"{self.net}.2/30", "dev", inner)
        run("ip", "-n", self.namespace, "link", "set", inner, "up")
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        self._addresses = {
            "questions": (["ip"], out, f"{self.net}.2", self._mac("ip", "-n", self.namespace, dev=inner)),
            "answers": (["ip", "-n", self.namespace], inner, f"{self.net}.1", self._mac("ip", dev=out)),
        }

    def _mac(self, *ip: str, dev: str) -> str:
        words = subprocess.check_output([*ip, "-o", "link", "show", dev], text=True).split()
        return words[words.index("link/ether") + 1]

    def drop_network(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            run("ip", "link", "del", f"{self.namespace}o")
        with contextlib.suppress(subprocess.CalledProcessError):
            run("ip", "netns", "del", self.namespace)

    def cut(self, *directions: str) -> None:
        """Loses every frame of `questions` (to the host) or `answers` (from it); of both by default."""
        for direction in directions or ("questions", "answers"):
            ip, device, address, _ = self._addresses[direction]
            run(*ip, "neigh", "replace", address, "dev", device, "lladdr", NOBODY, "nud", "permanent")

    def heal(self) -> None:
        for ip, device, address, mac in self._addresses.values():
            run(*ip, "neigh", "replace", address, "dev", device, "lladdr", mac, "nud", "permanent")

    def power_on(self) -> None:
        boot = self.directory / f"boot-{uuid.uuid4().hex[:6]}"
        boot.write_text(f"{uuid.uuid4()}\n")
        inside = ("unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c", INIT, "init")
        command = ["ip", "netns", "exec", self.namespace, *inside, str(boot), str(SSHD)]
        with (self.directory / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.directory / "sshd_config")], stdout=subprocess.DEVNULL, stderr=log
            )
        wait_for_port(PORT, host=f"{self.net}.2")

    def power_off(self) -> None:
        """Every process of the machine dies at once."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            eventually(lambda: not any(self.pids()))
            self.process = None

    def pids(self) -> list[int]:
        """Processes inside the machine, as numbered outside."""
        own = os.stat(f"/var/run/netns/{self.namespace}").st_ino
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.stat(entry / "ns" / "net").st_ino == own:
                    found.append(int(entry.name))
        return found

    def init_pid(self) -> int:
        """The machine's pid 1, as numbered outside."""
        for pid in self.pids():
            status = Path(f"/proc/{pid}/status").read_text()
            numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid"))
            if len(numbers) > 1 and numbers[-1] == "1":
                return pid
        raise AssertionError("the machine is off")

    def run_inside(self, program: str, *args: str) -> subprocess.Popen[bytes]:
        """Runs a Python program as a process of the machine."""
        enter = ["nsenter", "-t", str(self.init_pid()), "-p", "-m", "-n", "--"]
        return subprocess.Popen([*enter, sys.executable, "-c", program, *args], stdout=subprocess.PIPE)

    def close(self) -> None:
        for remote in (self.remote, *self.extra):
            remote.close()
        self.power_off()
        self.drop_network()


def start_machine(directory: Path, client_key: Path, host_key: Path) -> Machine:
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if SSHD is None or missing or os.geteuid() != 0:
        pytest.skip(f"needs root, sshd, ip and unshare; missing: {missing or ['root or sshd']}")
    write_files(directory, client_key, host_key)
    address = HostAddress(
        name="m0",
        ssh="m0",
        ssh_config=str(directory / "ssh_config"),
        known_hosts=str(directory / "known_hosts"),
        workdir=str(directory / "work"),
        python=sys.executable,
    )
    machine = Machine(directory=directory, address=address, remote=RemoteHost(address, SystemClock()))
    try:
        machine.build_network()
    except subprocess.CalledProcessError as error:
        machine.drop_network()
        pytest.skip(f"network namespaces are not permitted here: {error.stderr}")
    name_address(machine)
    machine.power_on()
    return machine


def write_files(directory: Path, client_key: Path, host_key: Path) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)
    (directory / "authorized_keys").write_text(f"restrict,port-forwarding {public_line(client_key)}\n")
    (directory / "known_hosts").write_text(f"machine {public_line(host_key)}\n")
    (directory / "sshd_config").write_text(
        f"Port {PORT}\nHostKey {host_key}\nPidFile none\nUsePAM no\nStrictModes no\nUseDNS no\n"
        f"AuthorizedKeysFile {directory}/authorized_keys\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nLogLevel ERROR\n"
    )
    (directory / "client_key_path").write_text(str(client_key))


def name_address(machine: Machine) -> None:
    key = (machine.directory / "client_key_path").read_text()
    (machine.directory / "ssh_config").write_text(
        f"Host m0\n  HostName {machine.net}.2\n  Port {PORT}\n  HostKeyAlias machine\n  IdentityFile {key}\n"
    )
