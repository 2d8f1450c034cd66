"""APScheduler, and nothing else of it anywhere but the cron expressions of `windows`.

Jobs are in memory: what is to be done is in the databases, so a service that starts late has missed nothing. A tick may
last for hours; it is never begun twice, and what was due meanwhile is one tick.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import structlog
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from agent.service.service import Job

log = structlog.get_logger(__name__)

GRACE_S = 3600  # a tick that is late is still wanted
SPARE_THREADS = 3  # beside one per study, so that rights are renewed while every study measures


def schedule(jobs: Iterable[Job], zone: ZoneInfo, now: datetime) -> BackgroundScheduler:
    """A scheduler that calls the jobs, the first time at once. It has yet to be started."""
    # It would say once a tick that a running one was not begun again.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    wanted = list(jobs)
    scheduler = BackgroundScheduler(
        timezone=zone,
        executors={"default": ThreadPoolExecutor(len(wanted) + SPARE_THREADS)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": GRACE_S},
    )
    for job in wanted:
        scheduler.add_job(
            job.work,
            "interval",
            seconds=job.every_s,
            id=job.name,
            replace_existing=True,
            next_run_time=now.astimezone(UTC),
        )
    scheduler.add_listener(_say_error, EVENT_JOB_ERROR)
    return scheduler


def _say_error(event: JobExecutionEvent) -> None:
    """An error that no job foresaw. The job is called again; what it holds was closed."""
    log.error("job.failed", job=event.job_id, error=repr(event.exception)[:500], trace=str(event.traceback)[-4000:])
