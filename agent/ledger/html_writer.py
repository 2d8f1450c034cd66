"""Parts of a page as HTML. Plots are inside the page as images: nothing in them can run or clash with its ids."""

from __future__ import annotations

import base64
import html

from agent.ledger.document import (
    Banner,
    Brief,
    Bullets,
    Code,
    FileLink,
    Heading,
    Label,
    PageLink,
    Paragraph,
    Picture,
    Span,
    Strong,
    Table,
)
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

    def heading(self, heading: Heading) -> str:
        name = f' id="{html.escape(heading.anchor)}"' if heading.anchor else ""
        return f"<h{heading.level}{name}>{self.text(heading.text)}</h{heading.level}>\n"

    def paragraph(self, paragraph: Paragraph, page: str) -> str:
        return f"<p>{self.inline(paragraph.content, page)}</p>\n"

    def bullets(self, bullets: Bullets, page: str) -> str:
        items = "".join([f"<li>{self.inline(item, page)}</li>\n" for item in bullets.items])
        return f"<ul>\n{items}</ul>\n"

    def banner(self, banner: Banner) -> str:
        return f'<p class="banner" role="note">{self.text(banner.text)}</p>\n'

    def picture(self, picture: Picture, page: str) -> str:
        data = base64.b64encode(self._pictures[picture.file].encode()).decode()
        return f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{self.text(picture.alt)}"></figure>\n'

    def table(self, table: Table, page: str) -> str:
        css = [' class="number"' if column in table.numeric else "" for column in range(len(table.head))]
        head = "".join([f'<th scope="col"{c}>{self.text(cell)}</th>' for c, cell in zip(css, table.head, strict=True)])
        row_format = "<tr>" + "".join([f"<td{c}>%s</td>" for c in css]) + "</tr>\n"
        rows = "".join([row_format % tuple(self.cells(row, page)) for row in table.rows])
        return (
            f'<div class="table">\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n'
        )
