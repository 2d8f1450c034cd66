"""Pictures of every page for docs/dashboard.md, from a demo that runs meanwhile.

python -m tests.agent.dashboard.screenshots docs/images
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from experiments.knob import Cost
from tests.agent.dashboard.serving import Served, serving
from tests.agent.dashboard.workspaces import TOKEN, a_control, make_running, make_workspace, tell, until_admitted

TUNELOOP = str(Path(sys.executable).with_name("tuneloop"))
DESK = {"width": 1200, "height": 800}
PHONE = {"width": 390, "height": 780}
PATIENCE_S = 240.0


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        night, waits, runs = (Path(name) / part for part in ("night", "waiting", "running"))
        night.mkdir()
        make_workspace(waits, until_admitted()[0], a_control(allow=(Cost.HOT,)))
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        make_running(runs)
        with serving(night, waits, runs) as served:
            log = (Path(name) / "demo.log").open("w")
            demo = subprocess.Popen([TUNELOOP, "demo", str(night)], stdout=log, stderr=subprocess.STDOUT)
            try:
                page = log_in(browser, served, out)
                take_live(page, served, runs, out)
                demo.wait(timeout=PATIENCE_S)
            finally:
                demo.terminate()
            take_pages(page, served, out)
            take_others(browser, served, out)
        browser.close()
    for path in out.glob("dashboard-*.png"):
        _shrink(path)


def _shrink(path: Path) -> None:
    """A page has few colours; as a palette it is a third of the size."""
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(160)
    few.save(path, optimize=True)


def log_in(browser: Browser, served: Served, out: Path | None = None, **options: object) -> Page:
    page = browser.new_context(viewport=options.pop("viewport", DESK), **options).new_page()  # type: ignore[arg-type]
    page.goto(served.url)
    if out is not None:
        page.screenshot(path=out / "dashboard-login.png", clip={"x": 200, "y": 0, "width": 800, "height": 330})
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Log out")).to_be_visible(timeout=30_000)
    return page


def take_live(page: Page, served: Served, folder: Path, out: Path) -> None:
    """An invented trial: a load of the demo is over before its queues can be sampled twice."""
    page.set_viewport_size({"width": 1200, "height": 1330})
    tell(folder, 71, 148)
    page.goto(f"{served.url}/w/running/live")
    for seconds, done in ((76, 160), (81, 172), (86, 186), (91, 198), (96, 212)):
        tell(folder, seconds, done)
        page.get_by_text(f"Requests ended: {done}").wait_for()
        page.wait_for_timeout(700)
    page.screenshot(path=out / "dashboard-live.png")
    page.set_viewport_size(DESK)


def take_pages(page: Page, served: Served, out: Path) -> None:
    base = f"{served.url}/w/night"
    page.goto(f"{base}/")
    expect(page.locator("#progress-inner figure").first).to_be_visible(timeout=30_000)
    page.screenshot(path=out / "dashboard-overview.png")
    for name in ("experiments", "trade-offs", "faults", "loop", "cards"):
        page.goto(f"{base}/{name}")
        page.screenshot(path=out / f"dashboard-{name}.png")
    page.locator("a.row").last.click()
    page.set_viewport_size({"width": 1200, "height": 1500})
    page.screenshot(path=out / "dashboard-card.png")
    page.set_viewport_size(DESK)
    take_trials(page, base, out)


def take_trials(page: Page, base: str, out: Path) -> None:
    page.goto(f"{base}/compare")
    runs = page.locator("select[name=before] option").evaluate_all("all => all.map(o => [o.value, o.textContent])")
    first = next(value for value, _ in reversed(runs) if value)
    screened = next(value for value, text in reversed(runs) if "screening" in text)
    confirmed = next(value for value, text in reversed(runs) if "confirmation" in text)
    page.goto(f"{base}/compare?before={first}&after={screened}")
    page.screenshot(path=out / "dashboard-refusal.png")
    page.goto(f"{base}/compare?before={first}&after={confirmed}")
    page.screenshot(path=out / "dashboard-compare.png")
    page.goto(f"{base}/trials/{confirmed}")
    page.get_by_role("heading", name="Queues and throughput").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('.plots').scrollIntoView({block: 'center'})")
    page.screenshot(path=out / "dashboard-trial.png")


def take_others(browser: Browser, served: Served, out: Path) -> None:
    page = log_in(browser, served, color_scheme="dark")
    page.screenshot(path=out / "dashboard-studies.png", clip={"x": 0, "y": 0, "width": 1200, "height": 330})
    page.goto(f"{served.url}/w/night/")
    expect(page.locator("#progress-inner figure").first).to_be_visible(timeout=30_000)
    page.screenshot(path=out / "dashboard-dark.png")
    page = log_in(browser, served)
    page.goto(f"{served.url}/w/waiting/approvals")
    page.screenshot(path=out / "dashboard-approvals.png")
    page = log_in(browser, served, viewport=PHONE, is_mobile=True, has_touch=True)
    page.goto(f"{served.url}/w/night/")
    page.screenshot(path=out / "dashboard-phone.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
