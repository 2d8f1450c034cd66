"""The ledger's own pages inside the dashboard: the same blocks, the same redaction, with the dashboard's addresses."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from agent.dashboard.address import address
from agent.ledger.document import Banner, Block, PageLink, Table
from agent.ledger.html_writer import HtmlWriter
from agent.ledger.redaction import Redactor

INDEX, RAW_FILE = "index", "raw file"


class DashboardWriter(HtmlWriter):
    """Writes blocks of one workspace. Plots are the dashboard's own, so that there are no pictures."""

    def __init__(self, redact: Redactor, key: str) -> None:
        super().__init__(redact, {})
        self._key = key

    def href(self, link: PageLink, page: str) -> str:
        if link.page == page and link.anchor:
            return f"#{link.anchor}"
        parts = () if link.page == INDEX else tuple(link.page.split("/"))
        return f"{address(self._key, *parts)}#{link.anchor}" if link.anchor else str(address(self._key, *parts))

    def table(self, table: Table, page: str) -> str:
        """Lists of raw files are long and wanted rarely: folded in."""
        inner = super().table(table, page)
        if table.head[0] != RAW_FILE:
            return inner
        return f"<details>\n<summary>{len(table.rows)} raw files</summary>\n{inner}</details>\n"


def html_of(blocks: Sequence[Block], redact: Redactor, key: str, page: str = "") -> Markup:
    """The blocks without their own banner, which every page of the dashboard has at its top."""
    writer = DashboardWriter(redact, key)
    # What a writer returns is escaped already.
    return Markup("".join(writer.block(b, page) for b in blocks if not isinstance(b, Banner)))  # noqa: S704


def files_of(key: str) -> str:
    """Where the raw files are, in the form that the ledger's blocks take."""
    return str(address(key, "files"))
