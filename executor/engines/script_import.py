"""From a parsed launch script to the settings of each role, and what the import has to say about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from executor.engines.flags import normalise_flag
from executor.engines.launch_script import (
    Assignment,
    Finding,
    FindingKind,
    FlagUse,
    LaunchScript,
    ScriptCommand,
)
from executor.engines.sglang_launch import PLACED_FLAGS
from experiments.serving_config import Kind, Path, Role, ServingConfig, Value

_UNRESOLVED = re.compile(r"\$[\w({*@#]|`|<[\w .-]+>")
_INTEGER = re.compile(r"-?\d{1,18}")
_DECIMAL = re.compile(r"-?\d+\.\d+(?:[eE][+-]?\d+)?")
_SERVER = ("sglang.launch_server", "sglang serve")
_ROUTER = ("sglang_router.launch_router", "smg launch", "sglang-router")
_LAYOUT_FLAGS = frozenset({"init-expert-location"})


@dataclass(frozen=True, kw_only=True)
class ImportedScript:
    """The configuration that a script starts, and every remark, in line order."""

    config: ServingConfig
    findings: tuple[Finding, ...]


def import_settings(script: LaunchScript) -> ImportedScript:
    """Settings of every SGLang server and router that the script starts; nothing is guessed."""
    settings: dict[str, Value] = {}
    findings: list[Finding] = [
        Finding(kind=FindingKind.SOURCED, subject=name, line=line, message=f"settings of {name} are not known")
        for name, line in script.sourced
    ]
    taken: set[Role] = set()
    for command in script.commands:
        role = _role(command)
        if role is None or role in taken:
            findings.append(_left_out(command, role))
            continue
        taken.add(role)
        findings += _import_command(command, role, settings)
    ordered = sorted(set(findings), key=lambda finding: (finding.line, finding.kind, finding.subject))
    return ImportedScript(config=ServingConfig(settings=settings), findings=tuple(ordered))


def _left_out(command: ScriptCommand, role: Role | None) -> Finding:
    if role is None:
        kind, message = FindingKind.OTHER_PROGRAM, f"{command.program}: no server or router of SGLang; left out"
    else:
        kind, message = FindingKind.SECOND_COMMAND, f"{role} is started a second time; left out"
    return Finding(kind=kind, subject=command.program, line=command.line, message=message)


def _role(command: ScriptCommand) -> Role | None:
    if command.program.endswith(_ROUTER):
        return Role.ROUTER
    if not command.program.endswith(_SERVER):
        return None
    modes = [use.value for use in command.flags if normalise_flag(use.name) == "disaggregation-mode"]
    match modes[-1:]:
        case ["prefill"]:
            return Role.PREFILL
        case ["decode"]:
            return Role.DECODE
        case _:
            return Role.MIXED


def _import_command(command: ScriptCommand, role: Role, settings: dict[str, Value]) -> Iterator[Finding]:
    for name, uses in _grouped_flags(command.flags).items():
        yield from _repetitions(role, name, uses)
        yield from _aliases(role, name, uses)
        yield from _store(settings, role, name, uses[-1])
    for name, assignments in _grouped_env(command.env).items():
        yield from _env_repetitions(role, name, assignments)
        last = assignments[-1]
        if _UNRESOLVED.search(last.value):
            yield _unresolved(f"{role}.{Kind.ENV}.{name}", last.value, last.line)
        elif last.value:
            settings[str(Path(role, Kind.ENV, name))] = typed_value(last.value)


def _store(settings: dict[str, Value], role: Role, name: str, use: FlagUse) -> Iterator[Finding]:
    kind = Kind.LAYOUT if name in _LAYOUT_FLAGS else Kind.FLAG
    path = str(Path(role, kind, name))
    if name in PLACED_FLAGS:
        yield Finding(
            kind=FindingKind.PLACED_BY_POOL, subject=path, line=use.line, message=f"{path} belongs to the pool file"
        )
    elif isinstance(use.value, str) and _UNRESOLVED.search(use.value):
        yield _unresolved(path, use.value, use.line)
    else:
        settings[path] = typed_value(use.value)


def typed_value(value: str | bool) -> Value:
    """Numbers as numbers, so that a later change of 16 to 32 compares with what the script said."""
    if isinstance(value, bool):
        return value
    if _INTEGER.fullmatch(value):
        return int(value)
    return float(value) if _DECIMAL.fullmatch(value) else value


def _unresolved(path: str, value: str, line: int) -> Finding:
    return Finding(
        kind=FindingKind.UNRESOLVED, subject=path, line=line, message=f"{path} is {value}; the script does not say what"
    )


def _grouped_flags(uses: Sequence[FlagUse]) -> dict[str, list[FlagUse]]:
    grouped: dict[str, list[FlagUse]] = {}
    for use in uses:
        grouped.setdefault(normalise_flag(use.name), []).append(use)
    return grouped


def _grouped_env(assignments: Sequence[Assignment]) -> dict[str, list[Assignment]]:
    grouped: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        grouped.setdefault(assignment.name, []).append(assignment)
    return grouped


def _repetitions(role: Role, name: str, uses: Sequence[FlagUse]) -> Iterator[Finding]:
    for earlier, later in pairwise(uses):
        same = earlier.value == later.value
        yield Finding(
            kind=FindingKind.FLAG_REPEATED if same else FindingKind.FLAG_OVERRIDDEN,
            subject=str(Path(role, Kind.FLAG, name)),
            line=later.line,
            message=f"{name} {_shown(earlier)} of line {earlier.line} is given again: {_shown(later)}",
        )


def _aliases(role: Role, name: str, uses: Sequence[FlagUse]) -> Iterator[Finding]:
    for use in uses:
        if use.name.lstrip("-") != name:
            yield Finding(
                kind=FindingKind.ALIAS,
                subject=str(Path(role, Kind.FLAG, name)),
                line=use.line,
                message=f"{use.name} is {name}",
            )


def _env_repetitions(role: Role, name: str, assignments: Sequence[Assignment]) -> Iterator[Finding]:
    for earlier, later in pairwise(assignments):
        same = earlier.value == later.value
        yield Finding(
            kind=FindingKind.ENV_REPEATED if same else FindingKind.ENV_OVERRIDDEN,
            subject=str(Path(role, Kind.ENV, name)),
            line=later.line,
            message=f"{name} {earlier.value} of line {earlier.line} is set again: {later.value}",
        )


def _shown(use: FlagUse) -> str:
    return use.value if isinstance(use.value, str) else "(on)"
