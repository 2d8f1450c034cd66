"""A configuration as the scripts that start it by hand: the very commands that its trials were started with. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from executor.pool import Pool
from executor.remote_host import JobSpec
from executor.service import Placed, compile_job
from experiments.serving_config import Role, ServingConfig

SERVERS = (Role.PREFILL, Role.DECODE, Role.MIXED)


def launch_scripts(config: ServingConfig, pool: Pool, heading: str) -> dict[str, str]:
    """File name → bash script, servers before the router, in the order in which they are started."""
    servers = [_placed(pool, role) for role in SERVERS if pool.hosts_of(role)]
    if pool.cards.deployment == "pd":
        servers.append(Placed(role=Role.ROUTER, host=pool.router.on, job_id="", port=pool.router.port, reused=False))
    return {
        f"{number}-{server.role}.sh": _script(server, compile_job(pool, config, server, servers), heading)
        for number, server in enumerate(servers, start=1)
    }


def _placed(pool: Pool, role: Role) -> Placed:
    name, host = next(iter(pool.hosts_of(role).items()))
    return Placed(role=role, host=name, job_id="", port=host.port, reused=False)


def _script(server: Placed, spec: JobSpec, heading: str) -> str:
    return "\n".join(("#!/usr/bin/env bash", *_comment(server, heading), *_commands(spec))) + "\n"


def _comment(server: Placed, heading: str) -> Iterator[str]:
    for line in (f"{server.role}, on host {server.host} of the pool", *heading.splitlines()):
        yield f"# {line}"


def _commands(spec: JobSpec) -> Iterator[str]:
    """Nothing of a value is left to the shell: each word and each variable is quoted."""
    yield "set -euo pipefail"
    yield f"cd {shlex.quote(spec.cwd)}"
    for name, value in sorted(spec.env.items()):
        yield f"export {name}={shlex.quote(value)}"
    yield " \\\n    ".join(("exec " + shlex.quote(spec.argv[0]), *_options(spec.argv[1:])))


def _options(words: tuple[str, ...]) -> Iterator[str]:
    """One option with its values per line."""
    line: list[str] = []
    for word in words:
        if word.startswith("-") and line:
            yield " ".join(map(shlex.quote, line))
            line = []
        line.append(word)
    if line:
        yield " ".join(map(shlex.quote, line))
