"""The proposer chain: code admits, the LLM is repaired twice, and no failing proposer stops the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agent.planner.chain import REPAIR_ROUNDS, Choice, choose_card
from agent.planner.packet import EvidencePacket, Proposal
from agent.planner.port import Proposer, ProposerUnavailable
from experiments.card import CardDraft, EvidenceRef, Source
from experiments.ledger import CardAdmitted, CardRejected, ProposalMade
from experiments.study import fold
from tests.agent.planner.test_evidence_packet import baseline_entries
from tests.agent.planner.test_rules import packet
from tests.factories import EVENING, a_draft

__all__ = ["packet"]


@dataclass
class Scripted:
    """Gives its answers in order, the last one for ever, and remembers the packets it was shown."""

    answers: Sequence[tuple[CardDraft, ...] | ProposerUnavailable]
    source: Source = Source.LLM
    seen: list[EvidencePacket] = field(default_factory=list)

    def propose(self, packet: EvidencePacket) -> Proposal:
        self.seen.append(packet)
        answer = self.answers[min(len(self.seen), len(self.answers)) - 1]
        if isinstance(answer, ProposerUnavailable):
            raise answer
        return Proposal(drafts=answer)


def objective_ref(packet: EvidencePacket) -> tuple[EvidenceRef, ...]:
    return (EvidenceRef(id="objective.value", value=packet.figures["objective.value"] or 0.0),)


def good(packet: EvidencePacket, source: Source = Source.LLM, to: int = 2) -> CardDraft:
    return a_draft("prefill.flag.prefill-max-requests", 1, to, evidence=objective_ref(packet), source=source)


def bad(packet: EvidencePacket) -> CardDraft:
    return a_draft("prefill.flag.prefill-max-requests", 1, 9, evidence=objective_ref(packet), source=Source.LLM)


def choose(packet: EvidencePacket, planner: Proposer | None, *suggesters: Proposer) -> Choice:
    return choose_card(
        fold(baseline_entries()),
        packet,
        suggesters=suggesters,
        planner=planner,
        objections=lambda draft: (),
        at=EVENING,
    )


def test_the_planner_sees_what_the_others_suggest(packet: EvidencePacket) -> None:
    """The LLM decides with the suggestions of rules and optimizer before it."""
    planner, rules = Scripted([(good(packet),)]), Scripted([(good(packet, Source.RULES, 3),)], Source.RULES)

    choose(packet, planner, rules)

    assert planner.seen[0].suggestions == (good(packet, Source.RULES, 3),)


def test_a_refused_draft_goes_back_with_the_objections(packet: EvidencePacket) -> None:
    """The second answer is asked for with machine-readable reasons, and is admitted."""
    planner = Scripted([(bad(packet),), (good(packet),)])

    choice = choose(packet, planner)

    assert choice.card is not None
    assert planner.seen[1].objections[0].startswith("out_of_bounds: ")
    assert [type(entry) for entry in choice.entries] == [CardRejected, CardAdmitted]


def test_after_two_repairs_the_best_other_suggestion_is_the_card(packet: EvidencePacket) -> None:
    """A planner that never answers well costs rounds, not the night."""
    planner, rules = Scripted([(bad(packet),)]), Scripted([(good(packet, Source.RULES),)], Source.RULES)

    choice = choose(packet, planner, rules)

    assert len(planner.seen) == 1 + REPAIR_ROUNDS
    assert choice.card is not None
    assert choice.card.draft.source is Source.RULES


def test_an_unavailable_planner_is_recorded_and_passed_over(packet: EvidencePacket) -> None:
    """An outage is an entry with its tokens, and the loop goes on."""
    planner = Scripted([ProposerUnavailable("no answer in 180 s", tokens=77)])
    rules = Scripted([(good(packet, Source.RULES),)], Source.RULES)

    choice = choose(packet, planner, rules)

    failed = [entry for entry in choice.entries if isinstance(entry, ProposalMade)]
    assert (failed[0].source, failed[0].tokens) == (Source.LLM, 77)
    assert choice.card is not None


def test_rules_of_the_engine_refuse_a_draft_before_anything_starts(packet: EvidencePacket) -> None:
    """What could not start is an objection and not a launch fault."""
    choice = choose_card(
        fold(baseline_entries()),
        packet,
        suggesters=[Scripted([(good(packet, Source.RULES),)], Source.RULES)],
        planner=None,
        objections=lambda draft: ("tp-size 16 is not divisible by dp-size 3",),
        at=EVENING,
    )

    assert choice.card is None
    assert [type(entry) for entry in choice.entries] == [CardRejected]


@pytest.mark.parametrize("planner", [None, Scripted([()])])
def test_no_draft_means_no_card(packet: EvidencePacket, planner: Proposer | None) -> None:
    """Where nobody has an idea, the study ends instead of inventing one."""
    assert choose(packet, planner, Scripted([()], Source.RULES)).card is None
