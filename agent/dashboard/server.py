"""Serves the dashboard on one address until told to leave. Loopback unless the operator names another address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.dashboard.app import create_app
from agent.dashboard.guard import Addresses, Guard
from agent.dashboard.sessions import Sessions
from agent.dashboard.site import sites_of
from agent.dashboard.token_file import read_or_make_token
from agent.dashboard.watch import Watch
from executor.clock import Clock
from experiments.errors import InputError

MOST_CONNECTIONS = 600  # beyond them a request is refused at once
BACKLOG = 128
LEAVE_S = 3
FIRST_REQUEST_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where to listen. `names`: further `Host` headers to answer to, as `name:port` or `name`."""

    host: str = "127.0.0.1"
    port: int = 8765
    names: Sequence[str] = ()


def serve(roots: list[Path], place: Place, clock: Clock, tell: Callable[[str], None]) -> None:
    """Raises InputError for a folder, an address or a token file that will not do."""
    sites = sites_of(roots, clock)
    check_place(place)
    token = read_or_make_token(roots[0].resolve())
    listener = _listen(place)
    port = listener.getsockname()[1]
    names = [*place.names, *([] if is_loopback(place.host) else [f"{_bracketed(place.host)}:{port}"])]
    app = create_app(sites, Sessions(token.text, clock), Addresses.of(port, names), cookie=f"tuneloop-{port}")
    tell(f"dashboard of {', '.join(sites)}: http://{_bracketed(place.host)}:{port}/")
    tell(f"token, shown once: {token.text}" if token.is_new else f"the token is in {token.path}")
    if not is_loopback(place.host):
        tell("NOT encrypted: whoever reads this network reads the token; prefer a tunnel: ssh -L")
    make_server(app).run(sockets=[listener])


class PatientProtocol(H11Protocol):
    """Closes a connection that has not asked for anything by then: nobody may hold so many as there are."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(FIRST_REQUEST_S, self._is_late)

    def _is_late(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Tells the streams to end when it leaves: they never would, and would be cut with an error."""

    def __init__(self, config: uvicorn.Config, watches: Iterable[Watch]) -> None:
        super().__init__(config)
        self._watches = list(watches)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for watch in self._watches:
            watch.close()
        await super().shutdown(sockets)


def make_server(app: Guard) -> Server:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=LEAVE_S,
        h11_max_incomplete_event_size=16 * 1024,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
    )
    return Server(config, app.watches)


def check_place(place: Place) -> None:
    if not 0 <= place.port <= 65535:
        raise InputError("--port", 0, 0, f"{place.port} is no port")
    if place.host == "localhost":
        return
    try:
        found = ipaddress.ip_address(place.host)
    except ValueError:
        raise InputError("--host", 0, 0, f"{place.host!r}: write an address of this machine, as 127.0.0.1") from None
    if found.is_unspecified and not place.names:
        raise InputError("--host", 0, 0, f"{place.host} needs --allow-host: the name and port that browsers will use")


def is_loopback(host: str) -> bool:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listen(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        where = f"{_bracketed(place.host)}:{place.port}"
        raise InputError("--port", 0, 0, f"{where} cannot be used: {error.strerror}; take another --port") from error
    listener.listen(BACKLOG)
    return listener
