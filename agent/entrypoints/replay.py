"""Replay recorded conversations: what the model was asked and answered, and whether today's code still reads it.

Nothing is sent anywhere. Each question is put to the recording as the planner would put it; an answer that no longer
fits the schema, or that stands under another question's key, is said and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.llm.chat import ChatUnavailable, Message, Reply
from agent.llm.recording import Answered, Conversation, RecordedModel, conversation_key, read_conversations
from agent.planner.llm_answer import PlannerAnswer
from agent.planner.prompt import read_document
from experiments.errors import InputError

SHOWN = 100  # characters of a text that a model wrote


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One line per conversation and card, and how many conversations could not be replayed."""

    lines: tuple[str, ...]
    broken: int


def replay_conversations(folder: Path) -> Replay:
    conversations = read_conversations(folder)
    if not conversations:
        raise InputError(str(folder), 0, 0, "holds no recorded conversation (conversations-*.jsonl)")
    lines: list[str] = []
    broken = tokens = 0
    for number, conversation in enumerate(conversations, start=1):
        found, is_broken = _replayed(number, conversation)
        lines += found
        broken += is_broken
        tokens += _tokens(conversation)
    lines.append(f"{len(conversations)} conversations, {tokens} tokens, {broken} that cannot be replayed")
    return Replay(lines=tuple(lines), broken=broken)


def _replayed(number: int, conversation: Conversation) -> tuple[list[str], bool]:
    head = f"{number:>4}  {conversation.at:%Y-%m-%d %H:%M:%S}"
    messages = tuple(Message(role=m.role, content=m.content) for m in conversation.messages)
    if conversation_key(messages, conversation.schema_name) != conversation.key:
        return [f"{head}  not replayed: the question is not the one that its key was made of"], True
    try:
        reply = RecordedModel([conversation]).complete(messages, PlannerAnswer)
    except ChatUnavailable as failure:
        is_answer = isinstance(conversation.outcome, Answered)
        return [f"{head}  {'not replayed' if is_answer else 'no answer then'}: {failure}"], is_answer
    return [f"{head}  {_account(reply)}", *_cards(reply.parsed, messages)], False


def _account(reply: Reply[PlannerAnswer]) -> str:
    cost = "cost unknown" if reply.cost is None else f"cost {reply.cost:.4f}"
    return f"{_text(reply.model)} by {reply.rung}, {reply.tokens} tokens, {cost}, {reply.seconds:.1f} s"


def _cards(answer: PlannerAnswer, messages: Sequence[Message]) -> Iterator[str]:
    known = _knobs(messages)
    for card in answer.cards:
        unknown = "" if known is None or card.knob in known else "  (no knob of the question)"
        yield (
            f"      {_text(card.knob)} → {_text(card.to_value)}  for {card.wall}, "
            f"{card.gain_low_percent:+g} to {card.gain_high_percent:+g} %, p {card.probability:g}{unknown}"
        )
    if not answer.cards:
        yield f"      no card: {_text(answer.note)}"


def _knobs(messages: Sequence[Message]) -> set[str] | None:
    """The knobs that the question told of; None where it is no question of the planner's."""
    try:
        knobs = read_document(messages).get("knobs")
    except (ValueError, TypeError, IndexError):
        return None
    return {str(knob.get("path")) for knob in knobs if isinstance(knob, dict)} if isinstance(knobs, list) else None


def _tokens(conversation: Conversation) -> int:
    outcome = conversation.outcome
    return outcome.tokens_in + outcome.tokens_out if isinstance(outcome, Answered) else outcome.tokens


def _text(text: str) -> str:
    """A model's words on one line of a terminal, without control characters."""
    clean = "".join(ch if ch.isprintable() else " " for ch in text)
    return clean if len(clean) <= SHOWN else clean[: SHOWN - 1] + "…"
