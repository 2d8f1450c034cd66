"""How quick the dashboard is: pages of 10,000 experiments, and how soon 100 watchers hear of an event.

python -m tests.bench.dashboard
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx

from experiments.ledger import LedgerEntry
from tests.agent.dashboard.serving import Served, serving
from tests.agent.dashboard.workspaces import append, make_workspace
from tests.factories import a_long_study

EXPERIMENTS = 10_000
ASKED = 100  # times each page
WATCHERS = 100
EVENTS = 30
PAGES = ("experiments", f"experiments?before={EXPERIMENTS}", "experiments?route=valid_negative", "cards", "")
OTHERS = ("progress", "cards/start", "trials/t00100", "loop")  # from the whole ledger: first, then when it is in memory
PATIENCE_S = 30.0


def measure(experiments: int = EXPERIMENTS) -> dict[str, object]:
    """Milliseconds by page, and seconds from the append of an entry to its news at each watcher."""
    entries = a_long_study(experiments)
    with tempfile.TemporaryDirectory() as name:
        folder = make_workspace(Path(name) / "night", entries[:-WATCHED])
        with serving(folder) as served:
            pages = {page or "overview": _quantiles(_times(served, page)) for page in PAGES}
            whole = {page: _first_and_later(served, page) for page in OTHERS}
            news = _news(served, folder, entries[-WATCHED:])
    return {"experiments": experiments, "page_ms": pages, "whole_ledger_ms": whole, "watchers": news}


WATCHED = EVENTS  # entries that are appended while everybody watches


def _times(served: Served, page: str, count: int = ASKED) -> list[float]:
    times = []
    with closing(served.client(timeout=300)) as client:
        for _ in range(count):
            began = time.perf_counter()
            assert client.get(f"/w/night/{page}").status_code == 200
            times.append(time.perf_counter() - began)
    return times


def _first_and_later(served: Served, page: str) -> dict[str, float]:
    first, *later = _times(served, page, 6)
    return {"first": round(first * 1000, 1), "later": round(statistics.median(later) * 1000, 1)}


def _quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"p{p}": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)] * 1000, 1) for p in (50, 95, 99)}


def _news(served: Served, folder: Path, entries: list[LedgerEntry]) -> dict[str, object]:
    """One thread per watcher, each with its own connections, as so many open pages have."""
    heard, renewed, pauses = Heard(), Heard(), random.Random(7)
    news: list[float] = []
    pages: list[float] = []
    with _watching(served, heard, renewed):
        for entry in entries:
            time.sleep(pauses.uniform(0.2, 1.2))  # in no step with the looks of the dashboard
            heard.expect()
            renewed.expect()
            began = time.monotonic()
            append(folder, [entry])
            news += [at - began for at in heard.times(PATIENCE_S)]
            pages += [at - began for at in renewed.times(PATIENCE_S)]
    counts = {"watchers": WATCHERS, "events": len(entries), "heard": len(news), "renewed": len(pages)}
    return {**counts, "news_ms": _quantiles(news), "renewed_page_ms": _quantiles(pages)}


class Heard:
    """When each watcher heard the news after the last append."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._at: dict[int, float] = {}
        self._ready: set[int] = set()

    def note(self, watcher: int) -> None:
        with self._lock:
            self._ready.add(watcher)
            self._at.setdefault(watcher, time.monotonic())
            self._lock.notify_all()

    def expect(self) -> None:
        with self._lock:
            self._at.clear()

    def all_ready(self, patience_s: float) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: len(self._ready) == WATCHERS, patience_s)

    def times(self, patience_s: float) -> list[float]:
        with self._lock:
            self._lock.wait_for(lambda: len(self._at) == WATCHERS, patience_s)
            return list(self._at.values())


@contextmanager
def _watching(served: Served, heard: Heard, renewed: Heard) -> Iterator[None]:
    with ExitStack() as stack:
        client = stack.enter_context(closing(served.client(timeout=120)))
        cookies = dict(client.cookies)
        leaving = threading.Event()
        arguments = [(served, cookies, (heard, renewed), number, leaving) for number in range(WATCHERS)]
        threads = [threading.Thread(target=_watch, args=given, daemon=True) for given in arguments]
        for thread in threads:
            thread.start()
        assert heard.all_ready(PATIENCE_S)
        assert renewed.all_ready(PATIENCE_S)
        yield
        leaving.set()
    # The streams end when the server leaves; the threads are daemons.


def _watch(
    served: Served, cookies: dict[str, str], told: tuple[Heard, Heard], number: int, leaving: threading.Event
) -> None:
    """Hears the news, then asks for its part of the overview, as an open page does."""
    heard, renewed = told
    try:
        with (
            httpx.Client(base_url=served.url, timeout=120, cookies=cookies, trust_env=False) as client,
            client.stream("GET", "/w/night/events") as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    heard.note(number)
                    client.get("/w/night/", headers={"HX-Request": "true"}).raise_for_status()
                    renewed.note(number)
                if leaving.is_set():
                    return
    except httpx.HTTPError:
        return  # the server left


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
