"""Fixtures: hosts to run against, on the embedded server and on a real OpenSSH sshd where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.ssh.keys import write_new_key
from tests.executor.remote.remote_testbed import TestHost, start_embedded, start_sshd


@pytest.fixture(scope="session")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "id_ed25519"
    write_new_key(path)
    return path


@pytest.fixture(scope="session")
def host_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host-keys") / "host_ed25519"
    write_new_key(path)
    return path


@pytest.fixture
def embedded(tmp_path: Path, client_key: Path, host_key: Path) -> Iterator[TestHost]:
    host = start_embedded(tmp_path, client_key, host_key)
    yield host
    host.close()


@pytest.fixture
def sshd(tmp_path: Path, client_key: Path, host_key: Path) -> Iterator[TestHost]:
    host = start_sshd(tmp_path, client_key, host_key)
    yield host
    host.close()


@pytest.fixture(params=["embedded", pytest.param("sshd", marks=pytest.mark.sshd)])
def host(request: pytest.FixtureRequest) -> TestHost:
    """Both kinds of host: what holds on one must hold on the other."""
    found: TestHost = request.getfixturevalue(request.param)
    return found
