"""Small HTTP pieces that the simulated server and router share: a threaded JSON server and a JSON client."""

from __future__ import annotations

import http.client
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class JsonHandler(BaseHTTPRequestHandler):
    """One request at a time per connection. `route` is given by the subclass."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "uvicorn", ""

    def do_GET(self) -> None:
        self.route("GET")

    def do_POST(self) -> None:
        self.route("POST")

    def route(self, method: str) -> None:
        raise NotImplementedError

    @property
    def target(self) -> str:
        return urlsplit(self.path).path

    def query(self, name: str) -> str | None:
        values = parse_qs(urlsplit(self.path).query).get(name)
        return values[0] if values else None

    def body(self) -> Any:
        """The JSON body, None when there is none; a ValueError says that it is no JSON."""
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        return json.loads(raw) if raw else None

    def answer(self, status: int, content: object, content_type: str = "application/json") -> None:
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer_text(self, status: int, text: str = "") -> None:
        self.answer(status, text, "text/plain; charset=utf-8")

    def answer_events(self, events: list[dict[str, Any]]) -> None:
        """A server-sent event stream, ended by [DONE]."""
        data = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.answer(200, data, "text/event-stream; charset=utf-8")

    def log_message(self, format: str, *args: object) -> None:
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def call(url: str, method: str = "GET", content: object = None, timeout: float = 30.0) -> tuple[int, Any]:
    """One request; the answer's status and its JSON (text where it is none). OSError when nobody answers."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=timeout)
    try:
        data = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target or "/", data, headers)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        return response.status, _decode(text)
    except http.client.HTTPException as error:
        raise OSError(f"{url}: {error!r}") from error
    finally:
        connection.close()


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
