"""Login and logout. The token travels in the body of a form once; after it a cookie that no script can read."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse

from agent.dashboard.routes.orders import signed
from agent.dashboard.sessions import LIFE_S
from agent.dashboard.view import render

router = APIRouter()


@router.get("/login")
def login_page(request: Request) -> Any:
    return render(request, "login.html", wrong=False)


@router.post("/login")
def log_in(request: Request, token: Annotated[str, Form(max_length=300)] = "") -> Any:
    session_id = request.app.state.sessions.log_in(token.strip())
    if session_id is None:
        return render(request, "login.html", status=403, wrong=True)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        request.app.state.cookie, session_id, max_age=int(LIFE_S), path="/", httponly=True, samesite="strict"
    )
    return answer


@router.post("/logout", dependencies=[Depends(signed)])
def log_out(request: Request) -> Any:
    request.app.state.sessions.log_out(request.scope["session_id"])
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(request.app.state.cookie, path="/", httponly=True, samesite="strict")
    return answer
