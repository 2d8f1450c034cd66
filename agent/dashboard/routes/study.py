"""Overview, lists, cards, trials, faults, loop figures: what is known about a study."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import FileResponse, RedirectResponse
from markupsafe import Markup
from pydantic import BeforeValidator

from agent.dashboard.address import address
from agent.dashboard.document_view import files_of, html_of
from agent.dashboard.load_series import LOGS, LoadView, load_plots, read_logs
from agent.dashboard.log_tail import read_tail
from agent.dashboard.plot import draw
from agent.dashboard.progress_view import progress_plots
from agent.dashboard.routes.common import AtSite
from agent.dashboard.site import Site
from agent.dashboard.status_view import held_help, status_lines
from agent.dashboard.view import WORDS, render
from agent.ledger.answer_section import answer_blocks, launch_blocks
from agent.ledger.card_page import card_page, start_page
from agent.ledger.history import START, History
from agent.ledger.loop_section import cost_blocks, open_blocks, prediction_blocks
from agent.ledger.noise_section import noise_blocks
from agent.ledger.progress import progress_of
from agent.ledger.trial_section import trial_blocks
from agent.ledger.tried_section import fault_blocks, refused_blocks
from experiments.errors import TuningError
from experiments.trial import Route, Tier
from state.views import TrialRow

router = APIRouter()

LAST = 8  # rows of the overview


def _none_if_empty(text: object) -> object:
    """A filter that is set to "all" is sent as an empty text."""
    return None if text == "" else text


Position = Annotated[int | None, Query(ge=0, le=2**53)]
AnyRoute = Annotated[Route | None, BeforeValidator(_none_if_empty)]
AnyTier = Annotated[Tier | None, BeforeValidator(_none_if_empty)]


@router.get("/")
def home(request: Request) -> Any:
    sites: dict[str, Site] = request.app.state.sites
    if len(sites) == 1:
        return RedirectResponse(f"/w/{next(iter(sites))}/", 303)
    return render(request, "home.html", rows=[_summary(site) for site in sites.values()])


def _summary(site: Site) -> dict[str, Any]:
    row: dict[str, Any] = {"site": site, "url": address(site.key), "report": None, "trouble": "", "lines": {}}
    try:
        report = site.report()
    except TuningError as error:
        return row | {"trouble": str(error)}
    return row | {"report": report, "lines": {line.name: line for line in status_lines(report)}}


@router.get("/w/{key}/")
def overview(request: Request, site: AtSite) -> Any:
    report, study_id = site.report(), site.study_id
    return render(
        request,
        "overview.html",
        site,
        report=report,
        study=report.study,
        lines=status_lines(report),
        held=held_help(report),
        trials=site.views.page(study_id, limit=LAST),
        cards=site.views.cards(study_id, limit=LAST),
    )


@router.get("/w/{key}/progress")
def progress(request: Request, site: AtSite) -> Any:
    """The answer so far and its plot. Apart from the overview, because it needs the whole ledger."""

    def make(history: History) -> dict[str, Any]:
        rest = [*launch_blocks(history, None, WORDS), *open_blocks(history, WORDS)]
        plots = progress_plots(progress_of(history), WORDS, simulated=history.simulated)
        return {
            "answer": html_of(answer_blocks(history, WORDS), site.redact, site.key),
            "plots": [draw(plot) for plot in plots],
            "rest": html_of(rest, site.redact, site.key),
        }

    made = site.made_once("progress", make)
    return render(request, "progress.html", site, study=site.views.study(site.study_id), **made)


@router.get("/w/{key}/experiments")
def experiments(
    request: Request, site: AtSite, before: Position = None, route: AnyRoute = None, tier: AnyTier = None
) -> Any:
    study_id = site.study_id
    return render(
        request,
        "experiments.html",
        site,
        study=site.views.study(study_id),
        page=site.views.page(study_id, before=before, route=route, tier=tier),
        before=before,
        route=route,
        tier=tier,
        routes=tuple(Route),
        tiers=tuple(Tier),
    )


@router.get("/w/{key}/cards")
def cards(request: Request, site: AtSite, before: Position = None) -> Any:
    study_id = site.study_id
    found = site.views.cards(study_id, before=before)
    counts = site.views.count_cards(study_id)
    return render(
        request, "cards.html", site, study=site.views.study(study_id), cards=found, counts=counts, before=before
    )


@router.get("/w/{key}/cards/{name}")
def card(request: Request, site: AtSite, name: str) -> Any:
    with site.history() as history:
        found = next((a for a in history.attempts if name in (a.name, a.card.digest)), None)
        if name == START:
            page = start_page(history, files_of(site.key), WORDS)
        elif found is not None:
            page = card_page(history, found, files_of(site.key), WORDS)
        else:
            raise HTTPException(404, f"no card {name[:80]!r} in this study")
        body = html_of(page.blocks, site.redact, site.key, page.path)
    study = site.views.study(site.study_id)
    return render(request, "document.html", site, study=study, title=page.title, body=body, at=page.path)


@router.get("/w/{key}/trials/{trial_id}")
def trial(request: Request, site: AtSite, trial_id: str) -> Any:
    row = _row(site, trial_id)
    with site.history() as history:
        state = history.study.trials.get(trial_id)
        blocks = [] if state is None else trial_blocks(state, files_of(site.key), WORDS)[1:]  # its name is the title
        link = None if state is None else history.trial_link(trial_id)
        return render(
            request,
            "trial.html",
            site,
            study=site.views.study(site.study_id),
            row=row,
            blocks=blocks,
            card_page=link.page.removeprefix("cards/") if link is not None else None,
            plots=load_plots(load_of(site, trial_id), simulated=row.simulated),
            logs=[a.name for a in site.artifacts(trial_id) if a.name.endswith(".log")],
        )


def load_of(site: Site, trial_id: str) -> LoadView:
    """What the servers wrote while the load of an ended trial ran."""
    paths = (site.artifact(trial_id, name) for name in LOGS)
    return read_logs(path for path in paths if path is not None)


def _row(site: Site, trial_id: str) -> TrialRow:
    row = site.views.trial(trial_id)
    if row is None or row.study_id != site.study_id:
        raise HTTPException(404, f"no trial {trial_id[:80]!r} in this study")
    return row


@router.get("/w/{key}/trials/{trial_id}/log/{name:path}")
def log(request: Request, site: AtSite, trial_id: str, name: str) -> Any:
    """The end of a text log, line by line through the redactor."""
    path = site.artifact(trial_id, name)
    if path is None:
        raise HTTPException(404, "no such log")
    study = site.views.study(site.study_id)
    return render(request, "log.html", site, study=study, trial_id=trial_id, name=name, lines=read_tail(path))


@router.get("/w/{key}/files/{trial_id}/{name:path}")
def raw_file(site: AtSite, trial_id: str, name: str) -> FileResponse:
    """The original, to be saved: never shown by the browser, whatever is in it."""
    path = site.artifact(trial_id, name)
    if path is None:
        raise HTTPException(404, "no such file")
    return FileResponse(path, media_type="application/octet-stream", filename=f"{trial_id}-{path.name}")


@router.get("/w/{key}/faults")
def faults(request: Request, site: AtSite) -> Any:
    def make(history: History) -> Markup:
        return html_of([*fault_blocks(history, WORDS), *refused_blocks(history, WORDS)], site.redact, site.key)

    return render(
        request,
        "faults.html",
        site,
        study=site.views.study(site.study_id),
        body=site.made_once("faults", make),
        held=held_help(site.report()),
        tally=sorted(site.views.tally(site.study_id).items()),
    )


@router.get("/w/{key}/loop")
def loop(request: Request, site: AtSite) -> Any:
    def make(history: History) -> Markup:
        blocks = [*cost_blocks(history, WORDS), *prediction_blocks(history, WORDS), *noise_blocks(history, WORDS)]
        return html_of(blocks, site.redact, site.key, "loop")

    body = site.made_once("loop", make)
    study = site.views.study(site.study_id)
    return render(request, "document.html", site, study=study, title="Loop", body=body, at="loop")
