"""The conversation itself: old Pythons, containers, hostile requests to the agent, hostile answers to us."""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executor.remote_host import HostRefused, JobStatus
from executor.ssh.session import BOOTSTRAP, agent_command
from experiments.errors import HostUnreachable
from tests.executor.remote.remote_testbed import LocalAgent, TestHost, finished, lease_of, shell


def interpreter(version: str) -> str:
    """A Python of that version, from pyenv or the system."""
    found = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), Path(f"/usr/bin/python{version}")]
    existing = next((path for path in found if path.exists()), None)
    if existing is None:
        pytest.skip(f"no Python {version} on this machine")
    return str(existing)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_the_agent_runs_on_the_hosts_own_python(embedded: TestHost, version: str) -> None:
    """From Python 3.8 on, whatever the host has: launch, poll, cancel, files."""
    remote = embedded.another(python=interpreter(version))
    lease = remote.acquire("study", 60.0)
    assert remote.facts().python_version.startswith(version)
    remote.launch(shell(embedded, "job", "exit 3"), lease)
    assert finished(remote, "job").exit_code == 3
    remote.launch(shell(embedded, "long", "setsid sleep 60 & sleep 60", grace_s=0.2), lease)
    assert remote.cancel("long", lease).why == "cancel"
    remote.put_file(f"{embedded.workdir}/file", b"data")
    assert remote.fetch(f"{embedded.workdir}/file", 100) == b"data"


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_an_old_python_is_named(embedded: TestHost, version: str) -> None:
    """A Python that is too old is said to be that, with its version."""
    with pytest.raises(HostUnreachable, match=f"needs Python 3.8 or newer, this is {version}"):
        embedded.another(python=interpreter(version)).poll("job", timeout_s=3.0)


def test_a_missing_python_is_named(host: TestHost) -> None:
    """A host without that program says so in the error, instead of a bare time-out."""
    with pytest.raises(HostUnreachable, match=r"no-such-python.*(not found|No such file)"):
        host.another(python="/usr/bin/no-such-python").poll("job", timeout_s=3.0)


def test_a_container_is_entered_by_name(embedded: TestHost) -> None:
    """With a container named, the agent runs by `docker exec -i NAME python3 …` and everything else is the same."""
    tools = embedded.directory / "tools"
    tools.mkdir()
    docker = tools / "docker"
    docker.write_text('#!/bin/sh\necho "$1 $2 $3" >> "$HOME/docker.log"\nshift 3\nexec "$@"\n')
    docker.chmod(0o755)
    assert embedded.server is not None
    embedded.server._env["PATH"] = f"{tools}:{embedded.server._env['PATH']}"
    remote = embedded.another(container="sglang")
    lease = remote.acquire("study", 60.0)
    remote.launch(shell(embedded, "job", "exit 3"), lease)
    remote.close()
    assert finished(remote, "job").exit_code == 3
    assert (embedded.directory / "docker.log").read_text() == "exec -i sglang\n" * 2
    with embedded_http_server() as port:
        with remote.http(port, 10.0) as client:
            assert [client.post("/echo", content=b"z" * 200_000).content for _ in range(2)] == [b"z" * 200_000] * 2
        assert (embedded.directory / "docker.log").read_text().count("exec") > 2
    with remote.http(port, 5.0) as client, pytest.raises(httpx.ConnectError):
        client.get("/health")
    elsewhere = embedded.another(container="sglang", servers_at="127.0.0.9")
    with embedded_http_server("127.0.0.9") as port, elsewhere.http(port, 10.0) as client:
        assert client.post("/echo", content=b"there").content == b"there"


@contextmanager
def embedded_http_server(at: str = "127.0.0.1") -> Iterator[int]:
    """An HTTP server that sends back what it is sent."""

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer((at, 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_command_line_quotes_every_setting() -> None:
    """Names of the pool file are words of the command, whatever characters they hold."""
    command = agent_command(workdir="/data/a b; rm -rf", python="py thon", container="x$(id)")
    assert command.startswith("exec docker exec -i 'x$(id)' 'py thon' -I -S -c ")
    assert command.endswith(" '/data/a b; rm -rf'")


def test_bytes_that_do_not_match_their_hash_are_not_run(tmp_path: Path) -> None:
    """The bootstrap refuses a source that was changed on the way."""
    agent = LocalAgent.__new__(LocalAgent)
    agent.process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", BOOTSTRAP, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    source = b"open('canary', 'w')"
    agent.send(b"%08x %s" % (len(source), b"0" * 64) + source)
    assert b"do not match their hash" in agent.close()


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
OPERATIONS = [
    "facts", "acquire", "renew", "release", "launch", "poll", "jobs", "fence", "cancel", "listeners", "probe",
    "put", "read", "digest", "make_directory", "list_directory", "none",
]  # fmt: skip
FIELDS = ["job_id", "lease", "spec", "owner", "nonce", "ttl_s", "ports", "name", "path", "mode", "offset", "cap"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    operation=st.sampled_from(OPERATIONS),
    fields=st.dictionaries(st.sampled_from(FIELDS), values, max_size=8),
)
def test_no_request_ends_the_agent(local_agent: LocalAgent, operation: str, fields: dict[str, object]) -> None:
    """Any well-formed JSON gets an answer: ok or a named refusal, never a traceback and never silence."""
    answer = local_agent.ask(op=operation, **fields)
    assert answer is not None
    assert answer["ok"] is True or answer["error"] in {
        "bad_request", "lease_refused", "not_found", "path_outside", "os_error",
    }  # fmt: skip


@pytest.fixture(scope="module")
def local_agent(tmp_path_factory: pytest.TempPathFactory) -> LocalAgent:
    agent = LocalAgent(tmp_path_factory.mktemp("local"))
    yield agent  # type: ignore[misc]
    agent.close()


@pytest.mark.parametrize("line", [b"not json\n", b"\xff\xfe\n", b"[]\n", b'{"payload": -1}\n', b'{"payload": 1e99}\n'])
def test_a_line_that_is_no_request_ends_the_conversation(tmp_path: Path, line: bytes) -> None:
    """What cannot be a request cannot be answered: the agent leaves, quietly, and the client opens a new one."""
    agent = LocalAgent(tmp_path)
    agent.send(line)
    assert agent.read_answer() is None
    assert agent.close() == b""


EVIL = {
    "an endless stream": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "a frame of another request": "print('\\n@@000 2 0\\n{}', flush=True); import time; time.sleep(30)",
    "a size beyond every limit": "FRAME(10**12, 0)",
    "a data size beyond every limit": "FRAME(2, 10**12)",
    "a negative size": "FRAME(-5, 0)",
    "a size that is no number": "FRAME('x', 0)",
    "a body that is no JSON": "FRAME(2, 0); OUT('x]')",
    "a body that is no object": "FRAME(2, 0); OUT('[]')",
    "half an answer": "FRAME(100, 0); OUT('{'); import os; os._exit(0)",
}
EVIL_PRELUDE = """
import json, sys
def OUT(text):
    sys.stdout.write(text); sys.stdout.flush()
def FRAME(size, data):
    head = sys.stdin.buffer.read(73)
    sys.stdin.buffer.read(int(head[:8], 16))
    OUT("\\n@@%s %s %s\\n" % (json.loads(sys.stdin.buffer.readline())["id"], size, data))
"""


@pytest.mark.parametrize("kind", EVIL)
def test_a_hostile_host_is_unreachable_and_bounded(embedded: TestHost, kind: str) -> None:
    """Whatever a broken or hostile host sends, the call ends at its deadline and memory stays bounded."""
    program = embedded.directory / "evil.py"
    program.write_text(EVIL_PRELUDE + EVIL[kind])
    script = embedded.directory / "evil"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {program}\n")
    script.chmod(0o755)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    with pytest.raises(HostUnreachable):
        embedded.another(python=str(script)).poll("job", timeout_s=0.8)
    assert time.monotonic() - started < 1.8
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_state_of_a_newer_agent_is_no_state(embedded: TestHost) -> None:
    """A status word that we do not know is an error of the protocol, not a guess."""
    script = embedded.directory / "newer"
    body = json.dumps({"ok": True, "job_id": "job", "status": "resting", "log_size": 0, "pids": []})
    program = embedded.directory / "newer.py"
    reply = f"body = {body!r}\nFRAME(len(body), 0); OUT(body)\nwhile True:\n    line = sys.stdin.buffer.readline()\n"
    reply += "    if not line: break\n"
    reply += "    OUT('\\n@@%s %d 0\\n%s' % (json.loads(line)['id'], len(body), body))\n"
    program.write_text(EVIL_PRELUDE + reply)
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {program}\n")
    script.chmod(0o755)
    with pytest.raises(HostUnreachable, match="does not understand"):
        embedded.another(python=str(script)).poll("job", timeout_s=3.0)


def test_the_agents_file_is_kept_as_a_record_and_never_run(embedded: TestHost) -> None:
    """Replacing the stored copy on the host changes nothing: what runs is what was sent."""
    facts = embedded.remote.facts()
    stored = embedded.workdir / ".tuneloop" / f"agent-{facts.agent_sha256}.py"
    stored.write_text("raise SystemExit('replaced')")
    assert embedded.another().facts().agent_sha256 == facts.agent_sha256


def test_secrets_of_our_process_do_not_reach_the_host(embedded: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on the embedded host sees none of the service's own environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary-5f1e")
    embedded.remote.launch(shell(embedded, "job", "env"), lease_of(embedded))
    finished(embedded.remote, "job")
    assert b"canary" not in embedded.remote.read_log("job").data
    files = [path for path in embedded.workdir.rglob("*") if path.is_file()]
    assert not any(b"canary-5f1e" in path.read_bytes() for path in files)


def test_a_stuck_request_does_not_block_the_host_for_ever(embedded: TestHost) -> None:
    """While one agent holds the lock without end, others are told that the host is busy, and polls still work."""
    lease = lease_of(embedded)
    with open(embedded.workdir / ".tuneloop/mutex", "rb") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        with pytest.raises(HostRefused, match="another request has held") as caught:
            embedded.remote.launch(shell(embedded, "job", "true"), lease, timeout_s=0.5)
        assert caught.value.code == "busy"
        assert embedded.remote.poll("job").status is JobStatus.ABSENT


def test_a_request_beyond_the_agents_limits_is_refused_here(embedded: TestHost) -> None:
    """What the agent would not take is said at once, not after a deadline of tries."""
    spec = shell(embedded, "job", "true", env={"BIG": "x" * 1_000_000})
    with pytest.raises(HostRefused, match="larger than the agent takes"):
        embedded.remote.launch(spec, lease_of(embedded))


def test_a_working_directory_outside_is_refused_by_the_host(embedded: TestHost) -> None:
    """A cwd that leads out by a link claims nothing."""
    lease = lease_of(embedded)
    (embedded.workdir / "out").symlink_to("/")
    spec = shell(embedded, "job", "true", cwd=f"{embedded.workdir}/out")
    with pytest.raises(HostRefused, match="not below"):
        embedded.remote.launch(spec, lease)
    assert embedded.remote.poll("job").status is JobStatus.ABSENT


def test_an_ordinary_user_is_enough() -> None:
    """Without root: no cgroup, foreign sockets without an owner, and everything else as ever."""
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    with (
        tempfile.TemporaryDirectory(prefix="tuneloop-nobody-") as name,
        socket.create_server(("127.0.0.1", 0)) as foreign,
    ):
        os.chown(name, 65534, 65534)
        agent = LocalAgent(Path(name), python="/usr/bin/python3", user=65534)
        lease = {"owner": "o", "epoch": 1}
        assert agent.ask(op="acquire", owner="o", nonce="n", ttl_s=60.0)["epoch"] == 1
        spec = {"argv": ["/bin/sh", "-c", "setsid sleep 60 & exit 3"], "env": {}, "cwd": name, "ttl": 20.0}
        spec |= {"allow_daemons": False, "grace": 0.1, "log_cap": 1 << 20, "digest": "d", "min_free_bytes": 0}
        agent.ask(op="launch", job_id="job", spec=spec, lease=lease)
        state = agent.ask(op="poll", job_id="job", wait_s=10.0)
        assert (state["status"], state["exit_code"], state["why"]) == ("exited", 3, "main_exit_leftover")
        started = json.loads((Path(name) / ".tuneloop/jobs/job/started.json").read_text())
        assert started["cgroup"] is None
        found = agent.ask(op="listeners", ports=[foreign.getsockname()[1]])["listeners"]
        assert [(entry["pid"], entry["job_id"]) for entry in found] == [(None, None)]
        assert agent.close() == b""
