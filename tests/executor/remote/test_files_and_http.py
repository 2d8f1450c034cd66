"""Files below the work directory, listeners, probes and HTTP through the connection."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from executor.remote_host import HostRefused, ProbeName, RemoteHost
from experiments.errors import HostUnreachable
from tests.executor.remote.remote_testbed import TestHost, finished, lease_of, shell


def test_a_file_comes_back_as_it_was_put(host: TestHost) -> None:
    """Bytes, mode and digest survive the way there and back; the same again is harmless."""
    data = os.urandom(3 << 20) + b"\n@@not a frame 1 2\n"
    path = f"{host.workdir}/data/set.bin"
    host.remote.make_directory(f"{host.workdir}/data")
    first = host.remote.put_file(path, data, 0o640)
    assert host.remote.put_file(path, data, 0o640) == first
    assert host.remote.fetch(path, 1 << 30) == data
    assert host.remote.file_digest(path) == first
    assert Path(path).stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in host.remote.list_directory(f"{host.workdir}/data")] == ["set.bin"]


def test_a_file_is_read_in_pieces(host: TestHost) -> None:
    """A chunk starts at its offset, ends at its cap, and says how long the file is."""
    host.remote.put_file(f"{host.workdir}/log", b"0123456789")
    chunk = host.remote.read_file(f"{host.workdir}/log", 3, 4)
    assert (chunk.data, chunk.size, chunk.shrank) == (b"3456", 10, False)
    end = host.remote.read_file(f"{host.workdir}/log", 10, 4)
    assert (end.data, end.shrank) == (b"", False)


def test_a_truncated_log_is_noticed(host: TestHost) -> None:
    """A file shorter than the offset is said to have shrunk: what was read before is not the whole."""
    host.remote.put_file(f"{host.workdir}/log", b"0123")
    assert host.remote.read_file(f"{host.workdir}/log", 8, 4).shrank


def test_what_is_not_there_is_said(host: TestHost) -> None:
    """A missing file is a refusal by name for a read, and no digest."""
    with pytest.raises(HostRefused) as caught:
        host.remote.read_file(f"{host.workdir}/none")
    assert caught.value.code == "not_found"
    assert host.remote.file_digest(f"{host.workdir}/none") is None


def test_a_fetch_has_a_cap(host: TestHost) -> None:
    """A file larger than wanted is refused instead of filling our memory."""
    host.remote.put_file(f"{host.workdir}/big", b"x" * 1000)
    with pytest.raises(HostRefused, match="1000 bytes"):
        host.remote.fetch(f"{host.workdir}/big", 999)


@pytest.mark.parametrize("path", ["/etc/passwd", "{w}/../x", "{w}/./x", "{w}x", "relative", "{w}/a\0b", "{w}/"])
def test_our_side_refuses_paths_outside(embedded: TestHost, path: str) -> None:
    """A path that is not plainly below the work directory never leaves this process."""
    asked = path.format(w=embedded.workdir)
    with pytest.raises(HostRefused, match="not a plain path"):
        embedded.remote.put_file(asked, b"")
    with pytest.raises(HostRefused, match="not a plain path"):
        embedded.remote.read_file(asked)


def test_the_host_refuses_links_that_lead_outside(host: TestHost) -> None:
    """The host resolves symbolic links before it compares: neither a file nor a directory leads out."""
    host.remote.facts()
    outside = host.directory / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (host.workdir / "dir").symlink_to(outside)
    (host.workdir / "file").symlink_to(outside / "secret")
    refusals = (
        lambda: host.remote.read_file(f"{host.workdir}/file"),
        lambda: host.remote.read_file(f"{host.workdir}/dir/secret"),
        lambda: host.remote.put_file(f"{host.workdir}/dir/new", b"x"),
        lambda: host.remote.make_directory(f"{host.workdir}/dir/sub"),
        lambda: host.remote.list_directory(f"{host.workdir}/dir"),
    )
    for refused in refusals:
        with pytest.raises(HostRefused, match="not below"):
            refused()
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


def test_records_of_jobs_cannot_be_written_as_files(host: TestHost) -> None:
    """The agent's own directory is closed to puts: nobody can forge an exit record through us."""
    with pytest.raises(HostRefused, match="belongs to the agent"):
        host.remote.put_file(f"{host.workdir}/.tuneloop/jobs/x", b"{}")


def test_a_probe_is_one_of_a_list(host: TestHost) -> None:
    """Read-only probes run by name; a tool that the host lacks is said to be unavailable."""
    assert host.remote.run_probe(ProbeName.UNAME).text.startswith("Linux")
    npu = host.remote.run_probe(ProbeName.NPU_INFO)
    assert (npu.available, npu.exit_code) == (False, None)


SERVER = """
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"hello " + self.path.encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
s = http.server.HTTPServer((sys.argv[1], 0), H)
open("port.tmp", "w").write(str(s.server_port))
import os; os.rename("port.tmp", "port")
s.serve_forever()
"""


def start_http_job(host: TestHost, job_id: str, at: str = "127.0.0.1") -> int:
    host.remote.facts()
    spec = shell(host, job_id, "", argv=(sys.executable, "-c", SERVER, at))
    host.remote.launch(spec, lease_of(host))
    until = time.monotonic() + 10
    while not (host.workdir / "port").exists():
        assert time.monotonic() < until, host.remote.read_log(job_id)
        time.sleep(0.01)
    return int((host.workdir / "port").read_text())


def test_a_server_is_asked_at_the_address_where_it_listens(host: TestHost) -> None:
    """A server that its peers reach by an address listens on that one only, and not on the usual loopback."""
    port = start_http_job(host, "server", at="127.0.0.9")
    with host.another(servers_at="127.0.0.9").http(port, 10.0) as client:
        assert client.get("/health?x=1").text == "hello /health?x=1"
    with host.remote.http(port, 5.0) as client, pytest.raises(httpx.ConnectError):
        client.get("/health")


def test_http_goes_through_the_connection(host: TestHost) -> None:
    """GET and POST reach a server on the host's loopback; its listener is known to be our job's."""
    port = start_http_job(host, "server")
    with host.remote.http(port, 10.0) as client:
        assert client.get("/health?x=1").text == "hello /health?x=1"
        posted = client.post("/echo", content=b"z" * 300_000)
        assert (posted.status_code, len(posted.content)) == (201, 300_000)
    (listener,) = host.remote.listeners([port])
    assert (listener.port, listener.job_id) == (port, "server")
    assert "HTTPServer" not in listener.command.split()[0]


def test_many_requests_share_the_channels(host: TestHost) -> None:
    """Forty requests from eight threads, with questions to the agent between them, stay within sshd's limits."""
    port = start_http_job(host, "server")
    results: list[int] = []

    def work() -> None:
        with host.remote.http(port, 20.0) as client:
            for _ in range(5):
                results.append(client.get("/").status_code)
                host.remote.poll("server")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [200] * 40


def test_a_stranger_on_the_port_is_no_job_of_ours(host: TestHost) -> None:
    """A listener outside our job trees is reported with its pid and without a job."""
    start_http_job(host, "server")
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        (listener,) = host.remote.listeners([stranger.getsockname()[1]])
    assert (listener.job_id, listener.pid) == (None, os.getpid())


def test_nothing_on_the_port_is_a_connect_error(host: TestHost) -> None:
    """A refused connection on the far side is a refusal, told apart from a lost host."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert host.remote.listeners([port]) == ()
    with host.remote.http(port, 5.0) as client, pytest.raises(httpx.ConnectError):
        client.get("/health")


@contextmanager
def dripping_server() -> Iterator[int]:
    """Sends one byte of an endless body every 50 ms: every read succeeds in time, the whole never does."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        client, _ = listener.accept()
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not stop.wait(0.05):
            try:
                client.sendall(b".")
            except OSError:
                break
        client.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield int(listener.getsockname()[1])
    stop.set()
    thread.join(5)
    listener.close()


def test_the_deadline_of_a_request_is_for_the_whole(host: TestHost) -> None:
    """A server that drips bytes is left at the total deadline, not one read timeout after the last byte."""
    with dripping_server() as port, host.remote.http(port, 0.7) as client:
        started = time.monotonic()
        with pytest.raises(httpx.ReadTimeout):
            client.get("/")
        assert time.monotonic() - started < 1.7


def test_no_proxy_of_our_machine_is_used(host: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy variables in our environment do not lead requests to a third party."""
    port = start_http_job(host, "server")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with host.remote.http(port, 10.0) as client:
        assert client.get("/").status_code == 200


def test_a_host_that_is_not_there_is_unreachable(embedded: TestHost) -> None:
    """Every kind of call ends at its deadline as HostUnreachable with the last cause."""
    assert embedded.server is not None
    embedded.server.stop()
    started = time.monotonic()
    with pytest.raises(HostUnreachable, match=r"no answer in 0.5 s.*refused"):
        embedded.remote.poll("job", timeout_s=0.5)
    assert time.monotonic() - started < 1.5


def test_facts_of_the_host(host: TestHost) -> None:
    """Boot id, versions, space, clocks and the cost of the login shell are reported."""
    facts = host.remote.facts()
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.python_version == sys.version.split()[0]
    assert facts.disk_free_bytes > 0
    assert facts.monotonic_before_s <= facts.monotonic_after_s
    assert facts.login_shell_ms > 0
    assert (host.workdir / ".tuneloop" / f"agent-{facts.agent_sha256}.py").exists()


def finished_log(remote: RemoteHost, job_id: str) -> bytes:
    finished(remote, job_id)
    return remote.read_log(job_id).data
