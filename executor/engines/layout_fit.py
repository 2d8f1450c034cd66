"""What the on-host fit of an expert layout says. Its words are untrusted: every field is checked. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from executor.engines.redaction import redact_line

PROGRAM = "fit_expert_layout.py"


class Fitted(BaseModel):
    """One layout. Balancedness is predicted from the recorded loads: mean load of a rank / highest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    layers: int = Field(ge=1)
    experts: int = Field(ge=1)
    slots: int = Field(ge=1)
    tokens: int = Field(ge=1)  # expert choices that were recorded
    before: float = Field(ge=0, le=1.0001)
    after: float = Field(ge=0, le=1.0001)


@dataclass(frozen=True, kw_only=True)
class FitRefused:
    """`refused`: no layout can be made of this; else the program failed, and may be tried again."""

    message: str
    refused: bool = False


def parse_fit(output: str) -> Fitted | FitRefused:
    """The last line that is a JSON object."""
    for line in reversed(output.splitlines()):
        try:
            body = json.loads(line)
        except ValueError:
            continue
        if not isinstance(body, dict):
            continue
        if "error" in body:
            return FitRefused(message=redact_line(str(body["error"])), refused=body.get("refused") is True)
        try:
            return Fitted.model_validate(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return FitRefused(message=f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    return FitRefused(message="the program gave no answer")
