"""Parts of a page as Markdown, for viewers of every kind: no raw HTML, no autolinks, no markup out of stored text."""

from __future__ import annotations

import html
import posixpath
import re

from agent.ledger.document import (
    Banner,
    Brief,
    Bullets,
    Code,
    FileLink,
    Heading,
    Inline,
    Label,
    PageLink,
    Paragraph,
    Picture,
    Span,
    Strong,
    Table,
)
from agent.ledger.writer import Writer

# What Markdown acts on inside a line. An underscore within a word is left readable: it marks nothing there.
_INLINE = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
# What opens a heading, a quote, a list or a rule at the start of a block.
_BLOCK_START = re.compile(r"#{1,6}(?=\s|$)|>|[+-](?=\s|$)|[=-]+$|([0-9]{1,9})(?=[.)](\s|$))")


class MarkdownWriter(Writer):
    suffix = ".md"
    template = "page.md.j2"

    def escape(self, line: str) -> str:
        # HTML is spelled out, because not every viewer knows `\\<`.
        line = line.replace("&", "&amp;").replace("<", "&lt;")
        return _INLINE.sub(lambda found: "\\" + found.group(0), line)

    def span(self, span: Span, page: str) -> str:
        match span:
            case str():
                return self.text(span)
            case Code():
                return self._code(span.text)
            case Strong() | Label():
                return f"**{self.text(span.text)}**" if span.text else ""
            case Brief():
                return self.brief(span.text, span.most)
            case PageLink():
                return f"[{self.text(span.text)}]({self.href(span, page)})"
            case FileLink():
                return f"[{self.text(span.text)}]({span.href})"

    def _code(self, text: str) -> str:
        """A code span. A backtick or a bar inside would end it, so they are shown as look-alikes."""
        line = self._redact(text).replace("`", "ˋ").replace("|", "∣")
        return f"`{line}`" if line else ""

    def _line(self, content: Inline, page: str) -> str:
        """The line so that its first characters open no block: `1. x` is no list, `# x` no heading."""
        line = self.inline(content, page)
        found = _BLOCK_START.match(line)
        if found is None:
            return line
        place = found.end() if found[1] else 0
        return f"{line[:place]}\\{line[place:]}"

    def heading(self, heading: Heading) -> str:
        anchor = f'\n<a id="{html.escape(heading.anchor)}"></a>\n' if heading.anchor else ""
        return f"{anchor}\n{'#' * heading.level} {self.text(heading.text)}\n"

    def paragraph(self, paragraph: Paragraph, page: str) -> str:
        return f"\n{self._line(paragraph.content, page)}\n"

    def bullets(self, bullets: Bullets, page: str) -> str:
        return "\n" + "".join([f"- {self._line(item, page)}\n" for item in bullets.items])

    def banner(self, banner: Banner) -> str:
        return f"\n> **{self.text(banner.text)}**\n"

    def picture(self, picture: Picture, page: str) -> str:
        way = posixpath.relpath(f"plots/{picture.file}", posixpath.dirname(page) or ".")
        return f"\n![{self.text(picture.alt)}]({way})\n"

    def table(self, table: Table, page: str) -> str:
        rule = ["---:" if column in table.numeric else "---" for column in range(len(table.head))]
        rows = [self.cells(table.head, page), rule, *[self.cells(row, page) for row in table.rows]]
        return "\n" + "".join([f"| {' | '.join(cells)} |\n" for cells in rows])
