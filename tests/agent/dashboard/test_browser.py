"""The dashboard in a real Chromium: what a person does with it, and what a browser would have to refuse.

Skipped where there is no Chromium; CI installs one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from experiments.control import Mode
from experiments.knob import Cost
from state.control import ControlFile
from tests.agent.dashboard.serving import Served, serving
from tests.agent.dashboard.workspaces import PAGES, TOKEN, a_control, append, make_workspace, until_admitted
from tests.factories import a_night

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine: apt-get install chromium")

PATIENCE_MS = 20_000  # generous: the machine may be busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A night that nobody changes."""
    with serving(make_workspace(tmp_path_factory.mktemp("shown") / "night", a_night(settle_held=True))) as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A card waits for a word."""
    return make_workspace(tmp_path / "night", until_admitted()[0], a_control(allow=(Cost.HOT,)))


@pytest.fixture
def own(folder: Path) -> Iterator[Served]:
    with serving(folder) as served:
        yield served


class Seen:
    """What happened behind a page: requests, and what the console said."""

    def __init__(self, context: BrowserContext) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        context.on("request", self._asked)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


def log_in(context: BrowserContext, served: Served) -> Page:
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(served.url)
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#stream")).to_have_text("live", timeout=PATIENCE_MS)
    return page


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


def test_every_page_is_quiet_and_asks_nobody_else(context: BrowserContext, night: Served) -> None:
    """No request leaves for another place, and the browser complains of nothing: no script or style was refused."""
    seen = Seen(context)
    page = log_in(context, night)
    for name in (*PAGES, "trials/t0001", "trials/t0001/log/prefill.log", "experiments?route=valid_negative&tier="):
        page.goto(f"{night.url}/w/night/{name}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("SIMULATED pool", exact=False).first).to_be_visible()

    assert [url for url in seen.requests if not url.startswith(f"{night.url}/")] == []
    assert seen.complaints == []


def test_a_wrong_token_stays_outside(context: BrowserContext, night: Served) -> None:
    """And is told so; no script could read the cookie of a right one."""
    page = context.new_page()
    page.goto(f"{night.url}/w/night/faults")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page = log_in(context, night)

    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{night.url}/w/night/")
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_open_page_follows_the_study(context: BrowserContext, own: Served, folder: Path) -> None:
    """Entries that a service appends appear without a click, the plot included, and the focus stays where it was."""
    page = log_in(context, own)
    expect(page.get_by_text("4 trials, 0 of 1 cards closed")).to_be_visible()
    expect(page.locator("#progress-inner figure")).to_have_count(2)
    page.get_by_role("textbox", name="Why").fill("half a sentence")
    append(folder, until_admitted()[1])

    expect(page.get_by_text("HELD: the end of trial").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("#latest")).to_contain_text("c07-prefill-max-requests-3", timeout=PATIENCE_MS)
    expect(page.locator("#progress-inner")).to_contain_text("Keep c01-prefill-max-requests-2", timeout=PATIENCE_MS)
    expect(page.get_by_role("textbox", name="Why")).to_have_value("half a sentence")


def test_a_pause_is_one_form(context: BrowserContext, own: Served, folder: Path) -> None:
    """Who and why are asked for by the browser itself; what was written is shown, and in the file."""
    page = log_in(context, own)
    page.get_by_role("button", name="Pause").click()
    assert ControlFile(folder / "state.yaml").read().state.mode is Mode.RUN
    page.get_by_role("textbox", name="Who").fill("Li")
    page.get_by_role("textbox", name="Why").fill("handing over at 7")
    page.get_by_role("button", name="Pause").click()

    expect(page.locator(".notice")).to_contain_text("mode pause, by Li (handing over at 7)")
    expect(page.locator("#standing")).to_contain_text("pause, by Li (handing over at 7)")
    assert ControlFile(folder / "state.yaml").read().state.mode is Mode.PAUSE


def test_stop_has_to_be_meant(context: BrowserContext, own: Served, folder: Path) -> None:
    """Without the tick it is refused and nothing is written."""
    page = log_in(context, own)
    for sure in (False, True):
        page.goto(f"{own.url}/w/night/")
        page.get_by_role("textbox", name="Who").fill("Li")
        page.get_by_role("textbox", name="Why").fill("fire in the hall")
        page.get_by_label("cancel what runs").set_checked(sure)
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("mode stop, by Li" if sure else "tick the box beside it")).to_be_visible()
        expected = Mode.STOP if sure else Mode.RUN
        assert ControlFile(folder / "state.yaml").read().state.mode is expected


def test_an_approval_is_one_click(context: BrowserContext, own: Served, folder: Path) -> None:
    """And reaches an open page of somebody else by itself."""
    page = log_in(context, own)
    other = context.new_page()
    other.goto(f"{own.url}/w/night/approvals")
    page.get_by_role("link", name="Approvals").click()
    page.get_by_role("textbox", name="Who").fill("Li")
    page.get_by_role("button", name="Approve this card, once").click()

    expect(page.locator(".notice")).to_contain_text("is approved by Li")
    expect(other.locator("#queue")).to_contain_text("is approved", timeout=PATIENCE_MS)
    assert len(ControlFile(folder / "state.yaml").read().state.approve) == 1


def test_what_may_not_be_compared_says_why(context: BrowserContext, night: Served) -> None:
    """Chosen by hand from the two lists."""
    page = log_in(context, night)
    page.get_by_role("link", name="Compare").click()
    page.locator("select[name=before]").select_option("t0001")
    page.locator("select[name=after]").select_option("t0005")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_contain_text("Not comparable")
    expect(page.get_by_role("alert")).to_contain_text("different requests: 640 and 320")
    page.locator("select[name=after]").select_option("t0006")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".answer")).to_contain_text("at 95 % confidence")


def test_everything_can_be_reached_from_the_keyboard(context: BrowserContext, night: Served) -> None:
    """Pages by two keys, rows by arrows, the list of keys, and past the menu with one."""
    page = log_in(context, night)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url("**/experiments")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("a.row").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/trials/*")
    page.keyboard.press("g")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_keys_are_letters_while_somebody_writes(context: BrowserContext, own: Served) -> None:
    """ "going" in the reason goes nowhere."""
    page = log_in(context, own)
    page.get_by_role("textbox", name="Why").click()
    page.keyboard.type("go, get, gone?")

    expect(page.get_by_role("textbox", name="Why")).to_have_value("go, get, gone?")
    assert page.url.endswith("/w/night/")


def test_a_phone_shows_every_page_without_moving_sideways(browser: Browser, night: Served) -> None:
    """Wide tables scroll inside themselves; buttons are large enough for a thumb."""
    context = browser.new_context(viewport={"width": 375, "height": 700}, has_touch=True, is_mobile=True)
    page = log_in(context, night)
    for name in (*PAGES, "trials/t0001"):
        page.goto(f"{night.url}/w/night/{name}")
        width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1], name
    page.goto(f"{night.url}/w/night/compare")
    box = page.get_by_role("button", name="Compare").bounding_box()
    assert box is not None
    assert box["height"] >= 40
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(browser: Browser, night: Served, scheme: str) -> None:
    """Every colour of text against its ground has at least the contrast that WCAG AA asks for."""
    context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = log_in(context, night)
    for name in ("", "faults", "trade-offs?requests=320"):
        page.goto(f"{night.url}/w/night/{name}")
        pairs = page.evaluate(COLOURS)
        assert len(pairs) > 10
        poor = {(words, round(contrast(ink, paper), 2)) for ink, paper, words in pairs if contrast(ink, paper) < 4.5}
        assert poor == set()
    context.close()


# The colours of every element that has text of its own, with the first opaque ground behind it.
COLOURS = """
() => [...document.querySelectorAll("body *")].flatMap(element => {
  const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !element.getClientRects().length || element.closest("svg")) return [];
  let ground = element;
  while (ground.parentElement && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)")
    ground = ground.parentElement;
  const ink = getComputedStyle(element).color, paper = getComputedStyle(ground).backgroundColor;
  return [[ink, paper, element.textContent.slice(0, 40)]];
})
"""


def contrast(one: str, other: str) -> float:
    """The ratio of relative luminances, by the formula of WCAG 2."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
