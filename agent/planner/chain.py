"""The proposer chain: rules and optimizer suggest, the LLM sees their suggestions, code admits.

A draft that admission refuses goes back to the LLM with the machine-readable objections, twice; after that the best
suggestion that admission takes is the card. No proposer can stop the loop: a failed one is recorded and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agent.planner.packet import EvidencePacket, Proposal
from agent.planner.port import Proposer, ProposerUnavailable
from experiments.admission import Rejection, admit
from experiments.card import Card, CardDraft
from experiments.ledger import CardAdmitted, CardRejected, LedgerEntry, ProposerFailed
from experiments.study import Study

REPAIR_ROUNDS = 2

Objections = Callable[[CardDraft], tuple[str, ...]]
"""Rules of the engine that a draft's configuration would break, each as a sentence."""


@dataclass(kw_only=True)
class Choice:
    """The card that was admitted, if any, and every entry that the search for it writes."""

    card: Card | None = None
    entries: list[LedgerEntry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def choose_card(
    study: Study,
    packet: EvidencePacket,
    *,
    suggesters: Sequence[Proposer],
    planner: Proposer | None,
    objections: Objections,
    at: datetime,
) -> Choice:
    """One admitted card, or none where nothing that is proposed may run."""
    choice = Choice()
    suggestions: list[CardDraft] = []
    for suggester in suggesters:
        proposal = _ask(suggester, packet, choice, at)
        suggestions += proposal.drafts
        if proposal.note:
            choice.notes.append(f"{suggester.source}: {proposal.note}")
    if planner is not None:
        _ask_planner(
            study, packet.model_copy(update={"suggestions": tuple(suggestions)}), planner, choice, objections, at
        )
    for draft in suggestions:
        if choice.card is None:
            _try_draft(study, packet, draft, choice, objections, at)
    return choice


def _ask(proposer: Proposer, packet: EvidencePacket, choice: Choice, at: datetime) -> Proposal:
    try:
        return proposer.propose(packet)
    except ProposerUnavailable as error:
        failed = ProposerFailed(at=at, source=proposer.source, detail=str(error)[:300], tokens=error.tokens)
        choice.entries.append(failed)
        return Proposal(drafts=())


def _ask_planner(
    study: Study, packet: EvidencePacket, planner: Proposer, choice: Choice, objections: Objections, at: datetime
) -> None:
    for _ in range(1 + REPAIR_ROUNDS):
        proposal = _ask(planner, packet, choice, at)
        refused: list[str] = []
        for draft in proposal.drafts:
            refused += _try_draft(study, packet, draft, choice, objections, at)
            if choice.card is not None:
                return
        if not refused:
            return
        packet = packet.model_copy(update={"objections": tuple(refused)})


def _try_draft(
    study: Study, packet: EvidencePacket, draft: CardDraft, choice: Choice, objections: Objections, at: datetime
) -> list[str]:
    """Admit the draft or record why not. Returns the objections."""
    result = admit(draft, study, packet.figures, objections(draft))
    if isinstance(result, Rejection):
        choice.entries.append(
            CardRejected(at=at, draft=draft, codes=tuple(map(str, result.codes)), messages=result.messages)
        )
        return [f"{code}: {message}" for code, message in zip(result.codes, result.messages, strict=True)]
    choice.card = result
    choice.entries.append(CardAdmitted(at=at, card=result))
    return []
