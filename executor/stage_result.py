"""How a stage ends. Values, not exceptions: only the runner turns an exception into a recorded fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.trial import Reason, Sent

Payload = Mapping[str, Any]
"""Plain JSON data of one stage: what a later stage, or a resumed one, needs to know."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """The stage did its work. `payload` is kept in the journal; `note` is for people."""

    payload: Payload = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Faulted:
    """The stage failed and it is known how.

    `repairable`: another attempt of this stage may succeed without sending the formal load again.
    `configuration_caused`: the configuration under test did it (out of memory, rejected argument).
    """

    reason: Reason
    detail: str
    sent: Sent = Sent.NOT_SENT
    repairable: bool = False
    configuration_caused: bool = False


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Nothing was sent, because nothing may be sent now. The trial goes on later from here."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """The formal load was sent and its end cannot be learned. `detail` says what to check."""

    detail: str


StageResult = Done | Faulted | Waiting | Unknown
