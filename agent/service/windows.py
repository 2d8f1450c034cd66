"""When new trials may start: spans that begin by a cron expression, in the service's time zone.

What runs when a window closes runs on; only the start of a trial asks here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from agent.service.service_file import Window


@dataclass(frozen=True, kw_only=True)
class _Span:
    trigger: CronTrigger
    length: timedelta

    def holds(self, now: datetime) -> bool:
        """Whether a start lies at most `length` back."""
        start = self.next_start(now - self.length + timedelta(microseconds=1))
        return start is not None and start <= now

    def next_start(self, since: datetime) -> datetime | None:
        start: datetime | None = self.trigger.get_next_fire_time(None, since)
        return start


class NightWindows:
    """Without any window, always."""

    def __init__(self, windows: Iterable[Window], zone: ZoneInfo) -> None:
        self._zone = zone
        self._spans = tuple(
            _Span(trigger=CronTrigger.from_crontab(w.start, timezone=zone), length=timedelta(hours=w.hours))
            for w in windows
        )

    def refusal(self, now: datetime) -> str | None:
        if not self._spans or any(span.holds(now) for span in self._spans):
            return None
        starts = [start for start in (span.next_start(now) for span in self._spans) if start is not None]
        when = min(starts).astimezone(self._zone).isoformat(timespec="minutes") if starts else "never"
        return f"outside the hours in which trials may start; the next begin: {when}"
