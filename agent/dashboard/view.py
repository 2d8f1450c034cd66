"""Turns what a route read into a page. Every text goes through the redactor and the escape, whoever wrote the template.

`None` is written as NOT_OBSERVED, so that a template cannot hide a missing value by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, cast

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from agent.dashboard.address import address
from agent.dashboard.document_view import html_of
from agent.dashboard.plot import draw
from agent.dashboard.sessions import Session
from agent.dashboard.site import Site
from agent.ledger.document import Block, Label, Mood
from agent.ledger.effects import route_label
from agent.ledger.figures import (
    MISSING,
    Figure,
    duration_figure,
    figure,
    moment,
    share_figure,
    size_figure,
    value_text,
)
from agent.ledger.redaction import Redactor
from agent.ledger.words import Words
from experiments.card import part_name
from experiments.metric import METRICS
from experiments.trial import Reason, Route

WORDS = Words("en")
PAGES = (
    ("", "Overview", "o"),
    ("live", "Live", "l"),
    ("experiments", "Experiments", "e"),
    ("cards", "Cards", "d"),
    ("approvals", "Approvals", "a"),
    ("trade-offs", "Trade-offs", "t"),
    ("compare", "Compare", "c"),
    ("faults", "Faults", "f"),
    ("loop", "Loop", "i"),
)


OF_ONE_SESSION = ("approvals.html",)  # has a form in the part that is renewed


def render(request: Request, template: str, site: Site | None = None, /, status: int = 200, **values: Any) -> Any:
    """One page. With a site it has the menu, the banner of a simulated study and the live updates."""
    session, part = session_of(request), is_part(request)
    context: dict[str, Any] = {
        "here": address_of(request),
        "part": part,
        "session": session,
        "csrf": Markup("") if session is None else Markup(session.csrf),  # noqa: S704 - our own letters and digits
        # A page that only renews a part of itself would take what the next whole page has to show.
        "notices": [] if session is None or part else session.take_notices(),
        "redact": Redactor() if site is None else site.redact,
        "site": site,
        "pages": PAGES,
        **values,
    }
    if site is not None:
        context |= _of_site(site) | {"mark": Markup(request.state.mark)}  # noqa: S704 - hex digits
    body = environment().get_template(template).render(context)
    if site is not None and part and status == 200 and template not in OF_ONE_SESSION:
        site.parts.keep(str(context["here"]), request.state.mark, body)
    return HTMLResponse(body, status)


def _of_site(site: Site) -> dict[str, Any]:
    def url(*parts: str, **query: object) -> Markup:
        return address(site.key, *parts, **query)

    def document(blocks: list[Block], page: str = "") -> Markup:
        return html_of(blocks, site.redact, site.key, page)

    return {"url": url, "document": document}


def is_part(request: Request) -> bool:
    """Whether an open page renews a part of itself, and wants no menu, form or notice."""
    return "hx-request" in request.headers


def session_of(request: Request) -> Session | None:
    return cast("Session | None", request.scope.get("session"))


def address_of(request: Request) -> Markup:
    """This page's own address, to fetch it again."""
    query = request.url.query
    return escape(request.scope["raw_path"].decode("ascii", "replace") + (f"?{query}" if query else ""))


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("agent.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters |= FILTERS
    return found


@pass_context
def _shown(context: Context, value: object) -> object:
    match value:
        case None:
            return MISSING
        case Markup() | Figure():
            return value
        case StrEnum():
            return WORDS.label(value)
        case str():
            return cast("Redactor", context["redact"])(value)
        case datetime():
            return moment(value)
        case _:
            return value


def clock_text(at: datetime) -> Figure:
    """Under a heading that says UTC."""
    return Figure(moment(at).removesuffix(" UTC"))


def metric_text(value: float | None, metric: str) -> Figure:
    return figure(value, METRICS[metric].unit.symbol)


def label_html(label: Label) -> Markup:
    return Markup('<span class="label {}">{}</span>').format(label.mood, label.text)


def outcome_html(row: Any, *, kept: bool = False) -> Markup:
    """Route and reason of a trial or a card in the list; a state where there is no route yet."""
    route, reason = cast("Route | None", row.route), cast("Reason | None", row.reason)
    if kept:
        return label_html(Label("kept", Mood.GOOD))
    if route is None or reason is None:
        return label_html(Label(getattr(row, "state", "open"), Mood.PLAIN))
    mood = route_label(route, WORDS).mood
    word = {Route.PROMISING: "promising", Route.VALID_NEGATIVE: "negative", Route.ORCHESTRATION_FAULT: "fault"}[route]
    return label_html(Label(f"{word}: {WORDS.label(reason)}", mood))


def change_html(row: Any) -> str:
    """What a card changed, in one line; the incumbent changed nothing."""
    if row.knob is None:
        return "none: the incumbent"
    name = getattr(row, "card_name", None) or row.name
    # A row of the store holds the first part of a bundle; its name has all of them.
    more = "" if name.endswith(part_name(row.knob, row.to_value)) else ", with another change: see the card"
    return f"{row.role} {row.knob} {value_text(row.from_value)} → {value_text(row.to_value)}{more}"


FILTERS: Mapping[str, Any] = {
    "attribute": escape,  # a value that has to come back as it was
    "duration": duration_figure,
    "figure": figure,
    "metric": metric_text,
    "clock": clock_text,
    "share": share_figure,
    "size": size_figure,
    "label": label_html,
    "outcome": outcome_html,
    "change": change_html,
    "value": value_text,
    "svg": draw,
}
