"""Puts the dashboard together: guard, routes, static files, and how an error looks to its reader."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.staticfiles import StaticFiles

from agent.dashboard.guard import Addresses, Guard
from agent.dashboard.parts import AlreadyMade
from agent.dashboard.routes import choosing, entrance, live, orders, study
from agent.dashboard.sessions import Sessions
from agent.dashboard.site import Site
from agent.dashboard.view import render
from agent.dashboard.watch import Watch, digest_of
from agent.records import NoStudy
from experiments.errors import InputError, TuningError
from state.errors import StoreUnusable

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"


def create_app(sites: Mapping[str, Site], sessions: Sessions, addresses: Addresses, cookie: str = "tuneloop") -> Guard:
    """Everything behind its guard. `cookie` carries the port: browsers keep cookies by name and host only."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=_lifespan, redirect_slashes=False)
    app.state.sites, app.state.sessions, app.state.cookie = dict(sites), sessions, cookie
    app.state.watches = {key: Watch(site) for key, site in sites.items()}
    for part in (entrance.router, study.router, live.router, choosing.router, orders.pages, orders.router):
        app.include_router(part)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(AlreadyMade, lambda _, made: HTMLResponse(made.body))
    for kind in (InputError, TuningError, AnyHTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _explain)
    # Around everything, the framework's own answer to an error included.
    watches = app.state.watches.values()
    return Guard(app, addresses=addresses, sessions=sessions, cookie=cookie, watches=watches)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    for watch in app.state.watches.values():
        watch.stop()
    for site in app.state.sites.values():
        site.close()


def _explain(request: Request, error: Exception) -> Response:
    """What happened, in the words of our own errors; of any other error only that there was one."""
    status, title, text = _words(error)
    if status >= 500 and not isinstance(error, StoreUnusable | AnyHTTPException):
        log.error("%s failed", request.url.path.encode("unicode_escape").decode(), exc_info=error)
    waits = request.method == "GET" and isinstance(error, TuningError)  # what ails the store may pass
    response: Response = render(
        request, "error.html", _site(request), status=status, title=title, text=text, waits=waits
    )
    return response


def _words(error: Exception) -> tuple[int, str, str]:
    match error:
        case NoStudy():
            return 404, "Nothing here yet", str(error)
        case InputError():
            return 400, "Not done", str(error)
        case StoreUnusable():
            return 503, "The store does not answer", str(error)
        case TuningError():
            return 409, "Not done", str(error)
        case RequestValidationError():
            return 422, "Not understood", "; ".join(_field(e) for e in error.errors()[:3])
        case AnyHTTPException():
            return error.status_code, "Not here" if error.status_code == 404 else "Not done", str(error.detail)
        case _:
            return 500, "Something failed", "the log of the dashboard has the details"


def _field(error: Any) -> str:
    return f"{error['loc'][-1]}: {error['msg']}"


def _site(request: Request) -> Site | None:
    """The workspace of the address, for the menu of an error page."""
    sites: dict[str, Site] = request.app.state.sites
    site = sites.get(str(request.path_params.get("key", "")))
    if site is not None:
        request.state.mark = digest_of(site.mark())
    return site
