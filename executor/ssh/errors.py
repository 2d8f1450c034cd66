"""How a connection can fail. Only `ConnectionLost` is worth another try."""

from __future__ import annotations

from experiments.errors import HostUnreachable


class ConnectionLost(Exception):
    """The connection broke, or an answer did not come in time. Says nothing about what the host did."""


class DeadlinePassed(ConnectionLost):
    """Time ran out while waiting. An error before it says more about the cause."""


class NoFreeChannel(ConnectionLost):
    """The connection is well, but has no channel for us now."""


class HostKeyRefused(HostUnreachable):
    """The host's key is unknown or is not the known one. Nothing was sent; a person has to look."""


class AuthenticationRefused(HostUnreachable):
    """The host refused our keys, or we have none that may be used. Trying again can lock the account."""
