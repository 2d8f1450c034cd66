"""What the routes share: the workspace that an address names, and answers for what cannot be shown."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, HTTPException, Request

from agent.dashboard.site import Site
from agent.dashboard.watch import Watch, digest_of

MAX_NAME = 200


def find_site(request: Request, key: str) -> Site:
    """Notes the mark before anything is read: a page must not carry a newer one than what it shows."""
    site = cast("dict[str, Site]", request.app.state.sites).get(key)
    if site is None:
        raise HTTPException(404, "no such workspace")
    request.state.mark = digest_of(site.mark())
    return site


def find_watch(request: Request, key: str) -> Watch:
    watches = cast("dict[str, Watch]", request.app.state.watches)
    find_site(request, key)
    return watches[key]


AtSite = Annotated[Site, Depends(find_site)]
AtWatch = Annotated[Watch, Depends(find_watch)]
