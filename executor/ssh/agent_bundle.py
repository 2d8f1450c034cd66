"""The host agent as the one file that travels: its modules one after the other, without their imports of one another.

Names are unique over all modules, so that one namespace can hold them; what is written on the host reads like source.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "executor.host_agent"
FOLDER = Path(__file__).parents[1] / "host_agent"
# Each needs only what stands before it.
MODULES = (
    "protocol",
    "processes",
    "records",
    "cgroups",
    "job",
    "supervisor",
    "mutex",
    "root",
    "leases",
    "jobs",
    "network",
    "files",
    "facts",
    "main",
)


@cache
def agent_source() -> bytes:
    """The whole agent as one program of the standard library."""
    parts = ["from __future__ import annotations\n"]
    for name in MODULES:
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        parts.append(f"# --- {name}.py\n" + "".join(_kept_lines(source)))
    return "\n\n".join(parts).encode()


@cache
def agent_sha256() -> str:
    return hashlib.sha256(agent_source()).hexdigest()


def _kept_lines(source: str) -> Iterator[str]:
    """All but the imports that a single file cannot have."""
    dropped: set[int] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and _is_internal(node.module or ""):
            dropped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(source.splitlines(keepends=True), start=1):
        if number not in dropped:
            yield line


def _is_internal(module: str) -> bool:
    return module == "__future__" or module.startswith(PACKAGE)
