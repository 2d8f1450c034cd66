"""Puts a page into the frame of its format. HTML pages stand alone: the style is inside, there is no script, and the
policy in the head allows none.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agent.ledger.document import Page
from agent.ledger.writer import Writer


class Renderer:
    """Turns pages into files of one format."""

    def __init__(self, writer: Writer, lang: str) -> None:
        self._writer = writer
        self._lang = lang
        self._template = _environment().get_template(writer.template)

    def render(self, page: Page) -> str:
        # What a writer returns is escaped for its own format already.
        return self._template.render(
            title=Markup(self._writer.text(page.title)),  # noqa: S704
            body=Markup(self._writer.body(page)),  # noqa: S704
            lang=self._lang,
            style=Markup(_style()),  # noqa: S704 - our own file
            style_hash=_style_hash(),
        )


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
