"""Who may speak to the dashboard: threats S8, S9 and S22 of the security list, each as a request that is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.dashboard.guard import MAX_BODY, Addresses
from agent.dashboard.sessions import LIFE_S, MOST, Sessions
from agent.dashboard.token_file import NAME, read_or_make_token
from executor.clock import ManualClock
from experiments.errors import InputError
from tests.agent.dashboard.page_reader import read_page
from tests.agent.dashboard.workspaces import (
    HOST,
    ORIGIN,
    PAGES,
    TOKEN,
    Visitor,
    a_visitor,
    logged_in,
    make_app,
    make_workspace,
)
from tests.factories import a_night

NIGHT = datetime(2026, 12, 1, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def own_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("guarded") / "night", a_night())


@pytest.fixture(scope="module")
def visitor(own_night: Path) -> Iterator[Visitor]:
    found = logged_in(make_app(own_night))
    with found.client:
        yield found


HOSTS = {
    "another name": "evil.example:8765",
    "a name that was bound to us": "rebound.example",
    "another port": "127.0.0.1:9999",
    "no port": "127.0.0.1",
    "ours as a prefix": "127.0.0.1:8765.evil.example",
    "an account": "127.0.0.1:8765@evil.example",
    "nothing": "",
    "all addresses": "0.0.0.0:8765",
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_only_our_own_names_are_answered(visitor: Visitor, host: str) -> None:
    """A rebound name reaches nothing, whatever the cookie says."""
    assert visitor.get("", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", [HOST, "LOCALHOST:8765", "[::1]:8765"])
def test_every_name_of_loopback_is_answered(host: str) -> None:
    """By whichever name the operator calls this machine."""
    assert Addresses.of(8765).has_host(host)


ORIGINS = ["null", "http://evil.example", "http://127.0.0.1:9999", f"{ORIGIN}.evil.example", f"{ORIGIN}/x", "file://"]


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_refused(visitor: Visitor, own_night: Path, origin: str, method: str) -> None:
    """Neither reading nor writing works from another site's page, and nothing is changed."""
    before = (own_night / "state.yaml").read_bytes()
    form = {"mode": "pause", "by": "x", "reason": "x", "csrf": visitor.csrf()}
    page = "mode" if method == "POST" else ""
    answer = visitor.client.request(
        method, visitor.path(page), data=form if method == "POST" else None, headers={"Origin": origin}
    )

    assert answer.status_code == 403
    assert (own_night / "state.yaml").read_bytes() == before


def test_a_change_without_an_origin_is_refused(visitor: Visitor) -> None:
    """Every browser sends it with a form; what does not send it is no page of ours."""
    form = {"mode": "pause", "by": "x", "reason": "x", "csrf": visitor.csrf()}
    assert visitor.client.post(visitor.path("mode"), data=form).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_script_of_another_site_reads_nothing(visitor: Visitor, site: str) -> None:
    """What a browser says about who asks is believed against the asker; a link from elsewhere still works."""
    assert visitor.get("", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert visitor.get("", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status_code == 200


REQUESTS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "JSON": ("POST", "mode", {"json": {"mode": "pause"}}, 415),
    "several parts": ("POST", "mode", {"files": {"mode": b"pause"}}, 415),
    "no type": ("POST", "mode", {"content": b"mode=pause"}, 415),
    "too much": ("POST", "mode", {"data": {"reason": "x" * (MAX_BODY + 1)}}, 413),
    "PUT": ("PUT", "mode", {"data": {}}, 405),
    "DELETE": ("DELETE", "", {}, 405),
    "OPTIONS": ("OPTIONS", "mode", {}, 405),
    "TRACE": ("TRACE", "", {}, 405),
    "way up": ("GET", "/x/%2e%2e/w/night/", {}, 403),
    "backslash": ("GET", "/w/night/..%5c..%5cetc", {}, 403),
    "two slashes": ("GET", "/w//night/", {}, 403),
    "end of string": ("GET", "/w/night/%00", {}, 403),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_odd_requests_are_refused(visitor: Visitor, name: str) -> None:
    """Before any route sees them, and without a word about what is inside."""
    method, page, options, status = REQUESTS[name]
    answer = visitor.client.request(method, visitor.path(page), headers={"Origin": ORIGIN}, **options)

    assert answer.status_code == status
    assert len(answer.text) < 100


def test_nothing_is_shown_without_a_login(own_night: Path) -> None:
    """A person is sent to the login, a script is told to go there, and no page leaks a word of the study."""
    stranger = a_visitor(make_app(own_night))
    with stranger.client:
        for page in (*PAGES, "events", "trials/t0001", "files/t0001/prefill.log", "mode", "/", "/loginx", "/static"):
            answer = stranger.get(page)
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
            assert answer.text == ""
        assert stranger.post("mode", signed=False, mode="pause").status_code == 401
        renewed = stranger.get("", headers={"HX-Request": "true"})
    assert (renewed.status_code, renewed.headers["HX-Redirect"]) == (401, "/login")


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "é" * 40, "\x00"])
def test_only_the_whole_token_opens(own_night: Path, token: str) -> None:
    """And a wrong one leaves no cookie."""
    stranger = a_visitor(make_app(own_night))
    with stranger.client:
        answer = stranger.client.post("/login", data={"token": token}, headers={"Origin": ORIGIN})

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_the_token_opens_nothing_from_an_address(own_night: Path) -> None:
    """Addresses end up in histories and logs."""
    stranger = a_visitor(make_app(own_night))
    with stranger.client:
        assert stranger.get(f"?token={TOKEN}").status_code == 303
        assert stranger.client.get(f"/login?token={TOKEN}").status_code == 200


def test_the_cookie_is_out_of_reach(own_night: Path) -> None:
    """Of scripts, and of requests that another site begins."""
    stranger = a_visitor(make_app(own_night))
    with stranger.client:
        answer = stranger.client.post("/login", data={"token": TOKEN}, headers={"Origin": ORIGIN})

    parts = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= parts
    assert TOKEN not in answer.headers["set-cookie"]


def test_a_session_ends(own_night: Path) -> None:
    """After half a day, and at once with a logout."""
    clock = ManualClock(NIGHT)
    visitor = logged_in(make_app(own_night, clock=clock))
    with visitor.client:
        clock.sleep(LIFE_S - 1)
        assert visitor.get("").status_code == 200
        clock.sleep(2)
        assert visitor.get("").status_code == 303

    visitor = logged_in(make_app(own_night))
    with visitor.client:
        cookie = visitor.client.cookies["tuneloop"]
        assert visitor.post("/logout").status_code == 303
        visitor.client.cookies.set("tuneloop", cookie, domain="127.0.0.1")
        assert visitor.get("").status_code == 303


def test_sessions_are_few() -> None:
    """Logging in again and again fills no memory; the oldest session ends."""
    sessions = Sessions(TOKEN, ManualClock(NIGHT))
    ids = [sessions.log_in(TOKEN) for _ in range(MOST + 1)]

    assert sessions.find(ids[0]) is None
    assert all(sessions.find(i) is not None for i in ids[1:])


FORMS: dict[str, dict[str, str]] = {
    "mode": {"mode": "pause", "by": "ops", "reason": "x"},
    "approve": {"card": "0" * 64, "by": "ops"},
    "/logout": {"really": "yes"},
}


def test_every_form_of_the_dashboard_is_tried(own_night: Path) -> None:
    """Whoever adds a route that changes something meets the two tests below."""
    app: Any = make_app(own_night)._app
    posts = {r.path for r in _routes(app) if "POST" in (getattr(r, "methods", None) or ())}
    assert posts == {"/login", "/logout", "/w/{key}/mode", "/w/{key}/approve"}


def _routes(app: Any) -> list[Any]:
    """Whatever way the framework keeps included routers."""
    found = []
    for route in app.routes:
        inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
        found += [route] if inner is None else list(inner)
    return found


@pytest.mark.parametrize("page", FORMS)
@pytest.mark.parametrize("csrf", [None, "", "wrong", "é"])
def test_a_form_needs_the_sign_of_its_session(visitor: Visitor, own_night: Path, page: str, csrf: str | None) -> None:
    """A cookie alone changes nothing."""
    before = (own_night / "state.yaml").read_bytes()
    form = FORMS[page] if csrf is None else {**FORMS[page], "csrf": csrf}

    assert visitor.post(page, signed=False, **form).status_code == 403
    assert (own_night / "state.yaml").read_bytes() == before
    assert visitor.get("").status_code == 200


def test_the_sign_of_another_session_is_none(own_night: Path) -> None:
    """Two people, two signs."""
    app = make_app(own_night)
    one, two = logged_in(app), logged_in(app)
    with one.client:
        answer = one.post("mode", signed=False, csrf=two.csrf(), **FORMS["mode"])
    assert answer.status_code == 403


@pytest.mark.parametrize("page", [*PAGES, "trials/t0001", "trials/t0001/log/prefill.log", "no-such-page", "/login"])
def test_every_answer_says_what_a_browser_may_do(visitor: Visitor, page: str) -> None:
    """No inline script or style, no frame, nothing from elsewhere; errors and the login included."""
    answer = visitor.get(page)
    policy = answer.headers["content-security-policy"]

    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers
    assert "server" not in answer.headers
    assert read_page(answer.text).errors == []


def test_an_error_of_ours_tells_a_stranger_nothing(own_night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in a page is a page with the same headers and without a traceback."""
    from agent.dashboard.routes import study

    def broken(*_: object) -> None:
        raise RuntimeError("the inside: /home/ops/key")

    monkeypatch.setattr(study, "status_lines", broken)
    visitor = logged_in(make_app(own_night))
    with visitor.client:
        answer = visitor.get("")

    assert answer.status_code == 500
    assert "the inside" not in answer.text
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_the_token_is_made_once_for_its_owner(tmp_path: Path) -> None:
    """In a file that nobody else can read; the next dashboard takes the same."""
    first, second = read_or_make_token(tmp_path), read_or_make_token(tmp_path)

    assert (first.is_new, second.is_new) == (True, False)
    assert first.text == second.text
    assert len(first.text) >= 40
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622, 0o666])
def test_a_token_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """It may be known by now."""
    read_or_make_token(tmp_path)
    (tmp_path / NAME).chmod(mode)

    with pytest.raises(InputError, match="remove it"):
        read_or_make_token(tmp_path)


@pytest.mark.parametrize("content", [b"", b"short\n", b"x" * 5000, b"\xff" * 40, b"\x00" * 40])
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    """Rather than a dashboard that an empty token opens."""
    (tmp_path / NAME).write_bytes(content)
    (tmp_path / NAME).chmod(0o600)

    with pytest.raises(InputError, match="does not hold a token"):
        read_or_make_token(tmp_path)


def test_a_link_in_place_of_the_token_is_not_followed(tmp_path: Path) -> None:
    """Nor a folder or a pipe."""
    (tmp_path / "other").write_text(TOKEN)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / NAME).symlink_to(tmp_path / "other")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / NAME, 0o600)

    for folder in ("a", "b"):
        with pytest.raises(InputError):
            read_or_make_token(tmp_path / folder)
