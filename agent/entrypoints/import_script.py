"""`tuneloop import-script`: existing launch scripts as a baseline, and everything in them that is set twice.

Scripts are read, never run. What a baseline may not hold (places, secrets) is left out and said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.entrypoints.make_workspace import write_new
from agent.export import baseline_yaml
from agent.workspace import read_input
from executor.engines.launch_script import parse_launch_script
from executor.engines.redaction import redact_line
from executor.engines.script_import import import_settings
from experiments.baseline import refusal_of
from experiments.errors import InputError
from experiments.serving_config import Path as SettingPath
from experiments.serving_config import Role, ServingConfig, Value

ROLES = (Role.PREFILL, Role.DECODE, Role.MIXED, Role.ROUTER)


def import_scripts(files: Sequence[Path], roles: Sequence[str], target: Path) -> Iterator[str]:
    """Write `target` from what the scripts start, and say every remark as `file:line: kind: what`."""
    wanted = _roles(roles)
    settings: dict[str, Value] = {}
    for file in files:
        found, remarks = _read(file, wanted)
        yield from remarks
        taken = sorted({SettingPath.parse(k).role for k in settings} & {SettingPath.parse(k).role for k in found})
        if taken:
            raise InputError(str(file), 0, 0, f"starts {', '.join(taken)}, as an earlier script does; name one --role")
        settings |= found
    if not settings:
        of_roles = f" of role {', '.join(wanted)}" if roles else ""
        raise InputError(str(files[0]), 0, 0, f"starts no SGLang server or router{of_roles}")
    heading = "imported from " + ", ".join(file.name for file in files)
    write_new(target, baseline_yaml(ServingConfig(settings=settings), heading))
    counts = [f"{sum(key.startswith(f'{role}.') for key in settings)} of {role}" for role in _present(settings)]
    yield f"{target}: {len(settings)} settings, {', '.join(counts)}"


def _roles(names: Sequence[str]) -> tuple[Role, ...]:
    known = {str(role): role for role in ROLES}
    for name in names:
        if name not in known:
            raise InputError("--role", 0, 0, f"{name!r}: there are {', '.join(known)}")
    return tuple(known[name] for name in names) or ROLES


def _present(settings: dict[str, Value]) -> list[Role]:
    roles = {SettingPath.parse(key).role for key in settings}
    return [role for role in ROLES if role in roles]


def _read(file: Path, wanted: Sequence[Role]) -> tuple[dict[str, Value], list[str]]:
    try:
        text = read_input(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(str(file), 0, 0, f"is no UTF-8 text: {error.reason}") from error
    imported = import_settings(parse_launch_script(text, str(file)))
    other_roles = tuple(f"{role}." for role in ROLES if role not in wanted)
    remarks = [
        f"{file}:{f.line}: {f.kind}: {redact_line(f.message)}"
        for f in imported.findings
        if not f.subject.startswith(other_roles or ("\0",))
    ]
    settings: dict[str, Value] = {}
    for key, value in imported.config.settings.items():
        path = SettingPath.parse(key)
        if path.role not in wanted:
            continue
        refusal = refusal_of(path.kind, path.name, value)
        if refusal is None:
            settings[key] = value
        else:
            remarks.append(f"{file}: left out: {key} {refusal}")
    return settings, remarks
