"""What the on-host summary of a profile says. Its words are untrusted: every field is checked, names are cut. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import ValidationError

from executor.engines.redaction import redact_line
from experiments.profile import ServerProfile
from experiments.serving_config import Role

PROGRAM = "summarise_profile.py"


def parse_profile(output: str, role: Role, steps: int) -> ServerProfile | str:
    """The conclusions, or why there are none."""
    body = _answer(output)
    if body is None:
        return "the summary gave no answer"
    if "error" in body:
        return redact_line(str(body["error"]))[:200]
    try:
        return ServerProfile.model_validate({**body, "role": role, "steps": steps})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"the summary is not one: {'.'.join(map(str, first['loc']))}: {first['msg']}"


def _answer(output: str) -> Mapping[str, object] | None:
    """The last line that is a JSON object."""
    for line in reversed(output.splitlines()):
        try:
            body = json.loads(line)
        except ValueError:
            continue
        if isinstance(body, dict):
            return body
    return None
