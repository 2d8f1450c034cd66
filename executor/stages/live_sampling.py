"""Asks every server about its queues while the formal load runs: in a thread of its own, beside the load's way.

What is not answered in time is not observed; nothing that goes wrong here reaches the trial. The series is appended
line by line, so that a killed service leaves what it saw.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from executor.engines.live_series import merge_answers, render_sample
from executor.engines.loads import LoadSample, parse_loads
from executor.engines.prometheus import parse_metrics
from executor.service import Placed, ServiceIntent
from executor.trial_context import TrialContext
from experiments.errors import HostError
from experiments.serving_config import Role

SERIES = "live.jsonl"
CADENCE_S = 3.0
ANSWER_S = 2.0  # for one question
_PAGES = ("/v1/loads", "/get_load")  # the older one is gone from 0.5.22


class LiveSampling:
    """Use it as a context around the waiting. The first sample is taken one cadence after the start."""

    def __init__(self, context: TrialContext, service: ServiceIntent) -> None:
        self._context = context
        self._servers = [server for server in service.servers if server.role is not Role.ROUTER]
        self._missing: set[tuple[Role, str]] = set()  # pages that this server does not have
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="live-sampling", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(timeout=2 * ANSWER_S)

    def _sample(self) -> None:
        while not self._over.wait(CADENCE_S):
            for server in self._servers:
                if self._over.is_set():
                    return
                sample = self._ask(server)
                if sample is not None and not _append(
                    self._context.artifacts / SERIES, render_sample(server.role, sample)
                ):
                    return

    def _ask(self, server: Placed) -> LoadSample | None:
        at = self._context.clock.now().timestamp()
        loads = next((found for page in _PAGES if (found := self._loads(server, page, at)) is not None), None)
        text = self._get(server, "/metrics")
        return merge_answers(at, loads, None if text is None else parse_metrics(text.text))

    def _loads(self, server: Placed, page: str, at: float) -> LoadSample | None:
        answer = self._get(server, page)
        return None if answer is None else parse_loads(_decoded(answer), at)

    def _get(self, server: Placed, page: str) -> httpx.Response | None:
        """The answer if it is one; a page that is not there is not asked for again."""
        if (server.role, page) in self._missing:
            return None
        try:
            with self._context.hosts[server.host].http(server.port, ANSWER_S) as http:
                answer = http.get(page)
        except (httpx.HTTPError, HostError):
            return None
        if answer.status_code == httpx.codes.NOT_FOUND:
            self._missing.add((server.role, page))
        return answer if answer.status_code == httpx.codes.OK else None


def _decoded(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _append(path: Path, line: str) -> bool:
    """Whether there is a place for it: a full disk ends the sampling, never the load."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
    except OSError:
        return False
    return True
