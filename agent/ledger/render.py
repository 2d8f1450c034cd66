"""Writes a page as Markdown or HTML. The only place where text becomes markup: everything is redacted and escaped here.

HTML pages stand alone: style and plots are inside, there is no script, and the policy in the head allows none.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections.abc import Callable, Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from agent.ledger.document import Code, FileLink, Inline, Label, Page, PageLink, Span, Strong
from agent.ledger.redaction import Redactor

# What Markdown would act on inside a line; HTML is spelled out, because not every viewer knows `\<`.
_MARKDOWN = re.compile(r"([\\`*\[\]|~])|(?<![^\W_])(_)|(_)(?![^\W_])")
# What would open a heading, a quote, a list or a rule at the start of a block.
_BLOCK_START = re.compile(r"#{1,6}(?=\s|$)|>|[+-](?=\s|$)|[=-]+$|([0-9]{1,9})(?=[.)](\s|$))")


class MarkdownWriter:
    """Pages as Markdown: links lead to `.md` pages."""

    suffix = ".md"
    template = "page.md.j2"

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact

    def text(self, text: str) -> Markup:
        line = self._redact(text).replace("&", "&amp;").replace("<", "&lt;")
        return Markup(_MARKDOWN.sub(lambda found: "\\" + found.group(0), line))  # noqa: S704

    def span(self, span: Span, page: str) -> Markup:
        match span:
            case str():
                return self._inline(span)
            case Code():
                return self._code(span.text)
            case Strong():
                return Markup("**{}**").format(self.text(span.text)) if span.text else Markup("")
            case Label():
                return Markup("**{}**").format(self.text(span.text))
            case PageLink():
                return Markup("[{}]({})").format(self.text(span.text), page_href(span, page, self.suffix))
            case FileLink():
                return Markup("[{}]({})").format(self.text(span.text), span.href)

    def _inline(self, text: str) -> Markup:
        """Text within a line keeps the blanks at its ends; `redact` would take them."""
        lead, trail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        inner = self.text(text)
        return Markup("{}{}{}").format(" " * bool(lead), inner, " " * bool(trail and inner))

    def _code(self, text: str) -> Markup:
        """A code span; a backtick or a bar inside would end it, so they are shown as look-alikes."""
        line = self._redact(text).replace("`", "ˋ").replace("|", "∣")
        return Markup("`") + Markup(line) + Markup("`") if line else Markup("")  # noqa: S704


class HtmlWriter:
    """Pages as HTML: links lead to `.html` pages."""

    suffix = ".html"
    template = "page.html.j2"

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact

    def text(self, text: str) -> Markup:
        return escape(self._redact(text))

    def span(self, span: Span, page: str) -> Markup:
        match span:
            case str():
                lead, trail = text_ends(span)
                return Markup("{}{}{}").format(lead, self.text(span), trail)
            case Code():
                return Markup("<code>{}</code>").format(self.text(span.text))
            case Strong():
                return Markup("<strong>{}</strong>").format(self.text(span.text))
            case Label():
                return Markup('<span class="label {}">{}</span>').format(span.mood, self.text(span.text))
            case PageLink():
                href = page_href(span, page, self.suffix)
                return Markup('<a href="{}">{}</a>').format(href, self.text(span.text))
            case FileLink():
                return Markup('<a href="{}">{}</a>').format(span.href, self.text(span.text))


Writer = MarkdownWriter | HtmlWriter


def text_ends(text: str) -> tuple[str, str]:
    """The blank before and after a piece of a sentence, which cleaning would take away."""
    if not text.strip():
        return (" " if text else "", "")
    return (" " if text[0].isspace() else "", " " if text[-1].isspace() else "")


def page_href(link: PageLink, page: str, suffix: str) -> str:
    """The way from one page to another, with `/` whatever the machine."""
    target = "" if link.page == page else posixpath.relpath(link.page, posixpath.dirname(page) or ".") + suffix
    return f"{target}#{link.anchor}" if link.anchor else target or f"{posixpath.basename(page)}{suffix}"


def block_start(line: Markup) -> Markup:
    """The line so that its first characters open no block: `1. x` is no list, `# x` no heading."""
    found = _BLOCK_START.match(line)
    if found is None:
        return line
    place = found.end() if found[1] else 0
    return line[:place] + Markup("\\") + line[place:]


class Renderer:
    """Turns pages into files of one format. `pictures` are the plots by file name."""

    def __init__(self, writer: Writer, pictures: Mapping[str, str], lang: str) -> None:
        self._writer = writer
        self._pictures = pictures
        self._lang = lang
        self._template = _environment().get_template(writer.template)

    def render(self, page: Page) -> str:
        def inline(content: Inline) -> Markup:
            spans = content if isinstance(content, tuple) else (content,)
            return Markup("").join(self._writer.span(span, page.path) for span in spans)

        def line(content: Inline) -> Markup:
            return block_start(inline(content))

        return self._template.render(
            page=page,
            inline=inline,
            line=line,
            text=self._writer.text,
            picture=self._picture(page),
            lang=self._lang,
            style=Markup(_style()),  # noqa: S704 - our own file
            style_hash=_style_hash(),
        )

    def _picture(self, page: Page) -> Callable[[str], str]:
        if isinstance(self._writer, HtmlWriter):
            return self._data_url
        return lambda file: posixpath.relpath(f"plots/{file}", posixpath.dirname(page.path) or ".")

    def _data_url(self, file: str) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(self._pictures[file].encode()).decode()


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("agent.ledger", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _style() -> str:
    source, _, _ = PackageLoader("agent.ledger", "templates").get_source(_environment(), "ledger.css")
    return source


@cache
def _style_hash() -> str:
    """The content-security policy names the one style that may be applied."""
    return "sha256-" + base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
