"""The prompt of the LLM planner, rendered from the evidence packet and nothing else.

All that the packet says becomes one JSON document: a text can never be more than a string in it, whatever it holds.
Too long a prompt loses outcomes first, the oldest out of scope before any other, and says how many.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, StrictUndefined, Template, select_autoescape

from agent.llm.chat import Message
from agent.planner.packet import EvidencePacket, OutcomePart
from agent.planner.packet_document import Document, PacketDocument
from agent.planner.redaction import Redactor
from experiments.card import Wall
from experiments.serving_config import Value, digest
from prompts import load, version

MAX_CARDS = 3
_ROW = ",\n  "  # between two rows of a table

# Prompts are plain text for a model, not markup: there is nothing to escape but what JSON escapes.
_ENVIRONMENT = Environment(
    undefined=StrictUndefined,
    autoescape=select_autoescape(enabled_extensions=(), default_for_string=False),
)


class PromptTooLong(ValueError):
    """The packet does not fit even without a single outcome."""


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt:
    """`choices` gives the real value behind every text that stands for one, by knob path."""

    messages: tuple[Message, ...]
    digest: str  # of the messages and of the template versions
    left_out: int  # outcomes that did not fit
    choices: Mapping[str, Mapping[str, Value]]

    @property
    def chars(self) -> int:
        return _chars(self.messages)


def render(packet: EvidencePacket, max_chars: int, redactor: Redactor | None = None) -> RenderedPrompt:
    """Raises PromptTooLong. The outcomes of a packet stand oldest first."""
    view = PacketDocument(packet, redactor or Redactor())
    order = _expendable(packet.outcomes)
    dropped = 0
    while True:
        gone = set(order[:dropped])
        kept = [outcome for place, outcome in enumerate(packet.outcomes) if place not in gone]
        messages = _messages(view, kept, dropped)
        excess = _chars(messages) - max_chars
        if excess <= 0:
            break
        if dropped == len(order):
            raise PromptTooLong(f"the packet is {excess} characters too long for {max_chars} without any outcome")
        rows = (len(_ROW + _line(view.outcome(packet.outcomes[place]))) for place in order[dropped:])
        dropped += _count_to_free(excess, rows)
    return RenderedPrompt(messages=messages, digest=prompt_digest(messages), left_out=dropped, choices=view.choices)


def prompt_digest(messages: Sequence[Message]) -> str:
    """SHA-256 over the template versions and every message in full."""
    parts = [version("planner.md"), version("repair.md"), *(f"{m.role}\n{m.content}" for m in messages)]
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def read_document(messages: Sequence[Message]) -> Document:
    """The packet as the model sees it. For scripted models: they know no more than a real one."""
    text = messages[1].content
    document, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    if not isinstance(document, dict):
        raise TypeError("the evidence of a prompt is one JSON object")
    return document


def _chars(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages)


def _expendable(outcomes: Sequence[OutcomePart]) -> list[int]:
    """Places of outcomes in the order in which they may go: out of scope before in scope, the oldest first."""
    return sorted(range(len(outcomes)), key=lambda place: (outcomes[place].in_scope, place))


def _count_to_free(excess: int, lengths: Iterable[int]) -> int:
    freed = count = 0
    for length in lengths:
        if freed >= excess:
            break
        freed += length
        count += 1
    return count


def _messages(view: PacketDocument, outcomes: Sequence[OutcomePart], left_out: int) -> tuple[Message, ...]:
    document = _document_text(view.rows(outcomes, left_out))
    objections = "\n".join(map(_line, view.objections()))
    # Not to be foreseen by the author of any text inside: it depends on all of them.
    fence = f"=====data-{digest([document, objections])[:16]}====="
    variables = {
        "max_cards": MAX_CARDS,
        "walls": ", ".join(Wall),
        "fence": fence,
        "document": document,
    }
    user = _render_block("evidence", variables)
    if objections:
        user += "\n\n" + _template("repair.md").render(fence=fence, objections=objections).strip()
    return (
        Message(role="system", content=_render_block("rules", variables)),
        Message(role="user", content=user),
    )


@cache
def _template(name: str) -> Template:
    return _ENVIRONMENT.from_string(load(name))


def _render_block(name: str, variables: Mapping[str, object]) -> str:
    template = _template("planner.md")
    return "".join(template.blocks[name](template.new_context(dict(variables)))).strip()


def _document_text(document: Mapping[str, object]) -> str:
    """JSON with one row of every table a line: easy to read, and nothing can leave its string."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list) and any(isinstance(row, dict) for row in value):
            rows = _ROW.join(map(_line, value))
            parts.append(f"{_line(name)}: [\n  {rows}\n]")
        else:
            parts.append(f"{_line(name)}: {_line(value)}")
    return "{\n" + ",\n".join(parts) + "\n}"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
