"""docker/ against the product: what is named there exists, is pinned, runs without privileges, and fits in time."""

from __future__ import annotations

import configparser
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from agent.entrypoints.check import check_workspace
from agent.entrypoints.cli import app
from agent.entrypoints.serve import PATIENCE_S
from agent.records import FILE_VARIABLE, read_url
from agent.settings import PREFIX, Settings
from executor.pool import parse_pool
from executor.ssh.config import resolve_endpoint
from state.engine import parse_url

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
DOCKERFILES = ("service.Dockerfile", "pool-host.Dockerfile")
SSHD = Path("/usr/sbin/sshd")


def lines_of(name: str) -> list[str]:
    """The instructions of a Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", (DOCKER / name).read_text())
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(YAML(typ="safe").load(DOCKER / "compose.yaml"))


def images(compose: dict[str, Any]) -> Iterator[str]:
    for name in DOCKERFILES:
        text = "\n".join(lines_of(name))
        for argument, value in re.findall(r"^ARG (\w+)=(\S+)$", text, re.M):
            text = text.replace(f"${{{argument}}}", value)
        yield from re.findall(r"^FROM (\S+)", text, re.M)
    for service in compose["services"].values():
        yield service["image"]


def test_every_image_is_pinned_and_no_registry_is_named(compose: dict[str, Any], project: dict[str, Any]) -> None:
    """A version in every tag; the names are those that whoever builds resolves as they are used to."""
    for image in images(compose):
        name, _, tag = image.partition(":")
        assert re.match(r"\d+\.\d+", tag), image
        assert "." not in name.split("/")[0], image
    ours = [service for service in compose["services"].values() if service["image"].startswith("tuneloop-")]
    assert all((ROOT / service["build"]["dockerfile"]).exists() for service in ours)  # none is to be pulled
    own = {service["image"] for service in ours}
    assert {image.partition(":")[2] for image in own} == {project["project"]["version"]}


def test_the_images_have_the_python_of_the_project(compose: dict[str, Any], project: dict[str, Any]) -> None:
    """The one that the linter and the type checker are set to."""
    (tag,) = {image.partition(":")[2] for image in images(compose) if image.startswith("python:")}
    assert tag.startswith(f"{project['tool']['mypy']['python_version']}.")
    assert tag.endswith("-slim-bookworm")


def requirements(file: Path) -> dict[str, str]:
    """Each pinned package with its hashes."""
    found, name = dict[str, str](), ""
    for line in file.read_text().splitlines():
        if re.match(r"[a-z0-9]", line):
            name = line.partition(" \\")[0]
            found[name] = ""
        elif line.strip().startswith("--hash="):
            found[name] += line.strip(" \\")
    return found


def test_what_is_installed_is_what_was_tested(project: dict[str, Any]) -> None:
    """Versions and hashes are those of requirements.lock, without what only tests need; PostgreSQL's driver is in."""
    tested, installed = requirements(ROOT / "requirements.lock"), requirements(DOCKER / "requirements.lock")
    names = {name.partition("==")[0] for name in installed}
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["postgres"]]
    wanted_names = {re.split(r"[\[>=<]", name)[0].replace(".", "-") for name in wanted}

    assert {name: hashes for name, hashes in installed.items() if tested.get(name) != hashes} == {}
    assert wanted_names <= names
    assert names & {"pytest", "ruff", "mypy", "playwright", "hypothesis"} == set()
    assert all(requirements(DOCKER / "build.lock").values())
    builder = project["build-system"]["requires"][0].partition(">")[0]
    assert builder in {name.partition("==")[0] for name in requirements(DOCKER / "build.lock")}


def test_the_images_hold_every_package_and_nothing_else() -> None:
    """What the wheel is made of is copied and passes .dockerignore, which begins by refusing everything."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = [word for name in DOCKERFILES for line in lines_of(name) for word in sources(line)]
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    passed = {line[1:].rstrip("/") for line in ignore if line.startswith("!")}

    assert {source.rstrip("/") for source in copied} == passed
    assert len({build_stage(name) for name in DOCKERFILES}) == 1
    assert set(wheel["packages"]) <= passed
    assert all((ROOT / source).exists() for source in copied)
    assert ignore[1] == "*"


def build_stage(name: str) -> str:
    """Up to the second FROM."""
    return "\n".join(lines_of(name)).split("\nFROM ")[1]


def sources(line: str) -> list[str]:
    words = line.split()
    return words[1:-1] if words[0] == "COPY" and not words[1].startswith("--from") else []


def test_nothing_runs_as_root(compose: dict[str, Any]) -> None:
    """Both images end as a user of a number, and every container of ours is read-only and without capabilities."""
    for name in DOCKERFILES:
        assert [line for line in lines_of(name) if line.startswith("USER ")] == ["USER 10001:10001"]
    for name, service in compose["services"].items():
        assert "no-new-privileges:true" in service["security_opt"], name
        if name != "database":
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name


def test_the_commands_exist(compose: dict[str, Any]) -> None:
    """What image, compose file and unit run is a command of this version."""
    known = {command.name or str(getattr(command.callback, "__name__", "")) for command in app.registered_commands}
    text = "\n".join(lines_of("service.Dockerfile"))
    unit = (DOCKER / "tuneloop.service").read_text()

    assert 'ENTRYPOINT ["tuneloop"]' in text
    started = re.findall(r'CMD \["(\w+)"', text) + re.findall(r"^ExecStart=\S+/tuneloop (\w+)", unit, re.M)
    started += [compose["services"]["service"]["command"][0]]
    started += [compose["services"]["service"]["healthcheck"]["test"][2]]
    assert started == ["serve", "serve", "serve", "status"]
    assert set(started) <= known


def test_the_variables_are_read(compose: dict[str, Any]) -> None:
    """Each variable of the service is one of its settings, and none is a secret itself."""
    variables = set(compose["services"]["service"]["environment"])
    known = {FILE_VARIABLE, *(PREFIX + name.upper() for name in Settings.model_fields)}

    assert variables <= known
    assert not {name for name in variables if name.endswith(("_KEY", "_PASSWORD", "_DATABASE_URL"))}
    assert compose["services"]["database"]["environment"].get("POSTGRES_PASSWORD") is None


def test_a_service_has_time_to_leave(compose: dict[str, Any]) -> None:
    """systemd and docker wait longer than the service takes, and start it again only after a failure."""
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DOCKER / "tuneloop.service")
    service = compose["services"]["service"]

    assert float(unit["Service"]["TimeoutStopSec"]) >= PATIENCE_S + 10
    assert float(service["stop_grace_period"].removesuffix("s")) >= PATIENCE_S + 10
    assert (unit["Service"]["Restart"], service["restart"]) == ("on-failure", "on-failure")


def test_everything_long_lived_is_watched(compose: dict[str, Any]) -> None:
    """Every container but the one of the first start has a health check, and is waited for by it."""
    services = compose["services"]
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"setup"}
    waits = services["service"]["depends_on"]
    assert {name for name, how in waits.items() if how["condition"] == "service_healthy"} == {"database", "p0", "d0"}


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_compose_reads_the_file() -> None:
    """`docker-compose config` is clean; it needs no daemon."""
    done = subprocess.run(
        ["docker-compose", "-f", str(DOCKER / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing but that the program is not installed here."""
    program = tmp_path / "tuneloop"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "tuneloop.service"
    text = (DOCKER / "tuneloop.service").read_text()
    unit.write_text(text.replace("/opt/tuneloop/bin/tuneloop", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in done.stderr.splitlines() if "tuneloop" in line]
    assert (done.returncode, said) == (0, [])


@pytest.fixture
def first_start(tmp_path: Path) -> Path:
    """What the first start makes, under a folder instead of `/`."""
    for _ in range(2):  # the second changes nothing
        subprocess.run(
            [sys.executable, str(DOCKER / "first_start.py"), str(tmp_path)], check=True, timeout=60, cwd=ROOT
        )
    return tmp_path


def test_the_first_start_makes_a_workspace_that_checks(first_start: Path) -> None:
    """Pool, goal and control file are those of a workspace; each host's key is known before the first connection."""
    demo, keys = first_start / "studies" / "demo", first_start / "keys" / "service"
    config = (keys / "ssh_config").read_text()
    pool = parse_pool((demo / "pool.yaml").read_bytes(), "pool.yaml")

    assert pool.simulated
    assert check_workspace(demo, contact=False)
    for name, host in pool.hosts.items():
        endpoint = resolve_endpoint(
            host.ssh, ssh_config=str(keys / "ssh_config"), known_hosts=str(keys / "known_hosts")
        )
        key = (first_start / "keys" / name / "host_key.pub").read_text().split()[1]
        assert f"{endpoint.known_as} ssh-ed25519 {key}" in (keys / "known_hosts").read_text()
        assert (endpoint.hostname, endpoint.user, host.address) == (name, "tuneloop", name)
    assert f"Port {port_of_sshd()}\n" in config
    assert parse_url(read_url(keys / "database.url")).host == "database"


def port_of_sshd() -> str:
    found = re.findall(r"^Port (\d+)$", (DOCKER / "sshd_config").read_text(), re.M)
    assert "\n".join(lines_of("pool-host.Dockerfile")).count(f"EXPOSE {found[0]}") == 1
    return str(found[0])


def test_secrets_of_the_first_start_are_its_owners_only(first_start: Path) -> None:
    """No private key and no URL can be read by others; the service's own key is with no host, nor theirs with it."""
    keys = first_start / "keys"
    secret = [path for path in keys.rglob("*") if path.name in ("client_key", "host_key", "database.url")]

    assert len(secret) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert [path.parent.name for path in keys.rglob("client_key*")] == ["service"] * 2
    assert (keys / "p0" / "authorized_keys").read_text().startswith("restrict,port-forwarding ssh-ed25519 ")


@pytest.mark.sshd
@pytest.mark.skipif(not SSHD.exists(), reason="openssh-server is not installed")
def test_sshd_takes_keys_only(first_start: Path) -> None:
    """sshd itself says what holds: no password, no root, no terminal, tunnels to the host's own servers only."""
    text = (DOCKER / "sshd_config").read_text().replace("/keys/host", str(first_start / "keys" / "p0"))
    file = first_start / "sshd_config"
    file.write_text(text)
    done = subprocess.run([str(SSHD), "-T", "-f", str(file)], capture_output=True, text=True, timeout=30, check=False)
    holds = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)

    assert done.returncode == 0, done.stderr
    wanted = {
        "passwordauthentication": "no",
        "kbdinteractiveauthentication": "no",
        "permitrootlogin": "no",
        "authenticationmethods": "publickey",
        "allowusers": "tuneloop",
        "permittty": "no",
        "x11forwarding": "no",
        "allowagentforwarding": "no",
        "allowtcpforwarding": "local",
        "usepam": "no",
    }
    assert {name: holds.get(name) for name in wanted} == wanted
