"""Tell people: a command with JSON on its standard input, or a webhook. The only home of httpx outside the executor.

Delivery is in a thread of its own, in order, and retried; it never blocks or fails the study. An event that cannot be
delivered for an hour is logged and dropped. A webhook's URL is a secret and is named in no message.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential_jitter,
)

log = structlog.get_logger(__name__)

Event = Mapping[str, object]

COMMAND_TIMEOUT_S = 30.0
HTTP_TIMEOUT_S = 15.0
GIVE_UP_S = 3600.0
LONGEST_PAUSE_S = 300.0
MOST_WAITING = 1000  # events; a channel that is down for a night must not fill the memory
RETRIED = frozenset({408, 425, 429})  # of the client errors; all server errors are retried


class NotDelivered(Exception):
    """The channel did not take the event this time."""


class Refused(Exception):
    """The channel will never take it: another try would be the same."""


class Channel(Protocol):
    def deliver(self, event: Event) -> None:
        """Raises NotDelivered or Refused."""
        ...


@dataclass(frozen=True)
class Command:
    """A program of the operator, given as a list of arguments and never as a shell's text."""

    argv: tuple[str, ...]

    def deliver(self, event: Event) -> None:
        try:
            done = subprocess.run(
                list(self.argv),
                input=json.dumps(event, ensure_ascii=False) + "\n",
                text=True,
                capture_output=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise Refused(f"{self.argv[0]}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise NotDelivered(f"{self.argv[0]}: not over after {COMMAND_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            raise NotDelivered(f"{self.argv[0]}: exit code {done.returncode}")


@dataclass(frozen=True)
class Webhook:
    """JSON by POST. Any answer below 300 counts as taken."""

    url: str = field(repr=False)

    def deliver(self, event: Event) -> None:
        import httpx  # a tenth of a second to import

        try:
            answer = httpx.post(self.url, json=dict(event), timeout=HTTP_TIMEOUT_S, follow_redirects=False)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotDelivered(f"the webhook: {type(error).__name__}") from None
        if answer.status_code >= 500 or answer.status_code in RETRIED:
            raise NotDelivered(f"the webhook answered {answer.status_code}")
        if answer.status_code >= 300:
            raise Refused(f"the webhook answered {answer.status_code}")


@dataclass(frozen=True, kw_only=True)
class _Letter:
    event: Event
    settled: Callable[[], None]


class Notifier:
    """One queue and one thread for all channels of a service."""

    def __init__(self, channels: tuple[Channel, ...], *, first_pause_s: float = 1.0) -> None:
        self._channels, self._first_pause_s = channels, first_pause_s
        self._letters: queue.Queue[_Letter | None] = queue.Queue(MOST_WAITING)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def send(self, event: Event, settled: Callable[[], None] = lambda: None) -> bool:
        """Returns at once. `settled` is called when the event was delivered or given up. False: there is no room."""
        try:
            self._letters.put_nowait(_Letter(event=event, settled=settled))
        except queue.Full:
            log.warning("notify.full", kind=event.get("event"))
            return False
        return True

    def close(self, patience_s: float = 2.0) -> None:
        """Deliver what waits, for a moment; what is left is sent again by the next service."""
        try:
            self._letters.put_nowait(None)
        except queue.Full:
            self._leaving.set()
        self._thread.join(timeout=patience_s)
        self._leaving.set()

    def _work(self) -> None:
        while not self._leaving.is_set():
            letter = self._letters.get()
            if letter is None:
                return
            settled = [self._deliver(channel, letter.event) for channel in self._channels]
            if all(settled):
                letter.settled()

    def _deliver(self, channel: Channel, event: Event) -> bool:
        """Whether it is settled: delivered, refused or given up. Not so if the service leaves meanwhile."""
        retrying = Retrying(
            retry=retry_if_exception_type(NotDelivered),
            wait=wait_exponential_jitter(multiplier=self._first_pause_s, max=LONGEST_PAUSE_S),
            stop=stop_after_delay(GIVE_UP_S) | stop_after_attempt(60) | stop_when_event_set(self._leaving),
            sleep=sleep_using_event(self._leaving),
        )
        try:
            retrying(channel.deliver, event)
        except RetryError as error:
            log.warning("notify.not_delivered", kind=event.get("event"), why=str(error.last_attempt.exception()))
            return not self._leaving.is_set()
        except Refused as error:
            log.warning("notify.refused", kind=event.get("event"), why=str(error))
        return True
