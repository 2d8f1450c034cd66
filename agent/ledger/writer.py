"""What both formats share: text goes through the redactor and one escape, and links are counted from the page."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache

from agent.ledger.document import (
    Banner,
    Block,
    Bullets,
    Heading,
    Inline,
    Page,
    PageLink,
    Paragraph,
    Picture,
    Span,
    Table,
)
from agent.ledger.figures import Figure
from agent.ledger.redaction import MAX_KEPT, Redactor


@lru_cache(maxsize=4096)
def _way(page: str, folder: str) -> str:
    return posixpath.relpath(page, folder or ".")


class Writer(ABC):
    """Writes the parts of a page in one format. Everything that it returns is safe to put into a file of it.

    `pictures` are the plots by file name.
    """

    suffix: str
    template: str

    def __init__(self, redact: Redactor, pictures: Mapping[str, str]) -> None:
        self._redact = redact
        self._pictures = pictures
        self._escaped: dict[str, str] = {}

    def body(self, page: Page) -> str:
        """All blocks of the page, in order."""
        return "".join([self.block(block, page.path) for block in page.blocks])

    def block(self, block: Block, page: str) -> str:
        match block:
            case Table():
                return self.table(block, page)
            case Heading():
                return self.heading(block)
            case Paragraph():
                return self.paragraph(block, page)
            case Bullets():
                return self.bullets(block, page)
            case Banner():
                return self.banner(block)
            case Picture():
                return self.picture(block, page)

    def text(self, text: str) -> str:
        """The text without private details, escaped. Blanks at its ends are kept: it may be a piece of a sentence."""
        if type(text) is Figure:
            return text
        known = self._escaped.get(text)
        if known is None:
            if len(self._escaped) > MAX_KEPT:
                self._escaped.clear()
            known = self._escaped[text] = self._with_blanks(text)
        return known

    def brief(self, text: str, most: int) -> str:
        line = self._redact(text)
        return self.escape(line if len(line) <= most else line[: most - 1].rstrip() + "…")

    def _with_blanks(self, text: str) -> str:
        inner = self.escape(self._redact(text))
        lead = " " if text[:1].isspace() else ""
        trail = " " if inner and text[-1:].isspace() else ""
        return lead + inner + trail

    def inline(self, content: Inline, page: str) -> str:
        if isinstance(content, str):
            return self.text(content)
        if isinstance(content, tuple):
            return "".join([self.inline(span, page) for span in content])
        return self.span(content, page)

    def cells(self, row: tuple[Inline, ...], page: str) -> list[str]:
        text, inline = self.text, self.inline
        return [text(cell) if isinstance(cell, str) else inline(cell, page) for cell in row]

    def href(self, link: PageLink, page: str) -> str:
        """The way from one page to another, with `/` whatever the machine."""
        if link.page == page and link.anchor:
            return f"#{link.anchor}"
        target = _way(link.page, posixpath.dirname(page)) + self.suffix
        return f"{target}#{link.anchor}" if link.anchor else target

    @abstractmethod
    def escape(self, line: str) -> str:
        """One redacted line as plain text of the format."""

    @abstractmethod
    def span(self, span: Span, page: str) -> str: ...

    @abstractmethod
    def heading(self, heading: Heading) -> str: ...

    @abstractmethod
    def paragraph(self, paragraph: Paragraph, page: str) -> str: ...

    @abstractmethod
    def bullets(self, bullets: Bullets, page: str) -> str: ...

    @abstractmethod
    def banner(self, banner: Banner) -> str: ...

    @abstractmethod
    def picture(self, picture: Picture, page: str) -> str: ...

    @abstractmethod
    def table(self, table: Table, page: str) -> str: ...
