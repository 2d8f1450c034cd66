"""A real local HTTP server with the weaknesses of real OpenAI-compatible endpoints, one by name."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel


class SmallAnswer(BaseModel):
    """What the tests ask for: the shape of a small answer."""

    knob: str
    value: int


GOOD = {"knob": "prefill-max-requests", "value": 2}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass
class Heard:
    """One request as the server got it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def format(self) -> str:
        if "tools" in self.body:
            return "tool"
        return (self.body.get("response_format") or {}).get("type", "prose")


class Exchange:
    """One request and the ways to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, heard: Heard, number: int, stop: threading.Event) -> None:
        self._handler, self.heard, self.number, self.stop = handler, heard, number, stop

    def send(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        self._handler.send_response(status)
        self._handler.send_header("content-type", content_type)
        self._handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def refuse(self, status: int, message: str = "no", **headers: str) -> None:
        self.send(
            status, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode(), **headers
        )

    def say(self, content: str | None, *, tool: object = None, finish: str = "stop", usage: object = USAGE) -> None:
        message: dict[str, object] = {"role": "assistant", "content": content}
        if tool is not None:
            call = {"id": "c1", "type": "function", "function": {"name": "SmallAnswer", "arguments": tool}}
            message["tool_calls"] = [call]
        document: dict[str, object] = {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if usage is not None:
            document["usage"] = usage
        self.send(200, json.dumps(document).encode())

    def stream(self, chunks: Iterator[bytes], pause_s: float) -> None:
        """Headers, then chunks for ever, until the peer goes away or the test ends."""
        self._handler.send_response(200)
        self._handler.send_header("content-type", "application/json")
        self._handler.end_headers()
        for chunk in chunks:
            if self.stop.wait(pause_s):
                return
            self._handler.wfile.write(chunk)
            self._handler.wfile.flush()


Behaviour = Callable[[Exchange], None]


@dataclass
class FakeEndpoint:
    behaviour: Behaviour
    heard: list[Heard] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def formats(self) -> list[str]:
        return [request.format for request in self.heard]


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint(behaviour)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            heard = Heard(self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(raw))
            with endpoint.lock:
                endpoint.heard.append(heard)
                number = len(endpoint.heard)
            try:
                endpoint.behaviour(Exchange(self, heard, number, endpoint.stop))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield endpoint
    finally:
        endpoint.stop.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def full(exchange: Exchange) -> None:
    """Does json_schema as asked."""
    exchange.say(json.dumps(GOOD))


def no_schema(exchange: Exchange) -> None:
    """json_object and tools, but 400 on json_schema."""
    match exchange.heard.format:
        case "json_schema":
            exchange.refuse(400, "This response_format type is unavailable now")
        case "tool":
            exchange.say(None, tool=json.dumps(GOOD))
        case _:
            exchange.say(json.dumps(GOOD))


def tools_only(exchange: Exchange) -> None:
    if exchange.heard.format == "tool":
        exchange.say(None, tool=GOOD)  # arguments as an object, as some servers send them
    else:
        exchange.refuse(400, "response_format is not supported")


def object_only(exchange: Exchange) -> None:
    """Validates its input strictly: unknown fields are a 422."""
    if exchange.heard.format == "json_object":
        exchange.say(json.dumps(GOOD))
    else:
        exchange.refuse(422, "extra fields not permitted")


def text_only(exchange: Exchange) -> None:
    if exchange.heard.format == "prose":
        exchange.say(f"Sure, here it is:\n{json.dumps(GOOD)}\nGood luck!")
    else:
        exchange.refuse(404, "no endpoint supports this")


def ignores_format(exchange: Exchange) -> None:
    """Accepts every format and answers in prose, with thoughts and a fence."""
    exchange.say('<think>{"knob": "x", "value": 9}? no.</think>\nSure!\n```json\n' + json.dumps(GOOD) + "\n```\nDone")


def without_json(exchange: Exchange) -> None:
    exchange.say("I would raise the number of requests per batch to two.")


def truncated(exchange: Exchange) -> None:
    exchange.say('{"knob": "prefill-max-req', finish="length")


def error_500(exchange: Exchange) -> None:
    exchange.refuse(500, "CUDA error on node17.cluster.internal")


def garbage(exchange: Exchange) -> None:
    exchange.send(200, b"<html><body>502 Bad Gateway of node17</body></html>\x00\xff", "text/html")


def garbage_json(exchange: Exchange) -> None:
    exchange.send(200, b'{"choices": [{"message": null}], "error": "' + b"[" * 5000 + b'"}')


def drip(exchange: Exchange) -> None:
    exchange.stream(iter(lambda: b" ", None), 0.1)


def hang(exchange: Exchange) -> None:
    exchange.stop.wait(30)


def flood(exchange: Exchange) -> None:
    exchange.stream(iter(lambda: b" " * 65536, None), 0.0)


def unauthorised(exchange: Exchange) -> None:
    exchange.refuse(401, f"Incorrect API key provided: {exchange.heard.headers.get('authorization')}")


def busy(times: int, status: int = 429, **headers: str) -> Behaviour:
    """Busy for the first calls, then good."""

    def answer(exchange: Exchange) -> None:
        if exchange.number <= times:
            exchange.refuse(status, "slow down", **headers)
        else:
            full(exchange)

    return answer
