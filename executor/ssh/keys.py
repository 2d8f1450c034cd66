"""Private keys: reading the ones that may be used, making one for the simulated pool and for tests."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from executor.ssh.config import Endpoint
from executor.ssh.errors import AuthenticationRefused


def read_private_keys(endpoint: Endpoint) -> list[paramiko.PKey]:
    """The keys of the endpoint that exist. A key that others may read, or with a passphrase, is an error."""
    keys = [_read_private_key(endpoint, Path(file)) for file in endpoint.identity_files if Path(file).is_file()]
    if not keys:
        names = ", ".join(endpoint.identity_files)
        raise AuthenticationRefused(endpoint.name, f"no private key found; looked for {names}")
    return keys


def _read_private_key(endpoint: Endpoint, path: Path) -> paramiko.PKey:
    status = path.stat()
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        raise AuthenticationRefused(endpoint.name, f"key {path} has mode {mode:04o}; run chmod 600 {path}")
    try:
        return paramiko.PKey.from_path(path)
    except paramiko.PasswordRequiredException as error:
        raise AuthenticationRefused(
            endpoint.name, f"key {path} has a passphrase; a service cannot type it: give it a key of its own"
        ) from error
    except (paramiko.SSHException, ValueError, TypeError) as error:
        raise AuthenticationRefused(endpoint.name, f"key {path} cannot be read: {error}") from error


def write_new_key(path: Path) -> str:
    """Makes an Ed25519 key pair at `path` and `path`.pub (OpenSSH format); returns the public line."""
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(text)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")
    return public.decode()


def public_key_of(path: Path) -> str:
    """The public line (`ssh-ed25519 AAAA…`) of a private key file."""
    key = paramiko.PKey.from_path(path)
    return f"{key.get_name()} {key.get_base64()}"
