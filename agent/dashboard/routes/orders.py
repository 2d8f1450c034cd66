"""What an operator says through the dashboard: pause, resume, drain, stop, approve. Written to the control file only.

The same code as the command line writes it, so that a page can do nothing that `tuneloop pause` or `approve` cannot.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import RedirectResponse

from agent.dashboard.address import address
from agent.dashboard.approval_queue import approval_queue
from agent.dashboard.routes.common import AtSite
from agent.dashboard.sessions import Session, is_signed
from agent.dashboard.status_view import words_of
from agent.dashboard.view import render, session_of
from agent.entrypoints.operate import approve_card, set_mode
from experiments.control import Mode
from experiments.errors import InputError


def signed(request: Request, csrf: Annotated[str, Form(max_length=200)] = "") -> Session:
    """The session whose page this form came from."""
    session = session_of(request)
    if session is None or not is_signed(session, csrf):
        raise HTTPException(403, "this form is not of your session; load the page again")
    return session


pages = APIRouter()
router = APIRouter(dependencies=[Depends(signed)])

Signed = Annotated[Session, Depends(signed)]
Who = Annotated[str, Form(max_length=100)]
Reason = Annotated[str, Form(max_length=500)]


@pages.get("/w/{key}/approvals")
def approvals(request: Request, site: AtSite) -> Any:
    with site.history() as history:
        return render(
            request,
            "approvals.html",
            site,
            study=site.views.study(site.study_id),
            queue=approval_queue(history.study, site.authority(), site.clock.now()),
            control=site.control(),
            words=words_of(list(history.entries), 20),
        )


@router.post("/w/{key}/mode")
def change_mode(
    site: AtSite,
    session: Signed,
    mode: Annotated[Mode, Form()],
    by: Who = "",
    reason: Reason = "",
    sure: Annotated[bool, Form()] = False,
) -> Any:
    """Who and why are asked for, because they are read at three in the morning by somebody else."""
    who = _who(session, by)
    if not reason.strip():
        raise InputError("reason", 0, 0, "say why; it goes into the ledger")
    if mode is Mode.STOP and not sure:
        raise InputError("stop", 0, 0, "stop cancels what runs; tick the box beside it to confirm")
    session.notices.append(set_mode(site.workspace.root, mode, reason=reason.strip(), by=who))
    return RedirectResponse(str(address(site.key)), 303)


@router.post("/w/{key}/approve")
def approve(site: AtSite, session: Signed, card: Annotated[str, Form(pattern=r"^[0-9a-f]{64}$")], by: Who = "") -> Any:
    """A card is approved by its whole digest: the one that was on the page, and no other."""
    with site.history() as history:
        waiting = approval_queue(history.study, site.authority(), site.clock.now()).waiting
    if waiting is None or waiting.card.digest != card or not waiting.needs_word:
        raise InputError("approve", 0, 0, f"card {card[:12]} does not wait for a word now; look at the page again")
    session.notices.append(approve_card(site.workspace.root, card, by=_who(session, by)))
    return RedirectResponse(str(address(site.key, "approvals")), 303)


def _who(session: Session, by: str) -> str:
    if not by.strip():
        raise InputError("name", 0, 0, "say who you are; it goes into the ledger")
    session.name = by.strip()
    return session.name
