"""Parts of a page as HTML."""

from __future__ import annotations

import html

from agent.ledger.document import Brief, Code, FileLink, Inline, Label, PageLink, Span, Strong, Table
from agent.ledger.writer import Writer


class HtmlWriter(Writer):
    suffix = ".html"
    template = "page.html.j2"

    def escape(self, line: str) -> str:
        return html.escape(line, quote=True)

    def span(self, span: Span, page: str) -> str:
        match span:
            case str():
                return self.text(span)
            case Code():
                return f"<code>{self.text(span.text)}</code>"
            case Strong():
                return f"<strong>{self.text(span.text)}</strong>"
            case Label():
                return f'<span class="label {span.mood}">{self.text(span.text)}</span>'
            case Brief():
                return self.brief(span.text, span.most)
            case PageLink():
                return f'<a href="{html.escape(self.href(span, page))}">{self.text(span.text)}</a>'
            case FileLink():
                return f'<a href="{html.escape(span.href)}">{self.text(span.text)}</a>'

    def line(self, content: Inline, page: str) -> str:
        return self.inline(content, page)

    def table(self, table: Table, page: str) -> str:
        numeric = [' class="number"' if column in table.numeric else "" for column in range(len(table.head))]
        head = "".join(
            f'<th scope="col"{css}>{self.text(cell)}</th>' for css, cell in zip(numeric, table.head, strict=True)
        )
        rows = [
            "<tr>"
            + "".join([f"<td{css}>{self.inline(cell, page)}</td>" for css, cell in zip(numeric, row, strict=True)])
            + "</tr>\n"
            for row in table.rows
        ]
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody>\n</table>"
