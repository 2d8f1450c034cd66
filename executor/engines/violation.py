"""A broken rule between settings: its name, how bad it is, and a message with the figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.serving_config import Role


class Severity(StrEnum):
    """What the server would do with it."""

    INVALID = "invalid"  # it refuses to start, or runs something else than written
    NO_EFFECT = "no_effect"  # it starts, and the setting cannot do what it is there for
    RISK = "risk"  # it starts; documented trouble or waste


@dataclass(frozen=True, kw_only=True)
class Violation:
    """`message` states the figures that break the rule and what would satisfy it."""

    rule: str
    role: Role
    severity: Severity
    message: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a request brings. `None` where the goal does not fix it; rules that need it then keep silent."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    n_experts: int | None = None
