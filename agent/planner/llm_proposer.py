"""The proposer that asks a language model. What it is told is the packet; what it may say is a draft.

Repair rounds after admission belong to the caller, who puts the objections into the packet. Only an answer of which
no card names a knob is repaired here, once: it gives no draft that could be refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent.llm.chat import ChatModel, ChatUnavailable, Message, Reply, estimate_tokens
from agent.planner.llm_answer import Mapped, PlannerAnswer, map_answer
from agent.planner.packet import EvidencePacket, Proposal
from agent.planner.port import ProposerUnavailable
from agent.planner.prompt import PromptTooLong, RenderedPrompt, render
from agent.planner.redaction import Redactor
from experiments.card import Source

PROMPT_CHARS = 48_000
NOTE_CHARS = 400
ANSWER_TOKENS = 1500  # what an answer takes as a rule


@dataclass(frozen=True, kw_only=True)
class _Answered:
    mapped: Mapped
    note: str
    tokens: int  # of this answer and of those before it
    reply: Reply[PlannerAnswer]


class LlmProposer:
    """`private` are the words of the pool that must not leave: hosts, accounts, folders."""

    def __init__(self, model: ChatModel, max_chars: int = PROMPT_CHARS, private: Collection[str] = ()) -> None:
        self._model, self._max_chars = model, max_chars
        self._redactor = Redactor(private)

    @property
    def source(self) -> Source:
        return Source.LLM

    def propose(self, packet: EvidencePacket) -> Proposal:
        answered = self._ask(packet, spent=0)
        replies = [answered.reply]
        if _names_no_knob(answered.mapped):
            objections = (*packet.objections, *answered.mapped.objections)
            answered = self._ask(packet.model_copy(update={"objections": objections}), spent=answered.tokens)
            replies.append(answered.reply)
        if _names_no_knob(answered.mapped):
            raise ProposerUnavailable("no card of the model's answer names a knob of the goal", answered.tokens)
        reply = answered.reply
        return Proposal(
            drafts=answered.mapped.drafts,
            note=answered.note,
            tokens=answered.tokens,
            cost=_total(r.cost for r in replies),
            model=reply.model,
            rung=reply.rung,
            seconds=_total(r.seconds for r in replies),
        )

    def _ask(self, packet: EvidencePacket, spent: int) -> _Answered:
        prompt = self._render(packet, spent)
        _check_budget(packet.budget.tokens_left, prompt.messages, spent)
        try:
            reply = self._model.complete(prompt.messages, PlannerAnswer)
        except ChatUnavailable as failure:
            raise ProposerUnavailable(str(failure), spent + failure.tokens) from None
        tokens = spent + reply.tokens
        mapped = map_answer(reply.parsed, packet, prompt, tokens)
        note = self._redactor.text(" ".join((reply.parsed.note, *mapped.objections)), NOTE_CHARS)
        return _Answered(mapped=mapped, note=note, tokens=tokens, reply=reply)

    def _render(self, packet: EvidencePacket, spent: int) -> RenderedPrompt:
        try:
            return render(packet, self._max_chars, self._redactor)
        except PromptTooLong as error:
            raise ProposerUnavailable(f"{error}; raise TUNELOOP_LLM_PROMPT_CHARS", spent) from None


def _total(parts: Iterable[float | None]) -> float | None:
    """None where no part is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _names_no_knob(mapped: Mapped) -> bool:
    return bool(mapped.objections) and not mapped.drafts


def _check_budget(tokens_left: int | None, messages: tuple[Message, ...], spent: int) -> None:
    """Asks only what can be paid: the last call of a budget may not exceed it by a whole prompt."""
    needed = spent + ANSWER_TOKENS + sum(estimate_tokens(message.content) for message in messages)
    if tokens_left is not None and needed > tokens_left:
        raise ProposerUnavailable(
            f"the token budget holds {tokens_left} more tokens, this prompt would take about {needed}", spent
        )
