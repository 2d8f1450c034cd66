"""The trial that runs, and the stream of news that keeps every open page current."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import StreamingResponse

from agent.dashboard.load_series import LIVE, load_plots, progress_plot, read_live
from agent.dashboard.plot import Plot
from agent.dashboard.routes.common import AtSite, AtWatch
from agent.dashboard.routes.study import load_of
from agent.dashboard.site import Site
from agent.dashboard.status_view import held_help, status_lines
from agent.dashboard.view import render
from agent.dashboard.watch import Count, Watch, read_count
from agent.status_report import StatusReport
from experiments.trial import Stage

router = APIRouter()


@router.get("/w/{key}/live")
def live(request: Request, site: AtSite, watch: AtWatch) -> Any:
    report = site.report()
    running, last = report.running, report.last
    of_trial = [c for c in watch.counts if running is not None and c.trial_id == running.trial.trial_id]
    return render(
        request,
        "live.html",
        site,
        report=report,
        study=report.study,
        running=running,
        held=held_help(report),
        lines=status_lines(report),
        count=_count(site, report),
        rate=progress_plot(of_trial, simulated=report.study.simulated),
        last=last,
        plots=_plots(site, report),
    )


def _count(site: Site, report: StatusReport) -> Count | None:
    """Requests done, while the formal load is out by the journal and its driver speaks of this very trial."""
    running = report.running
    if running is None or not report.is_fresh:
        return None
    measures = any(line.is_running and line.stage is Stage.MEASURE for line in running.stages)
    count = read_count(site) if measures else None
    return count if count is not None and count.trial_id == running.trial.trial_id else None


def _plots(site: Site, report: StatusReport) -> Sequence[Plot]:
    """Of the load that runs, from its samples; while none runs, of the last one, from its logs."""
    simulated = report.study.simulated
    if report.running is not None:
        return load_plots(
            read_live(site.workspace.artifacts / report.running.trial.trial_id / LIVE), simulated=simulated
        )
    return () if report.last is None else load_plots(load_of(site, report.last.trial_id), simulated=simulated)


@router.get("/w/{key}/events")
async def events(request: Request, watch: AtWatch) -> StreamingResponse:
    if watch.is_full:
        raise HTTPException(503, "too many pages watch this workspace", {"Retry-After": "30"})
    session_id = request.scope["session_id"]

    def is_welcome() -> bool:
        return request.app.state.sessions.find(session_id) is not None

    return StreamingResponse(_until_left(watch, is_welcome), media_type="text/event-stream")


async def _until_left(watch: Watch, is_welcome: Callable[[], bool]) -> AsyncIterator[str]:
    """Joined only when the stream begins: whoever leaves before that has not been counted."""
    watch.join()
    try:
        async for text in watch.stream(is_welcome):
            yield text
    finally:
        watch.leave()
