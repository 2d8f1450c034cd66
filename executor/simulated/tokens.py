"""The tokenizer of the simulated models: one token per blank-separated word.

`<|seg:KEY:N|>` is a word that stands for N tokens of text named KEY, so that long prompts need no long files. Two texts
share a prefix as far as their words are equal, seen in blocks of one page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from hashlib import blake2b

from executor.simulated.model.workload import Segment

BLOCK = 128
_STAND_IN = re.compile(r"<\|seg:([^:|>]+):(\d+)\|>")
_COPY_WORDS = ("copy", "repeat", "复制", "原文")


def count_tokens(text: str) -> int:
    """Tokens of `text`, stand-ins counted with what they stand for."""
    return sum(segment.tokens for segment in split_blocks(text))


def split_blocks(text: str) -> list[Segment]:
    """The text as segments: stand-ins as they are, other words in blocks of a page each."""
    segments: list[Segment] = []
    position = 0
    for match in _STAND_IN.finditer(text):
        segments.extend(_blocks(text[position : match.start()]))
        segments.append(Segment(match[1], int(match[2])))
        position = match.end()
    segments.extend(_blocks(text[position:]))
    return segments


def _blocks(text: str) -> list[Segment]:
    words = text.split()
    return [_block(words[start : start + BLOCK]) for start in range(0, len(words), BLOCK)]


def _block(words: Sequence[str]) -> Segment:
    return Segment(_digest(" ".join(words)), len(words))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def wrap_chat(segments: Sequence[Segment], overhead: int) -> tuple[Segment, ...]:
    """A chat message: half of the template's tokens come before the text, the rest after it."""
    head = overhead // 2
    return (Segment("chat-head", head), *segments, Segment("chat-tail", overhead - head))


def segment_prompts(texts: Sequence[str], shared: Container[str] = ()) -> list[tuple[Segment, ...]]:
    """Segments of many prompts. A prompt whose first block nobody shares needs no finer split than two segments.

    `shared` are keys of first blocks that a cache already holds.
    """
    heads = [_first_key(text) for text in texts]
    counts = Counter(heads)
    return [
        tuple(split_blocks(text)) if counts[head] > 1 or head in shared or _STAND_IN.search(text) else _two(text)
        for text, head in zip(texts, heads, strict=True)
    ]


def _first_key(text: str) -> str:
    words = text.split(None, BLOCK)
    return _digest(" ".join(words[:BLOCK]))


def _two(text: str) -> tuple[Segment, ...]:
    words = text.split(None, BLOCK)
    if len(words) <= BLOCK:
        return (_block(words),) if words else ()
    rest = words[BLOCK]
    return (_block(words[:BLOCK]), Segment(_digest(rest), len(rest.split())))


def task_of(text: str) -> str:
    """`copy` for a prompt that asks to repeat its text, else `ordinary`."""
    ends = (text[:300] + " " + text[-300:]).lower()
    return "copy" if any(word in ends for word in _COPY_WORDS) else "ordinary"
