"""Live news: one look per workspace however many watch, and everybody hears of every change in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.dashboard import server as server_module
from agent.dashboard import watch as watch_module
from agent.dashboard.site import Mark, Site
from agent.dashboard.watch import Count, Watch, read_count
from executor.clock import SystemClock
from experiments.control import ControlState, Mode
from state.control import ControlFile, write_status
from tests.agent.dashboard.serving import serving
from tests.agent.dashboard.workspaces import STUDY, append, make_workspace, until_admitted

PATIENCE_S = 20.0
AT = "2026-12-01T20:00:05+00:00"


class CountingSite(Site):
    """A site that knows how often it was looked at."""

    looks = 0

    def mark(self) -> Mark:
        self.looks += 1
        return super().mark()


@pytest.fixture
def site(tmp_path: Path) -> CountingSite:
    return CountingSite(make_workspace(tmp_path / "night", until_admitted()[0]), "night", SystemClock())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "LOOK_S", 0.02)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work(), PATIENCE_S)

    asyncio.run(limited())


async def next_news(stream: AsyncIterator[str]) -> str:
    async for text in stream:
        if text.startswith("event: news"):
            return text
    raise AssertionError("the stream ended")


def test_a_watcher_hears_the_mark_at_once_and_every_change(site: CountingSite) -> None:
    """An entry of the ledger, a word of the operator, a line of the driver."""
    rest = until_admitted()[1]

    async def work() -> None:
        watch = Watch(site)
        watch.join()
        stream = watch.stream(lambda: True)
        marks = [await next_news(stream)]
        for change in (
            lambda: append(site.workspace.root, rest[:1]),
            lambda: ControlFile(site.workspace.control_file).update(pausing),
            lambda: write_status(site.workspace.status_file, {"study": STUDY, "running": ""}),
        ):
            await asyncio.to_thread(change)
            marks.append(await next_news(stream))
        watch.leave()
        assert len(set(marks)) == 4

    run(work)


def pausing(state: ControlState) -> ControlState:
    return state.model_copy(update={"mode": Mode.PAUSE})


def test_a_hundred_watchers_cost_one_look(site: CountingSite) -> None:
    """And each of them hears of the change."""
    entry = until_admitted()[1][:1]

    async def work() -> None:
        watch = Watch(site)
        streams = [watch.stream(lambda: True) for _ in range(100)]
        for _ in streams:
            watch.join()
        before = await asyncio.gather(*map(next_news, streams))
        looks = site.looks
        await asyncio.to_thread(append, site.workspace.root, entry)
        after = await asyncio.gather(*map(next_news, streams))
        assert len({*before}) == len({*after}) == 1
        assert set(before) != set(after)
        assert site.looks - looks < 100
        for _ in streams:
            watch.leave()

    run(work)


def test_nobody_looks_while_nobody_watches(site: CountingSite) -> None:
    """A dashboard that is left open on a server costs nothing."""

    async def work() -> None:
        watch = Watch(site)
        watch.join()
        await next_news(watch.stream(lambda: True))
        watch.leave()
        await asyncio.sleep(0.1)
        looks = site.looks
        await asyncio.sleep(0.2)
        assert site.looks == looks > 0

    run(work)


def test_a_stuck_watcher_keeps_nothing(site: CountingSite) -> None:
    """Whoever does not read for a while hears the newest mark once, not a backlog."""
    rest = until_admitted()[1]

    async def work() -> None:
        watch = Watch(site)
        watch.join()
        stream = watch.stream(lambda: True)
        await next_news(stream)
        for n in range(5):
            seen = watch.mark
            await asyncio.to_thread(append, site.workspace.root, rest[n : n + 1])
            while watch.mark == seen:
                await asyncio.sleep(0.01)
        assert watch.mark in await next_news(stream)
        pending = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.1)
        assert not pending.done()
        pending.cancel()
        watch.leave()

    run(work)


def test_a_stream_ends_with_its_session(site: CountingSite) -> None:
    """A page that was logged out hears nothing more."""

    async def work() -> None:
        watch = Watch(site)
        watch.join()
        welcome = [True, True]
        stream = watch.stream(lambda: welcome.pop(0) if welcome else False)
        assert [text async for text in stream if text.startswith("event")] != []
        watch.leave()

    run(work)


def test_watchers_are_limited(site: CountingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open connections are not for the taking."""
    monkeypatch.setattr(watch_module, "MOST_WATCHERS", 2)

    async def work() -> None:
        watch = Watch(site)
        watch.join()
        assert not watch.is_full
        watch.join()
        assert watch.is_full
        watch.leave()
        assert not watch.is_full
        watch.stop()

    run(work)


def test_what_cannot_be_read_is_news_as_well(tmp_path: Path) -> None:
    """The look never ends with an error; a page is renewed and says what is wrong."""
    (tmp_path / "night").mkdir()
    site = CountingSite(tmp_path / "night", "night", SystemClock())
    before = site.mark()
    make_workspace(tmp_path / "night", until_admitted()[0])
    after = site.mark()

    assert before.pulse is None
    assert "no study was opened here yet" in before.trouble
    assert after.pulse is not None
    assert after.trouble == ""


@pytest.mark.parametrize(
    ("running", "count"),
    [
        ("t0001: measure: 12 s, 120/640 requests", (120, 640)),
        ("t0001: warm_up: 2 s, 3/8 requests", None),
        ("t0001: measure: 12 s", None),
        ("t0001: measure", None),
        ("", None),
    ],
)
def test_requests_are_counted_in_the_formal_load_only(
    site: CountingSite, running: str, count: tuple[int, int] | None
) -> None:
    """From the line that the driver writes; warm-up requests are none of the load's."""
    write_status(site.workspace.status_file, {"study": STUDY, "running": running, "at": AT})
    found = read_count(site)

    assert found == read_count(site)
    assert (None if found is None else (found.trial_id, found.done, found.total)) == (count and ("t0001", *count))


def test_counts_of_another_study_are_none(site: CountingSite) -> None:
    """A status file that was left behind says nothing."""
    running = "t0001: measure: 1 s, 1/2 requests"
    write_status(site.workspace.status_file, {"study": "other", "running": running, "at": AT})
    assert read_count(site) is None


def test_the_stream_over_a_socket(site: CountingSite) -> None:
    """As a browser hears it: the type of an event stream, no caching, and the news after an append."""
    rest = until_admitted()[1]
    with (
        serving(site.workspace.root) as served,
        closing(served.client()) as client,
        client.stream("GET", "/w/night/events") as answer,
    ):
        lines = answer.iter_lines()
        first = next(line for line in lines if line.startswith("data:"))
        append(site.workspace.root, rest[:1])
        second = next(line for line in lines if line.startswith("data:"))

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert first != second


def test_bytes_that_no_browser_sends_are_refused(site: CountingSite) -> None:
    """HTTP/1.0 without a name, two names, a name that is none, a body that never comes to an end."""
    with serving(site.workspace.root) as served:
        name = f"127.0.0.1:{served.port}".encode()
        assert b" 403 " in served.raw(b"GET /login HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
        for request in (
            b"GET /login HTTP/1.1\r\nHost: " + name + b"\r\nHost: evil\r\nConnection: close\r\n\r\n",
            b"GET /login HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n",
            b"GET http://evil/login HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n",
        ):
            status = served.raw(request).split(b"\r\n")[0]
            assert b" 403 " in status or b" 400 " in status


def test_a_connection_that_asks_for_nothing_is_closed(site: CountingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request as well; an open stream stays."""
    monkeypatch.setattr(server_module, "FIRST_REQUEST_S", 0.3)
    with serving(site.workspace.root) as served, closing(served.client()) as client:
        assert served.raw(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1") == b""
        with client.stream("GET", "/w/night/events") as answer:
            lines = answer.iter_lines()
            first = next(line for line in lines if line.startswith("data:"))
            assert served.raw(b"") == b""
            append(site.workspace.root, until_admitted()[1][:1])
            assert next(line for line in lines if line.startswith("data:")) != first


def test_a_count_is_a_plain_fact() -> None:
    """Equal counts are one point of the plot."""
    assert Count("t", 1.0, 2, 3) == Count("t", 1.0, 2, 3)
