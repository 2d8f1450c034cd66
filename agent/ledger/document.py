"""What a page says, apart from how it looks: blocks of spans that are written as Markdown or as HTML.

One description of a page serves both formats, so they cannot disagree. Every text in it is untrusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mood(StrEnum):
    """What a label stands for; decides its colour and nothing else."""

    GOOD = "good"
    BAD = "bad"
    FAULT = "fault"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Code:
    """Text to be read letter by letter: a path, a digest."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    text: str


@dataclass(frozen=True, slots=True)
class Brief:
    """The beginning of a long text. It is cut after private details are gone, so that no half of one is left."""

    text: str
    most: int = 140


@dataclass(frozen=True, slots=True)
class Label:
    """An outcome in one or two words."""

    text: str
    mood: Mood = Mood.PLAIN


@dataclass(frozen=True, slots=True)
class PageLink:
    """To a page of this ledger, by its path without suffix from the ledger folder."""

    text: str
    page: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class FileLink:
    """To a file beside the ledger, by its path from the page."""

    text: str
    href: str


Span = str | Code | Strong | Brief | Label | PageLink | FileLink
Inline = Span | tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    text: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    content: Inline


@dataclass(frozen=True, slots=True)
class Banner:
    """A warning that must not be overlooked."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """`numeric` are the columns that are aligned to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[Inline, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot, by its file name in `plots/`."""

    file: str
    alt: str


Block = Heading | Paragraph | Banner | Bullets | Table | Picture


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `path` is where it lies in the ledger folder, without suffix: `index`, `cards/c01-…`."""

    path: str
    title: str
    blocks: tuple[Block, ...]
