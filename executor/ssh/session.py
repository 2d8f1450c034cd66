"""One conversation with the host agent over one exec channel: requests in, framed answers out.

A login shell may print what it likes: an answer is only what carries the request's own random id and exact length.
"""

from __future__ import annotations

import json
import secrets
import shlex
import time
from collections.abc import Mapping
from typing import Any

from executor.ssh.agent_bundle import agent_sha256, agent_source
from executor.ssh.connection import SshConnection, Stream
from executor.ssh.errors import ConnectionLost

MAX_NOISE_BYTES = 1 << 20
MAX_ANSWER_BYTES = 4 << 20
MAX_DATA_BYTES = 16 << 20

# Read by whatever `python3` is on the host, so it says what is wrong in words that Python 2 and 3.5 can print, too.
# Reads with os.read, never more than asked: what follows the source on the channel is the first request.
BOOTSTRAP = """
import hashlib,os,sys
def take(n):
    b=b""
    while len(b)<n:
        c=os.read(0,n-len(b))
        if not c: sys.exit(3)
        b+=c
    return b
if sys.version_info<(3,8): sys.exit("host agent: needs Python 3.8 or newer, this is "+sys.version.split()[0])
h=take(73); s=take(int(h[:8],16)); d=h[9:].decode()
if hashlib.sha256(s).hexdigest()!=d: sys.exit("host agent: its bytes do not match their hash")
exec(compile(s,"host_agent.py","exec"),{"__name__":"__main__","AGENT_SOURCE":s,"AGENT_SHA256":d})
""".strip()


def agent_command(*, workdir: str, python: str = "python3", container: str | None = None) -> str:
    """The command line for the login shell: constants and quoted settings of the pool file, nothing else."""
    argv = [python, "-I", "-S", "-c", BOOTSTRAP, workdir]
    if container is not None:
        argv = ["docker", "exec", "-i", container, *argv]
    return "exec " + shlex.join(argv)


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


class AgentSession:
    """An agent process on the host that answers until the channel closes. One request at a time."""

    def __init__(self, connection: SshConnection, command: str, deadline: float) -> None:
        self._connection = connection
        self._buffer = bytearray()
        started = time.monotonic()
        self._stream: Stream = connection.open_command(command, deadline)
        try:
            source = agent_source()
            self._stream.write(b"%08x %s" % (len(source), agent_sha256().encode()) + source, deadline)
            self.facts, _ = self.ask({"op": "facts"}, b"", deadline)
        except BaseException:
            self.close()
            raise
        self.start_ms = (time.monotonic() - started) * 1000

    @property
    def is_open(self) -> bool:
        return self._connection.is_alive and self._stream.is_open

    def close(self) -> None:
        self._stream.close()

    def as_stream(self) -> SessionStream:
        """The channel itself, after the agent agreed to `connect`: from now on it carries a TCP connection."""
        return SessionStream(self._stream, bytes(self._buffer))

    def ask(self, request: Mapping[str, Any], payload: bytes, deadline: float) -> tuple[dict[str, Any], bytes]:
        """One request, one answer with its raw data. After any exception the session is of no more use."""
        request_id = secrets.token_hex(12)
        line = json.dumps({**request, "id": request_id, "payload": len(payload)}, separators=(",", ":"))
        self._stream.write(line.encode() + b"\n" + payload, deadline)
        size, data_size = self._read_header(f"\n@@{request_id} ".encode(), deadline)
        body = self._take(size, deadline)
        data = self._take(data_size, deadline)
        try:
            answer = json.loads(body, parse_constant=_refuse_constant)
        except ValueError as error:
            raise ConnectionLost("the answer is not JSON") from error
        if not isinstance(answer, dict):
            raise ConnectionLost("the answer is not an object")
        return answer, data

    def _read_header(self, mark: bytes, deadline: float) -> tuple[int, int]:
        """Skips noise up to the frame with our id."""
        while True:
            at = self._buffer.find(mark)
            end = self._buffer.find(b"\n", at + len(mark)) if at >= 0 else -1
            if end >= 0:
                break
            if len(self._buffer) > MAX_NOISE_BYTES:
                raise ConnectionLost("1 MiB of output and no answer in it; is the login shell of the host noisy?")
            self._fill(deadline)
        try:
            size, data_size = (int(word) for word in bytes(self._buffer[at + len(mark) : end]).split())
        except ValueError as error:
            raise ConnectionLost("the answer's frame is malformed") from error
        if not (0 <= size <= MAX_ANSWER_BYTES and 0 <= data_size <= MAX_DATA_BYTES):
            raise ConnectionLost(f"the answer claims {size} + {data_size} bytes")
        del self._buffer[: end + 1]
        return size, data_size

    def _take(self, size: int, deadline: float) -> bytes:
        while len(self._buffer) < size:
            self._fill(deadline)
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _fill(self, deadline: float) -> None:
        try:
            data = self._stream.read(deadline)
        except ConnectionLost as error:
            raise type(error)(f"{error}{self._said()}") from error
        if not data:
            raise ConnectionLost(f"the agent ended without an answer{self._said()}")
        self._buffer += data

    def _said(self) -> str:
        """The tail of what came instead of an answer, fit for a log line."""
        text = bytes(self._buffer[-300:]).decode("utf-8", "replace").strip()
        printable = "".join(char if char.isprintable() else " " for char in text)
        return f"; the host said: {printable!r}" if printable else ""


class SessionStream:
    """A TCP connection inside the agent's own network namespace, through its channel."""

    def __init__(self, stream: Stream, ahead: bytes) -> None:
        self._stream, self._ahead = stream, ahead

    def read(self, deadline: float) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        return self._stream.read(deadline)

    def write(self, data: bytes, deadline: float) -> None:
        self._stream.write(data, deadline)

    @property
    def is_open(self) -> bool:
        return bool(self._ahead) or self._stream.is_open

    def close(self) -> None:
        self._stream.close()
