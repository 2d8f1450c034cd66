"""What the routes share: the workspace that an address names, and parts of it that somebody else was given just now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool

from agent.dashboard.parts import AlreadyMade
from agent.dashboard.site import Site
from agent.dashboard.view import address_of, is_part
from agent.dashboard.watch import Watch, digest_of


async def find_site(request: Request, key: str) -> AsyncIterator[Site]:
    """Notes the mark before anything is read: a page must not carry a newer one than what it shows."""
    site = cast("dict[str, Site]", request.app.state.sites).get(key)
    if site is None:
        raise HTTPException(404, "no such workspace")
    watch = cast("dict[str, Watch]", request.app.state.watches)[key]
    mark = request.state.mark = watch.mark if watch.is_current else digest_of(await run_in_threadpool(site.mark))
    if not is_part(request):
        yield site
        return
    address = str(address_of(request))
    made = await site.parts.find_or_claim(address, mark)
    if made is not None:
        raise AlreadyMade(made)
    try:
        yield site
    finally:
        site.parts.done(address, mark)


AtSite = Annotated[Site, Depends(find_site)]


def find_watch(request: Request, key: str, site: AtSite) -> Watch:
    """Of a workspace that there is."""
    return cast("dict[str, Watch]", request.app.state.watches)[site.key]


AtWatch = Annotated[Watch, Depends(find_watch)]
