"""The only home of httpx: clients whose connections are channels of an SSH connection.

No port of a host has to be open to us, and no proxy setting of our machine is obeyed. Each request has its own
channel, so that one absolute deadline bounds it from connecting to the last byte of the body.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import httpcore
import httpx

from executor.ssh.errors import ConnectionLost

MAX_CONNECTIONS = 3  # of the SSH connection's eight channels


class ByteStream(Protocol):
    def read(self, deadline: float) -> bytes: ...

    def write(self, data: bytes, deadline: float) -> None: ...

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


OpenTunnel = Callable[[float], ByteStream]


def tunnel_client(open_tunnel: OpenTunnel, port: int, timeout_s: float) -> httpx.Client:
    """A client of `http://127.0.0.1:<port>` on the far side. `timeout_s` bounds one whole request."""
    return httpx.Client(
        transport=TunnelTransport(open_tunnel, timeout_s),
        base_url=f"http://127.0.0.1:{port}",
        timeout=timeout_s,
        trust_env=False,
        follow_redirects=False,
    )


class TunnelTransport(httpx.BaseTransport):
    def __init__(self, open_tunnel: OpenTunnel, timeout_s: float) -> None:
        self._pool = httpcore.ConnectionPool(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=0,  # one request, one channel, one deadline
            network_backend=_TunnelBackend(open_tunnel, timeout_s),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        inner = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            response = self._pool.handle_request(inner)
        except httpcore_errors as error:
            raise _translated(error, request) from error
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response, request),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._pool.close()


httpcore_errors = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


def _translated(error: Exception, request: httpx.Request) -> httpx.TransportError:
    """httpx has one class of the same name for each of these."""
    kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__, httpx.TransportError)
    return kind(str(error), request=request)


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response, request: httpx.Request) -> None:
        self._response, self._request = response, request

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_stream()
        except httpcore_errors as error:
            raise _translated(error, self._request) from error

    def close(self) -> None:
        self._response.close()


class _TunnelBackend(httpcore.NetworkBackend):
    def __init__(self, open_tunnel: OpenTunnel, timeout_s: float) -> None:
        self._open_tunnel, self._timeout_s = open_tunnel, timeout_s

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        deadline = time.monotonic() + self._timeout_s
        try:
            return _TunnelStream(self._open_tunnel(deadline), deadline)
        except ConnectionLost as error:
            raise _timed_out(deadline, httpcore.ConnectTimeout, httpcore.ConnectError, error) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error


class _TunnelStream(httpcore.NetworkStream):
    def __init__(self, stream: ByteStream, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline
        self._ahead = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._ahead:
            try:
                self._ahead = self._stream.read(self._deadline)
            except ConnectionLost as error:
                raise _timed_out(self._deadline, httpcore.ReadTimeout, httpcore.ReadError, error) from error
        data, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._stream.write(buffer, self._deadline)
        except ConnectionLost as error:
            raise _timed_out(self._deadline, httpcore.WriteTimeout, httpcore.WriteError, error) from error

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        raise httpcore.UnsupportedProtocol("a server behind the tunnel is spoken to in plain HTTP")

    def get_extra_info(self, info: str) -> Any:
        return not self._stream.is_open if info == "is_readable" else None


def _timed_out(deadline: float, timeout: type[Exception], failure: type[Exception], error: ConnectionLost) -> Exception:
    kind = timeout if time.monotonic() >= deadline else failure
    return kind(str(error))
