"""Writes a page as Markdown or HTML. The only place where text becomes markup: everything is redacted and escaped here.

HTML pages stand alone: style and plots are inside, there is no script, and the policy in the head allows none.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
from collections.abc import Callable, Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agent.ledger.document import Page
from agent.ledger.html_writer import HtmlWriter
from agent.ledger.writer import Writer


class Renderer:
    """Turns pages into files of one format. `pictures` are the plots by file name."""

    def __init__(self, writer: Writer, pictures: Mapping[str, str], lang: str) -> None:
        self._writer = writer
        self._pictures = pictures
        self._lang = lang
        self._template = _environment().get_template(writer.template)

    def render(self, page: Page) -> str:
        writer = self._writer

        def trusted(write: Callable[..., str]) -> Callable[..., Markup]:
            """What a writer returns is escaped already."""
            return lambda content: Markup(write(content, page.path))  # noqa: S704

        return self._template.render(
            page=page,
            text=lambda text: Markup(writer.text(text)),  # noqa: S704
            line=trusted(writer.line),
            table=trusted(writer.table),
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
