"""The port of every proposer."""

from __future__ import annotations

from typing import Protocol

from agent.planner.packet import EvidencePacket, Proposal
from experiments.card import Source
from experiments.errors import TuningError


class ProposerUnavailable(TuningError):
    """The proposer gave no usable answer; the loop goes on with the next one. Carries the tokens it cost."""

    def __init__(self, message: str, tokens: int = 0) -> None:
        self.tokens = tokens
        super().__init__(message)


class Proposer(Protocol):
    """Proposes from the packet alone. May be slow; raises ProposerUnavailable instead of anything else."""

    @property
    def source(self) -> Source: ...

    def propose(self, packet: EvidencePacket) -> Proposal: ...
