"""The proposer chain: rules and optimizer suggest, the LLM sees their suggestions, code admits.

On its turns the LLM leads: a draft of it that admission refuses goes back with the machine-readable objections, twice.
Otherwise, and after that, the best suggestion that admission takes is the card. No proposer can stop the loop: a failed
one is recorded and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agent.planner.control import ControlProposer
from agent.planner.packet import EvidencePacket, Proposal
from agent.planner.port import Proposer, ProposerUnavailable
from agent.planner.ranking import Ranking
from agent.planner.share import is_control_turn, is_model_turn
from experiments.admission import Rejection, admit
from experiments.card import Card, CardDraft, Source
from experiments.ledger import CardAdmitted, CardRejected, LedgerEntry, ProposalMade
from experiments.study import Study

REPAIR_ROUNDS = 2
HOPELESS = 0.03  # a smaller probability to start is as good as a launch thrown away
SHOWN = 300  # characters of a note or a failure that go into the ledger

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
    chain = _Chain(study, packet, objections, at)
    suggestions = chain.collect(suggesters)
    if planner is not None and is_control_turn(study):
        chain.take(chain.ask(ControlProposer()).drafts)
    if planner is not None and is_model_turn(study) and chain.choice.card is None:
        chain.ask_planner(planner, suggestions)
    chain.take(suggestions)
    return chain.choice


class _Chain:
    """One search for one card."""

    def __init__(self, study: Study, packet: EvidencePacket, objections: Objections, at: datetime) -> None:
        self._study, self._packet, self._objections, self._at = study, packet, objections, at
        self._ranking = Ranking(packet)
        self.choice = Choice()

    def collect(self, suggesters: Sequence[Proposer]) -> tuple[CardDraft, ...]:
        """What the goal's chain suggests, best first: by one yardstick, whoever it is from."""
        allowed, found = self._study.goal.planner.chain, list[CardDraft]()
        for suggester in sorted((s for s in suggesters if s.source in allowed), key=lambda s: allowed.index(s.source)):
            proposal = self.ask(suggester)
            found += proposal.drafts
            if proposal.note:
                self.choice.notes.append(f"{suggester.source}: {proposal.note}")
        return tuple(self._ordered(found))

    def _ordered(self, drafts: list[CardDraft]) -> list[CardDraft]:
        """Stable: of two drafts of one change the one stands first whose proposer is earlier in the chain."""
        if not self._ranking.knows_enough:
            return drafts
        judged = [(ranked.order, draft) for draft in drafts if (ranked := self._ranking.of_draft(draft)) is not None]
        return _explained_first([draft for _, draft in sorted(judged, key=lambda pair: pair[0])])

    def ask(self, proposer: Proposer, packet: EvidencePacket | None = None) -> Proposal:
        try:
            proposal = proposer.propose(packet or self._packet)
        except ProposerUnavailable as error:
            self.choice.entries.append(
                ProposalMade(
                    at=self._at, source=proposer.source, drafts=0, tokens=error.tokens, failure=str(error)[:SHOWN]
                )
            )
            return Proposal(drafts=())
        if proposal.tokens:
            self.choice.entries.append(_accounted(proposer.source, proposal, self._at))
        return proposal

    def ask_planner(self, planner: Proposer, suggestions: tuple[CardDraft, ...]) -> None:
        packet = self._packet.model_copy(update={"suggestions": suggestions})
        for _ in range(1 + REPAIR_ROUNDS):
            refused = self.take(self.ask(planner, packet).drafts)
            if self.choice.card is not None or not refused:
                return
            packet = packet.model_copy(update={"objections": tuple(refused)})

    def take(self, drafts: Sequence[CardDraft]) -> list[str]:
        """Admit the first draft that may run, and record why those before it may not. Returns the objections."""
        refused: list[str] = []
        for draft in drafts:
            if self.choice.card is None:
                refused += self._try(draft)
        return refused

    def _try(self, draft: CardDraft) -> list[str]:
        result = admit(
            draft, self._study, self._packet.figures, self._objections(draft), hopeless=self._hopeless(draft)
        )
        if isinstance(result, Rejection):
            self.choice.entries.append(
                CardRejected(at=self._at, draft=draft, codes=tuple(map(str, result.codes)), messages=result.messages)
            )
            return [f"{code}: {message}" for code, message in zip(result.codes, result.messages, strict=True)]
        self.choice.card = result
        self.choice.entries.append(CardAdmitted(at=self._at, card=result))
        return []

    def _hopeless(self, draft: CardDraft) -> str | None:
        """The feasibility estimate: what could not start before will not start with still more."""
        ranked = self._ranking.of_draft(draft) if self._ranking.knows_enough else None
        if ranked is None or ranked.outlook.starts >= HOPELESS:
            return None
        return f"{draft.change} needs no less than a configuration that could not start"


def _explained_first(drafts: list[CardDraft]) -> list[CardDraft]:
    """Of the drafts that turn one knob, those with a mechanism come first: a card should say why, and step by step."""
    ordered: list[CardDraft] = []
    for draft in drafts:
        same = [d for d in drafts if d.change.path == draft.change.path and d not in ordered]
        ordered += [d for d in same if d.source is Source.RULES]
        if draft not in ordered:
            ordered.append(draft)
    return ordered


def _accounted(source: Source, proposal: Proposal, at: datetime) -> ProposalMade:
    first = next(iter(proposal.drafts), None)
    return ProposalMade(
        at=at,
        source=source,
        drafts=len(proposal.drafts),
        tokens=proposal.tokens,
        cost=proposal.cost,
        model=proposal.model,
        rung=proposal.rung,
        seconds=proposal.seconds,
        note=proposal.note[:SHOWN],
        prompt_digest=None if first is None else first.prompt_digest,
    )
