"""Reads which keys a host is known by. Hashed names are understood, name patterns and certificates are not.

paramiko's own reader refuses a whole file for one bad line, keeps one key of a type per host, and stumbles over
`@revoked`; a file that people and tools have written for years has all of these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, HostKeys, InvalidHostKey

from executor.ssh.config import Endpoint
from executor.ssh.errors import HostKeyRefused


def read_known_keys(endpoint: Endpoint) -> list[paramiko.PKey]:
    """The keys that known_hosts lists for the endpoint; none is an error before a byte is sent."""
    keys: list[paramiko.PKey] = []
    for file in endpoint.known_hosts:
        if Path(file).is_file():
            keys += _known_in(Path(file), endpoint.known_as)
    if not keys:
        raise HostKeyRefused(
            endpoint.name,
            f"{endpoint.known_as} is in none of {', '.join(endpoint.known_hosts)}, or its key is revoked there; "
            f"compare its fingerprint with the host's owner and add it",
        )
    return keys


def _known_in(path: Path, known_as: str) -> list[paramiko.PKey]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    revoked = {words[3] for line in lines if (words := line.split())[:1] == ["@revoked"] and len(words) > 3}
    return [key for key in _entries(lines, known_as) if key.get_base64() not in revoked]


def _entries(lines: list[str], known_as: str) -> Iterator[paramiko.PKey]:
    for line in lines:
        entry = None
        with contextlib.suppress(InvalidHostKey, paramiko.SSHException, ValueError):
            entry = HostKeyEntry.from_line(line) if not line.startswith(("@", "#")) else None
        if entry is None or entry.key is None:
            continue
        names = HostKeys()
        for name in entry.hostnames or ():
            names.add(name, entry.key.get_name(), entry.key)
        if names.check(known_as, entry.key):
            yield entry.key
