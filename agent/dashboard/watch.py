"""Tells every open page that something happened. One look per workspace, however many watch; none while nobody does.

A watcher has no queue: it is told the newest mark when it comes to listen, so that a stuck one costs nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime

from agent.dashboard.site import Mark, Site
from agent.status_report import read_told
from executor.trial_context import last_count
from experiments.errors import TuningError

LOOK_S = 0.5
BEAT_S = 15.0
MOST_WATCHERS = 250
KEPT_COUNTS = 600


@dataclass(frozen=True, slots=True)
class Count:
    """What the client's progress said, and when the service passed it on, in its own seconds. For people only."""

    trial_id: str
    at_s: float
    done: int
    total: int


class Watch:
    """Lives in the event loop. `mark` is a digest: a page compares it with the one that it was made under."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._last: Mark | None = None
        self.mark = ""
        self._news = asyncio.Event()
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self.counts: deque[Count] = deque(maxlen=KEPT_COUNTS)
        self.is_closed = False

    @property
    def is_full(self) -> bool:
        return self._watchers >= MOST_WATCHERS

    @property
    def is_current(self) -> bool:
        """Whether somebody looks: then the mark is half a second old at most."""
        return self._task is not None and not self._task.done() and bool(self.mark)

    def join(self) -> None:
        """Each call is paired with one of `leave`."""
        self._watchers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())

    def leave(self) -> None:
        self._watchers -= 1
        if self._watchers == 0:
            self.stop()

    def close(self) -> None:
        """The dashboard leaves: every stream ends by itself."""
        self.is_closed = True
        self._tell()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task, self.mark, self._last = None, "", None

    async def stream(self, is_welcome: Callable[[], bool]) -> AsyncIterator[str]:
        """Server-sent events: the mark at once and after every change, and a beat while nothing happens."""
        seen = ""
        while is_welcome() and not self.is_closed:
            news = self._news
            if self.mark != seen:
                seen = self.mark
                yield f"event: news\ndata: {json.dumps({'mark': seen})}\n\n"
                continue
            try:
                await asyncio.wait_for(news.wait(), BEAT_S)
            except TimeoutError:
                yield ": still here\n\n"

    async def _look(self) -> None:
        while True:
            found = await asyncio.to_thread(self._site.mark)
            if found != self._last:
                counted = await asyncio.to_thread(read_count, self._site)
                if counted is not None and (not self.counts or self.counts[-1] != counted):
                    self.counts.append(counted)
                self._last, self.mark = found, digest_of(found)
                self._tell()
            await asyncio.sleep(LOOK_S)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def digest_of(mark: Mark) -> str:
    return hashlib.sha256(repr(mark).encode()).hexdigest()[:16]


def read_count(site: Site) -> Count | None:
    """Requests done and planned, as `status.yaml` has them now; None where it says no such thing."""
    try:
        told = read_told(site.workspace.status_file, site.study_id)
    except TuningError:
        return None
    trial_id, _, text = str(told.get("running") or "").partition(": ")
    stage, _, progress = text.partition(": ")
    found = last_count(progress.encode()) if stage == "measure" else None
    said_at = _seconds_of(told.get("at"))
    return None if found is None or said_at is None else Count(trial_id, said_at, *found)


def _seconds_of(at: object) -> float | None:
    try:
        return datetime.fromisoformat(str(at)).timestamp()
    except ValueError:
        return None
