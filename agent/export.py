"""A configuration as the YAML that a person starts a study from. Pure."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from experiments.serving_config import Kind, Role, ServingConfig

_SECTION = {Kind.FLAG: "flags", Kind.ENV: "env", Kind.LAYOUT: "layout"}


def baseline_yaml(config: ServingConfig, heading: str) -> str:
    """`baseline.yaml` of this configuration. The client's C and r go into the heading: they belong to the load."""
    document: dict[str, Any] = {}
    for role in (Role.PREFILL, Role.DECODE, Role.MIXED, Role.ROUTER):
        sections = {name: config.of(role, kind) for kind, name in _SECTION.items()}
        filled = {name: values for name, values in sections.items() if values}
        if filled:
            document[str(role)] = filled
    client = config.of(Role.CLIENT, Kind.CLIENT)
    lines = [f"# {line}" for line in heading.splitlines()]
    lines += [f"# client {name}: {value}" for name, value in client.items()]
    stream = io.StringIO()
    yaml = YAML()
    yaml.width = 4096
    yaml.dump(document, stream)
    return "\n".join(lines) + "\n" + stream.getvalue()
