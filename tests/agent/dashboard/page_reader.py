"""Reads a page strictly: what is not well-formed, could run, or leads elsewhere, is an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "path", "line"}
TEXT = {"h1", "h2", "h3", "p", "ul", "li", "a", "code", "strong", "span", "pre", "kbd", "dl", "dt", "dd", "title"}
FORMS = {"form", "label", "input", "select", "option", "button", "progress"}
FRAME = {"html", "head", "meta", "link", "script", "body", "header", "nav", "main", "section", "article", "div"}
TABLES = {"table", "caption", "thead", "tbody", "tr", "th", "td"}
PLOTS = {"figure", "figcaption", "svg", "path", "text", "line"}
ELEMENTS = TEXT | FORMS | FRAME | TABLES | PLOTS | {"details", "summary", "dialog", "br"}
SCRIPTS = {"/static/htmx.min.js", "/static/dashboard.js"}


@dataclass(kw_only=True)
class PageFound:
    elements: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    text: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = PageFound()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        page, found = self.page, dict(attrs)
        page.elements.append(tag)
        if tag not in ELEMENTS:
            page.errors.append(f"element {tag}")
        page.errors += [f"attribute {name} of {tag}" for name in found if name.startswith("on") or name == "style"]
        if len(found) != len(attrs):
            page.errors.append(f"an attribute of {tag} twice")
        if tag == "script" and found.get("src") not in SCRIPTS:
            page.errors.append(f"script {found.get('src')}")
        page.addresses += [found[name] or "" for name in ("href", "src", "action", "data-hx-get") if name in found]
        page.ids += [found["id"] or ""] if "id" in found else []
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.page.errors.append(f"end of {tag} does not fit")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script" and data.strip():
            self.page.errors.append("an inline script")
        self.page.text += data

    def handle_comment(self, data: str) -> None:
        self.page.errors.append("a comment")


def read_page(html: str) -> PageFound:
    reader = _Reader()
    if not html.startswith("<!doctype html>\n"):
        reader.page.errors.append("no doctype")
    reader.feed(html)
    reader.close()
    page = reader.page
    if reader._open:
        page.errors.append(f"never closed: {reader._open}")
    page.errors += [f"the id {name} twice" for name in {i for i in page.ids if page.ids.count(i) > 1}]
    page.errors += [f"address {a}" for a in page.addresses if not a.startswith(("/", "#")) or a.startswith("//")]
    return page
