"""SSH: the only home of paramiko. What leaves this package are plain bytes, streams and our own exceptions."""

import logging

from executor.ssh.config import Endpoint, resolve_endpoint
from executor.ssh.connection import SshConnection
from executor.ssh.errors import AuthenticationRefused, ConnectionLost, HostKeyRefused

__all__ = [
    "AuthenticationRefused",
    "ConnectionLost",
    "Endpoint",
    "HostKeyRefused",
    "SshConnection",
    "resolve_endpoint",
]

# paramiko logs every broken connection with a traceback; ours say the same once, to whoever asked.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)
