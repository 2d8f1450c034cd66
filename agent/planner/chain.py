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
from agent.planner.optimizer import text_of
from agent.planner.packet import EvidencePacket, Proposal
from agent.planner.port import Proposer, ProposerUnavailable
from agent.planner.ranking import Ranked, Ranking
from agent.planner.share import is_control_turn, is_model_turn
from experiments.admission import Code, Objection, Rejection, admit
from experiments.card import Card, CardDraft, Source
from experiments.ledger import CardAdmitted, CardRejected, LedgerEntry, ProposalMade
from experiments.study import Study

REPAIR_ROUNDS = 2
HOPELESS = 0.03  # a smaller probability to start is as good as a launch thrown away
OUTBID = 3
NEARLY = 0.8
SHOWN = 300  # characters of a note or a failure that go into the ledger

_Judged = tuple[Ranked, CardDraft]

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
        self._best: Ranked | None = None  # of the suggestions
        self.choice = Choice()

    def collect(self, suggesters: Sequence[Proposer]) -> tuple[CardDraft, ...]:
        """What the goal's chain suggests, best first: by one yardstick, whoever it is from."""
        allowed, found = self._study.goal.planner.chain, list[CardDraft]()
        for suggester in sorted((s for s in suggesters if s.source in allowed), key=lambda s: allowed.index(s.source)):
            proposal = self.ask(suggester)
            found += proposal.drafts
            if proposal.note:
                self.choice.notes.append(f"{suggester.source}: {proposal.note}")
        ordered = self._ordered(found)
        if self._ranking.knows_enough and ordered:
            self._best = self._ranking.of_draft(ordered[0])
        return tuple(ordered)

    def _ordered(self, drafts: list[CardDraft]) -> list[CardDraft]:
        """Stable: of two drafts of one change the one stands first whose proposer is earlier in the chain."""
        if not self._ranking.knows_enough:
            return drafts
        judged = [(ranked, draft) for draft in drafts if (ranked := self._ranking.of_draft(draft)) is not None]
        judged.sort(key=lambda pair: pair[0].order)
        return [draft for _, draft in self._explained_first(judged)]

    def _explained_first(self, judged: list[_Judged]) -> list[_Judged]:
        """Of drafts that turn one knob, the one comes first whose mechanism shows a sign of its own beside the wall's.

        Such a card says why and goes step by step, unless a larger step promises clearly more.
        """
        of_walls = {name for wall in self._packet.walls for name in wall.figures}

        def is_explained(pair: _Judged, best: Ranked) -> bool:
            ranked, draft = pair
            has_sign = draft.source is Source.RULES and any(ref.id not in of_walls for ref in draft.evidence)
            return has_sign and ranked.worth >= NEARLY * best.worth

        ordered: list[_Judged] = []
        for pair in judged:
            same = [p for p in judged if p[1].change.path == pair[1].change.path and p not in ordered]
            ordered += [p for p in same if is_explained(p, pair[0])]
            if pair not in ordered:
                ordered.append(pair)
        return ordered

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
            draft, self._study, self._packet.figures, self._objections(draft), expected=self._expected(draft)
        )
        if isinstance(result, Rejection):
            self.choice.entries.append(
                CardRejected(at=self._at, draft=draft, codes=tuple(map(str, result.codes)), messages=result.messages)
            )
            return [f"{code}: {message}" for code, message in zip(result.codes, result.messages, strict=True)]
        self.choice.card = result
        self.choice.entries.append(CardAdmitted(at=self._at, card=result))
        return []

    def _expected(self, draft: CardDraft) -> Objection | None:
        """What the runs so far say against a draft: it could not start, or a suggestion promises far more.

        The second is asked of the language model only: it may choose among what is comparable, and say something new of
        what was never tried, but not lead away from what the evidence points at.
        """
        ranked = self._ranking.of_draft(draft) if self._ranking.knows_enough else None
        if ranked is None:
            return None
        if ranked.outlook.starts < HOPELESS:
            why = f"{draft.change} needs no less than a configuration that could not start"
            return Objection(Code.EXPECTED_INFEASIBLE, why)
        if draft.source is Source.LLM and self._best is not None and ranked.worth * OUTBID < self._best.worth:
            better = text_of(self._best.move)
            return Objection(Code.OUTBID, f"the runs so far promise {OUTBID} times as much of {better}")
        return None


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
