"""Stands before every route: who may speak to the dashboard, under which name, with how much.

A browser page of another site, a rebound DNS name and a port of another service are refused here, whatever the cookie
says. A route that forgets to ask for a login cannot exist, because nothing but the login page is reached without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.dashboard.sessions import Sessions
from agent.dashboard.watch import Watch

MAX_BODY = 16 * 1024
BODY_PATIENCE_S = 10.0
FORM = "application/x-www-form-urlencoded"
LOGIN, STATIC = "/login", "/static/"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer` a browser would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}


class _Refused(Exception):
    """The request ends here."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """The names under which the dashboard may be spoken to, as a `Host` header spells them: with the port."""

    hosts: frozenset[str]

    @classmethod
    def of(cls, port: int, extra: Iterable[str] = ()) -> Addresses:
        own = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        return cls(hosts=frozenset({*own, *(name.lower() for name in extra)}))

    def has_host(self, host: str) -> bool:
        return host.lower() in self.hosts

    def has_origin(self, origin: str) -> bool:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() in self.hosts and not parts.path


class Guard:
    """The outermost layer. Puts the session of a request into its scope."""

    def __init__(
        self, app: ASGIApp, *, addresses: Addresses, sessions: Sessions, cookie: str, watches: Iterable[Watch] = ()
    ) -> None:
        self._app, self._addresses, self._sessions, self._cookie = app, addresses, sessions, cookie
        self.watches = tuple(watches)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("the dashboard speaks HTTP only")
        hardened = _with_headers(send)
        try:
            headers = Headers(scope=scope)
            self._check(scope, headers)
            body = await _body(headers, receive) if scope["method"] == "POST" else b""
        except _Refused as refused:
            await PlainTextResponse(f"{refused}\n", refused.status)(scope, receive, hardened)
            return
        scope["session_id"] = _cookie(headers, self._cookie)
        scope["session"] = self._sessions.find(scope["session_id"])
        if scope["session"] is None and not _is_open(scope["path"]):
            await _please_log_in(scope, headers)(scope, receive, hardened)
            return
        await self._app(scope, _replay(body, receive), hardened)

    def _check(self, scope: Scope, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._addresses.has_host(hosts[0]):
            raise _Refused(HTTPStatus.FORBIDDEN, "this dashboard does not answer to that name")
        self._check_origin(scope["method"], headers)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "GET and POST only")
        path = scope["path"]
        if ".." in path.split("/") or "\\" in path or "//" in path or not path.isprintable():
            raise _Refused(HTTPStatus.FORBIDDEN, "no such path")

    def _check_origin(self, method: str, headers: Headers) -> None:
        """A change has to come from one of our own pages; nothing at all may be read by a script of another site."""
        origin = headers.get("origin")
        if origin is None and method not in ("GET", "HEAD"):
            raise _Refused(HTTPStatus.FORBIDDEN, "a change needs an Origin of this dashboard")
        if origin is not None and not self._addresses.has_origin(origin):
            raise _Refused(HTTPStatus.FORBIDDEN, "another origin")
        site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        if site in ("cross-site", "same-site") and mode != "navigate":
            raise _Refused(HTTPStatus.FORBIDDEN, "asked for by another site")


async def _body(headers: Headers, receive: Receive) -> bytes:
    """The whole of a small form, or a refusal: nobody may keep a connection or the memory busy with it."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a form is sent as {FORM}")
    try:
        return await asyncio.wait_for(_read(receive), BODY_PATIENCE_S)
    except TimeoutError:
        raise _Refused(HTTPStatus.REQUEST_TIMEOUT, "the form did not arrive in time") from None


async def _read(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a form has at most {MAX_BODY} bytes")
        parts.append(part)
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, once; after it whatever the client does, as streams have to know when it leaves."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}] if body else []

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed


def _with_headers(send: Send) -> Send:
    async def hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return hardened


def _is_open(path: str) -> bool:
    """The login, and what its page looks like."""
    return path == LOGIN or path.startswith(STATIC)


def _cookie(headers: Headers, name: str) -> str | None:
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return None
    return jar[name].value if name in jar else None


def _please_log_in(scope: Scope, headers: Headers) -> Response:
    """A person is shown the login page; a script of ours is told to go there; anything else is just refused."""
    if "hx-request" in headers:
        return PlainTextResponse("log in\n", HTTPStatus.UNAUTHORIZED, {"HX-Redirect": LOGIN})
    if scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", ""):
        return RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
    return PlainTextResponse("log in\n", HTTPStatus.UNAUTHORIZED)
