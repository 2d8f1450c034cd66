"""Effects and outcomes in words: always with window, N, interval and the number of runs on each side."""

from __future__ import annotations

from agent.ledger.document import Label, Mood
from agent.ledger.figures import change_figure, interval_figure, metric_figure
from agent.ledger.history import Attempt, History
from agent.ledger.words import Words
from experiments.classification import Classification
from experiments.comparison import Comparison
from experiments.study import TrialState
from experiments.trial import Route, Tier

_MOODS = {
    Route.PROMISING: Mood.GOOD,
    Route.VALID_NEGATIVE: Mood.BAD,
    Route.ORCHESTRATION_FAULT: Mood.FAULT,
}


def outcome_label(classification: Classification, t: Words, *, kept: bool = False) -> Label:
    reason = t.label(classification.reason)
    if kept:
        return Label(t("kept"), Mood.GOOD)
    if classification.route is Route.ORCHESTRATION_FAULT:
        return Label(t("fault: {reason}", reason=reason), Mood.FAULT)
    if classification.route is Route.VALID_NEGATIVE:
        return Label(t("negative: {reason}", reason=reason), Mood.BAD)
    return Label(t("promising: {reason}", reason=reason), Mood.GOOD)


def route_label(route: Route, t: Words) -> Label:
    return Label(t.label(route), _MOODS[route])


def basis_text(comparison: Comparison, requests: int | None, t: Words) -> str:
    """What an effect rests on: "native window, N=640, 2 against 2 runs"."""
    return t(
        "{window} window, N={n}, {after} against {before} runs",
        window=t.label(comparison.window),
        n="?" if requests is None else requests,
        after=len(comparison.challenger_trials),
        before=len(comparison.incumbent_trials),
    )


def effect_text(comparison: Comparison, requests: int | None, t: Words) -> str:
    """ "+32.27 % [+30.10 %, +34.08 %] (native window, N=640, 2 against 2 runs)"."""
    interval = interval_figure(comparison.low, comparison.high)
    return f"{change_figure(comparison.gain)} {interval} ({basis_text(comparison, requests, t)})"


def comparison_text(comparison: Comparison, requests: int | None, t: Words) -> str:
    """The verdict's sentence, made anew from its figures."""
    return t(
        "{metric} {before} → {after}: {gain} {interval} at {confidence:.0f} % confidence ({basis})",
        metric=t.metric(comparison.metric),
        before=metric_figure(comparison.metric, comparison.incumbent_mean),
        after=metric_figure(comparison.metric, comparison.challenger_mean),
        gain=change_figure(comparison.gain),
        interval=interval_figure(comparison.low, comparison.high),
        confidence=comparison.confidence * 100,
        basis=basis_text(comparison, requests, t),
    )


def tier_effect(attempt: Attempt, tier: Tier, history: History, t: Words) -> str:
    """The cell of one tier: an effect, what stood in its way, or a dash where the card never came that far."""
    phase = attempt.phases.get(tier)
    if phase is None:
        runs = [trial for trial in attempt.trials if trial.started.tier is tier]
        if any(trial.is_held for trial in runs):
            return t("held")
        return t("running") if runs else "–"
    comparison = phase.classification.comparison
    if comparison is not None:
        return effect_text(comparison, requests_of(history, phase.trial_ids), t)
    if phase.classification.refusal is not None:
        return t("not comparable")
    return t("no number")


def requests_of(history: History, trial_ids: tuple[str, ...]) -> int | None:
    """The N of these runs; they share it, or nothing would have been compared."""
    planned = {history.study.trials[i].started.load.requests for i in trial_ids if i in history.study.trials}
    return planned.pop() if len(planned) == 1 else None


def load_text(trial: TrialState) -> str:
    load = trial.started.load
    rate = "∞" if load.rate is None else f"{load.rate:g}"
    return f"N={load.requests} C={load.concurrency} r={rate}"
