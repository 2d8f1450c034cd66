"""The dashboard behind a real socket, in a thread of the test, as `tuneloop dashboard` serves it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent.dashboard.app import create_app
from agent.dashboard.guard import Addresses
from agent.dashboard.server import make_server
from agent.dashboard.sessions import Sessions
from agent.dashboard.site import sites_of
from executor.clock import SystemClock
from tests.agent.dashboard.workspaces import TOKEN


@dataclass(frozen=True)
class Served:
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, timeout: float = 20) -> httpx.Client:
        """Logged in."""
        client = httpx.Client(base_url=self.url, timeout=timeout, headers={"Accept": "text/html"}, trust_env=False)
        answer = client.post("/login", data={"token": TOKEN}, headers={"Origin": self.url})
        assert answer.status_code == 303
        return client

    def raw(self, request: bytes) -> bytes:
        """The answer to bytes that no client library would send."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@contextmanager
def serving(*folders: Path) -> Iterator[Served]:
    """Up when entered, and gone when left."""
    clock = SystemClock()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = make_server(create_app(sites_of(list(folders), clock), Sessions(TOKEN, clock), Addresses.of(port)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Served(port)
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
