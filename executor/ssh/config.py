"""Resolves a host name through an ssh config into everything that a connection needs.

paramiko parses the file but follows no Include and applies nothing. Follows OpenSSH where it is followed at all;
an option that would change where or how we connect and that is not supported is an error, never ignored.
"""

from __future__ import annotations

import getpass
import glob
import os
from dataclasses import dataclass
from pathlib import Path

import paramiko

from experiments.errors import InputError

DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
MAX_INCLUDE_DEPTH = 16
MAX_JUMPS = 8


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One sshd: where it is, who we are there, and how its key is known."""

    name: str
    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...]
    known_hosts: tuple[str, ...]
    host_key_alias: str | None = None
    jump: Endpoint | None = None

    @property
    def known_as(self) -> str:
        """The name under which known_hosts lists the key."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.hostname if self.port == 22 else f"[{self.hostname}]:{self.port}"


def resolve_endpoint(name: str, *, ssh_config: str | None = None, known_hosts: str | None = None) -> Endpoint:
    """Resolves `name` (an alias of the config, or `[user@]host[:port]`); the default config is ~/.ssh/config."""
    path = Path(ssh_config or "~/.ssh/config").expanduser()
    if ssh_config and not path.is_file():
        raise InputError(str(path), 0, 0, "this ssh config does not exist; correct `ssh_config` of the pool")
    return _resolve(name, path, read_ssh_config(path), known_hosts, MAX_JUMPS)


def read_ssh_config(path: Path) -> paramiko.SSHConfig:
    text = "\n".join(_expanded_lines(path, 0)) if path.is_file() else ""
    try:
        return paramiko.SSHConfig.from_text(text)
    except paramiko.ssh_exception.ConfigParseError as error:
        raise InputError(str(path), 0, 0, f"cannot be read as an ssh config: {error}") from error


def _expanded_lines(path: Path, depth: int) -> list[str]:
    """The lines of the file with every Include replaced by what it names."""
    if depth > MAX_INCLUDE_DEPTH:
        raise InputError(str(path), 0, 0, f"Include nests deeper than {MAX_INCLUDE_DEPTH}; is it a loop?")
    lines: list[str] = []
    section = ""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() == "include":
            lines += _included(path, number, rest, section, depth)
            continue
        if keyword.lower() in ("host", "match"):
            section = line
        lines.append(line)
    return lines


def _included(path: Path, number: int, patterns: str, section: str, depth: int) -> list[str]:
    lines: list[str] = []
    for pattern in patterns.split():
        absolute = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(pattern.strip('"')))
        for found in sorted(glob.glob(absolute)):
            inner = _expanded_lines(Path(found), depth + 1)
            opens = any(text.strip().lower().startswith(("host ", "host=", "match ")) for text in inner)
            if opens and section:
                raise InputError(
                    str(path), number, 1, f"{found} has Host lines and is included inside a Host block; move it up"
                )
            lines += inner
            # Lines after the Include belong to the block that was open before it.
            lines += ["Host *"] if opens else []
    return lines


def _resolve(name: str, path: Path, config: paramiko.SSHConfig, known_hosts: str | None, jumps_left: int) -> Endpoint:
    user, host, port = _split(name)
    options = config.lookup(host)
    _refuse_unsupported(host, path, options)
    own_known_hosts = known_hosts or options.get("userknownhostsfile") or "~/.ssh/known_hosts"
    identities = options.get("identityfile") or list(DEFAULT_IDENTITIES)
    return Endpoint(
        name=name,
        hostname=options.get("hostname", host),
        port=port or int(options.get("port", 22)),
        user=user or options.get("user") or getpass.getuser(),
        identity_files=tuple(os.path.expanduser(file) for file in identities),
        known_hosts=tuple(os.path.expanduser(file) for file in own_known_hosts.split()),
        host_key_alias=options.get("hostkeyalias"),
        jump=_resolve_jump(host, options.get("proxyjump"), path, config, known_hosts, jumps_left),
    )


def _resolve_jump(
    host: str,
    chain: str | None,
    path: Path,
    config: paramiko.SSHConfig,
    known_hosts: str | None,
    jumps_left: int,
) -> Endpoint | None:
    """The last hop of `a,b,c` with the hops before it as its own jumps, as OpenSSH does."""
    if chain is None or chain.lower() == "none":
        return None
    if jumps_left == 0:
        raise InputError(str(path), 0, 0, f"ProxyJump of {host} passes more than {MAX_JUMPS} hosts; is it a loop?")
    jump: Endpoint | None = None
    for hop in chain.split(","):
        resolved = _resolve(hop.strip(), path, config, known_hosts, jumps_left - 1)
        jump = resolved if jump is None else _via(resolved, jump)
    return jump


def _via(endpoint: Endpoint, jump: Endpoint) -> Endpoint:
    fields = {name: getattr(endpoint, name) for name in endpoint.__dataclass_fields__}
    return Endpoint(**{**fields, "jump": jump})


def _split(name: str) -> tuple[str | None, str, int | None]:
    user, _, rest = name.rpartition("@")
    host, separator, port = rest.rpartition(":")
    if separator and port.isdigit() and (":" not in host or host.startswith("[")):
        return user or None, host.strip("[]"), int(port)
    return user or None, rest.strip("[]"), None


def _refuse_unsupported(host: str, path: Path, options: paramiko.config.SSHConfigDict) -> None:
    command = options.get("proxycommand")
    if command and str(command).lower() != "none":
        raise InputError(str(path), 0, 0, f"ProxyCommand of {host} is not supported; use ProxyJump")
    if str(options.get("stricthostkeychecking", "yes")).lower() in ("no", "off"):
        raise InputError(
            str(path), 0, 0, f"StrictHostKeyChecking of {host} is off; this service only talks to hosts it knows"
        )
