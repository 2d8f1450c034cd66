"""Trade-offs and comparisons: questions that a reader asks of the records. Nothing is run or stored for them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request

from agent.dashboard.comparing import COMPARABLE, Question, answer
from agent.dashboard.routes.common import AtSite
from agent.dashboard.view import WORDS, render
from agent.ledger.effects import comparison_text
from agent.ledger.history import History
from agent.ledger.trial_section import window_table
from experiments.comparison import Comparison, Refusal
from experiments.measurement import WindowKind
from experiments.study import TrialState
from experiments.tradeoff import choice_metrics, choose, option_set

router = APIRouter()

MOST_OPTIONS = 200


@router.get("/w/{key}/trade-offs")
def trade_offs(
    request: Request,
    site: AtSite,
    prefer: str | None = None,
    requests: Annotated[int | None, Query(ge=1, le=10**9)] = None,
) -> Any:
    with site.history() as history:
        study = history.study
        metrics, goal = choice_metrics(study), study.goal
        wanted = prefer or goal.objective.metric
        if wanted not in metrics:
            raise HTTPException(400, f"{wanted[:60]!r} is not among the figures of this study: {', '.join(metrics)}")
        formal = goal.scenario.load.requests
        chosen_n = requests or formal
        found = option_set(study, chosen_n)
        options = found.options
        return render(
            request,
            "trade_offs.html",
            site,
            study=site.views.study(site.study_id),
            options=options[:MOST_OPTIONS],
            left_out=max(0, len(options) - MOST_OPTIONS),
            metrics=metrics,
            prefer=wanted,
            requests=chosen_n,
            loads=dict.fromkeys((formal, goal.screening.requests)),
            formal=formal,
            window=found.window,
            choice=choose(study, found, wanted),
            names={option.name: _page_of(history, option.trial_ids[0]) for option in options},
        )


def _page_of(history: History, trial_id: str) -> str:
    return history.pages[trial_id].removeprefix("cards/")


@router.get("/w/{key}/compare")
def compare_trials(
    request: Request,
    site: AtSite,
    before: str | None = None,
    after: str | None = None,
    metric: str | None = None,
    window: WindowKind | None = None,
    before_window: WindowKind | None = None,
) -> Any:
    with site.history() as history:
        study, goal = history.study, history.study.goal
        kind = window or goal.objective.window
        of = metric if metric in COMPARABLE else goal.objective.metric
        found = None
        if before and after:
            question = Question(before=before, after=after, metric=of, window=kind, before_window=before_window or kind)
            found = answer(study, question)
        return render(
            request,
            "compare.html",
            site,
            study=site.views.study(site.study_id),
            runs=_runs(history),
            before=before,
            after=after,
            metric=of,
            metrics=COMPARABLE,
            window=kind,
            before_window=before_window or kind,
            windows=tuple(WindowKind),
            refusal=found if isinstance(found, Refusal) else None,
            comparison=found if isinstance(found, Comparison) else None,
            sentence=_sentence(found, study.trials.get(after or "")),
            sides=[_side(study.trials[i]) for i in (before, after) if i in study.trials],
        )


def _sentence(found: Comparison | Refusal | None, after: TrialState | None) -> str | None:
    if not isinstance(found, Comparison) or after is None:
        return None
    return comparison_text(found, after.started.load.requests, WORDS)


def _side(trial: TrialState) -> dict[str, Any]:
    measured = trial.sample.measurement if trial.sample is not None else None
    return {"trial": trial, "blocks": [] if measured is None else [window_table(measured, WORDS)]}


def _runs(history: History) -> list[tuple[str, str]]:
    """Every trial with what it is, newest first, for the two lists to choose from."""
    runs = []
    for trial_id, trial in reversed(history.study.trials.items()):
        attempt = history.attempt(trial.started.card_digest)
        name = history.name_of(trial.started.config) if attempt is None else attempt.name
        state = "" if trial.sample is not None else ", no valid run"
        runs.append((trial_id, f"{history.trial_link(trial_id).text}: {name}, {trial.started.tier}{state}"))
    return runs[:500]
