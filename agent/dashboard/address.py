"""Addresses of the dashboard's pages, made of names that are not to be trusted."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from markupsafe import Markup, escape


def address(key: str, *parts: str, **query: object) -> Markup:
    """The address of a page of one workspace, ready for an attribute. A query value of None is left out."""
    path = "/".join(("", "w", key, *(quote(part, safe="") for part in parts)))
    given = urlencode({name: str(value) for name, value in query.items() if value is not None})
    return escape(f"{path}?{given}" if given else path + ("" if parts else "/"))
