"""Two hosts behind embedded SSH servers, as a simulated pool has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from executor.clock import SystemClock
from executor.pool import Pool, parse_pool
from executor.remote_host import HostAddress, RemoteHost
from executor.simulated.pool import serve, write_pool_files
from tests.executor.stage_bench import Bench


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pool, dict[str, RemoteHost]]]:
    folder = tmp_path_factory.mktemp("pool")
    pool = parse_pool(write_pool_files(folder).read_bytes(), "pool.yaml")
    servers = serve(folder)
    hosts = {
        name: RemoteHost(
            HostAddress(
                name=name,
                ssh=host.ssh,
                ssh_config=pool.ssh.config,
                known_hosts=pool.ssh.known_hosts,
                workdir=pool.workdir_of(name),
                python=host.python,
            ),
            SystemClock(),
        )
        for name, host in pool.hosts.items()
    }
    yield pool, hosts
    for host in hosts.values():
        host.close()
    for server in servers:
        server.stop()


@pytest.fixture
def bench(machines: tuple[Pool, dict[str, RemoteHost]]) -> Bench:
    pool, hosts = machines
    return Bench(pool=pool, hosts=hosts)
