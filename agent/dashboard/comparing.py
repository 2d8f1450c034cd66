"""Two trials side by side: an effect with its interval, or every reason why they may not be compared."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.comparison import Comparison, Refusal, compare
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.serving_config import Change, diff
from experiments.study import Study, TrialState
from experiments.verdict import noise_of

COMPARABLE = tuple(m.id for m in METRICS.values() if m.field is not None and m.better is not None)


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which runs, in which windows, by which figure. `before` is the side that gains are counted from."""

    before: str
    after: str
    metric: str
    window: WindowKind
    before_window: WindowKind


def answer(study: Study, question: Question) -> Comparison | Refusal:
    """Never a number where a rule forbids it; a trial without a valid run is such a rule."""
    missing = tuple(_why_unusable(study, trial_id) for trial_id in (question.before, question.after))
    reasons = tuple(why for why in missing if why is not None)
    if question.before == question.after:
        reasons += ("both sides are the same run",)
    if reasons:
        return Refusal(reasons=reasons)
    before, after = study.trials[question.before], study.trials[question.after]
    sides = [[trial.sample] for trial in (before, after) if trial.sample is not None]
    return compare(
        sides[0],
        sides[1],
        change_between(study, before, after),
        metric=question.metric,
        window=question.window,
        noise=noise_of(study, question.metric, question.window),
        confidence=study.goal.confidence,
        incumbent_window=question.before_window,
    )


def _why_unusable(study: Study, trial_id: str) -> str | None:
    trial = study.trials.get(trial_id)
    if trial is None:
        return f"{trial_id}: no such trial in this study"
    if trial.sample is not None:
        return None
    if trial.record is not None and trial.record.failure is not None:
        failure = trial.record.failure
        return f"{trial_id}: has no valid run ({failure.reason} in stage {failure.stage}), so it has no numbers"
    return f"{trial_id}: {'its end is unknown' if trial.is_held else 'has not ended'}"


def change_between(study: Study, before: TrialState, after: TrialState) -> Change | None:
    """The one change that a comparison may rest on: the card's own, or the only difference there is."""
    card = study.cards.get(after.started.card_digest or "")
    if card is not None and card.parent_fingerprint == before.started.config.fingerprint():
        return card.draft.change
    found = diff(before.started.config, after.started.config)
    return found[0] if len(found) == 1 else None
