"""The one file that travels is the whole agent: every module, each name once, for any Python from 3.8 on."""

from __future__ import annotations

import ast
import sys
from collections import Counter

from executor.ssh.agent_bundle import FOLDER, MODULES, PACKAGE, agent_source


def test_every_module_of_the_agent_travels() -> None:
    """A module that is not listed would be missing on the host only."""
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__"} == set(MODULES)


def test_a_module_needs_only_what_stands_before_it() -> None:
    """In one file a base class or a default value has to exist before it is used."""
    for place, name in enumerate(MODULES):
        tree = ast.parse((FOLDER / f"{name}.py").read_text())
        needed = {
            node.module.removeprefix(f"{PACKAGE}.")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.") and node.module
        }
        assert needed <= set(MODULES[:place]), name


def test_each_name_is_defined_once() -> None:
    """All modules share one namespace on the host."""
    names: Counter[str] = Counter()
    for node in ast.parse(agent_source()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] += 1
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                names[name] += 1
            case _:
                pass
    assert [name for name, count in names.items() if count > 1] == []


def test_it_is_a_program_of_the_standard_library_of_python_3_8() -> None:
    """No module of ours or of others is imported, and no newer syntax is used."""
    tree = ast.parse(agent_source(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
