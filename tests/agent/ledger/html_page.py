"""Reads a page as a browser would, strictly: what is not well-formed, or could run, is an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "link", "input"}
HEAD_ELEMENTS = {"html", "head", "meta", "title", "style", "body"}
TEXT_ELEMENTS = {"main", "h1", "h2", "h3", "p", "ul", "li", "a", "code", "strong", "span", "figure", "img"}
ELEMENTS = {"div", "table", "thead", "tbody", "tr", "th", "td"} | HEAD_ELEMENTS | TEXT_ELEMENTS
ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "id", "class", "role", "src", "alt", "scope", "href"}


@dataclass(kw_only=True)
class HtmlPage:
    elements: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    policy: str = ""
    text: str = ""
    errors: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = HtmlPage()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        page = self.page
        page.elements.append(tag)
        if tag not in ELEMENTS:
            page.errors.append(f"element {tag}")
        found = dict(attrs)
        page.errors += [f"attribute {name} of {tag}" for name in found if name not in ATTRIBUTES]
        if len(found) != len(attrs):
            page.errors.append(f"an attribute of {tag} twice")
        page.ids += [found["id"] or ""] if "id" in found else []
        page.links += [found["href"] or ""] if "href" in found else []
        page.sources += [found["src"] or ""] if "src" in found else []
        if found.get("http-equiv") == "Content-Security-Policy":
            page.policy = found["content"] or ""
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.page.errors.append(f"end of {tag} does not fit")

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.page.text += f"{data} "

    def handle_comment(self, data: str) -> None:
        self.page.errors.append("a comment")

    def close(self) -> None:
        super().close()
        if self._open:
            self.page.errors.append(f"never closed: {self._open}")
        if len(set(self.page.ids)) != len(self.page.ids):
            self.page.errors.append("an id twice")


def read_html(text: str) -> HtmlPage:
    reader = _Reader()
    if not text.startswith("<!DOCTYPE html>\n"):
        reader.page.errors.append("no doctype")
    reader.feed(text)
    reader.close()
    return reader.page
