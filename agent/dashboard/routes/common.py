"""What the routes share: the workspace that an address names, and answers for what cannot be shown."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, HTTPException, Request

from agent.dashboard.site import Site
from agent.dashboard.watch import Watch

MAX_NAME = 200


def find_site(request: Request, key: str) -> Site:
    site = cast("dict[str, Site]", request.app.state.sites).get(key)
    if site is None:
        raise HTTPException(404, "no such workspace")
    return site


def find_watch(request: Request, key: str) -> Watch:
    watches = cast("dict[str, Watch]", request.app.state.watches)
    find_site(request, key)
    return watches[key]


AtSite = Annotated[Site, Depends(find_site)]
AtWatch = Annotated[Watch, Depends(find_watch)]
