"""Route one trial: orchestration fault, valid negative, or promising. Pure; the order of the questions is the rule.

1. Is there a measurement? If not: the configuration's own failure is a negative (infeasible), all else is a fault.
2. Does every constraint hold? If not: a negative, with its numbers kept.
3. Only then statistics.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from experiments.comparison import Comparison, Refusal
from experiments.statistics import Verdict
from experiments.trial import Reason, Route, TrialRecord

_ROUTE_OF_VERDICT = {
    Verdict.GAIN: (Route.PROMISING, Reason.GAIN),
    Verdict.LOSS: (Route.VALID_NEGATIVE, Reason.SLOWER),
    Verdict.NO_GAIN: (Route.VALID_NEGATIVE, Reason.NO_SIGNIFICANT_GAIN),
    Verdict.NOT_EXCLUDED: (Route.PROMISING, Reason.NOT_EXCLUDED),
}


class Classification(BaseModel):
    """The route of one trial or of one card, with the sentence that a reviewer reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    route: Route
    reason: Reason
    explanation: str
    comparison: Comparison | None = None
    refusal: Refusal | None = None


def classify_failure(record: TrialRecord) -> Classification:
    """The route of a trial without a measurement."""
    failure = record.failure
    if failure is None:
        raise ValueError(f"trial {record.trial_id} has a measurement")
    if record.configuration_caused and failure.reason is Reason.NO_SIGNIFICANT_GAIN:
        return Classification(
            route=Route.VALID_NEGATIVE,
            reason=Reason.NO_SIGNIFICANT_GAIN,
            explanation=f"nothing was run: {failure.detail}",
        )
    if record.configuration_caused:
        return Classification(
            route=Route.VALID_NEGATIVE,
            reason=Reason.INFEASIBLE,
            explanation=f"the configuration cannot run: {failure.detail}",
        )
    return Classification(
        route=Route.ORCHESTRATION_FAULT,
        reason=failure.reason,
        explanation=f"{failure.stage}: {failure.detail} (formal load {failure.sent.replace('_', ' ')})",
    )


def classify_slo(violated: tuple[str, ...], comparison: Comparison | None) -> Classification:
    """The route of a valid run that breaks a constraint. Its numbers stay in the record."""
    return Classification(
        route=Route.VALID_NEGATIVE,
        reason=Reason.SLO_VIOLATED,
        explanation="; ".join(violated),
        comparison=comparison,
    )


def classify_incomparable(refusal: Refusal) -> Classification:
    """A valid run that cannot be judged: evidence is missing, so it is a fault and never a negative."""
    return Classification(
        route=Route.ORCHESTRATION_FAULT,
        reason=Reason.EVIDENCE_INCOMPLETE,
        explanation="not comparable: " + "; ".join(refusal.reasons),
        refusal=refusal,
    )


def classify_effect(verdict: Verdict, comparison: Comparison) -> Classification:
    """The route that a decided effect takes."""
    route, reason = _ROUTE_OF_VERDICT[verdict]
    why = _why_no_gain(comparison) if verdict is Verdict.NO_GAIN else ""
    return Classification(route=route, reason=reason, explanation=describe(comparison) + why, comparison=comparison)


def _why_no_gain(comparison: Comparison) -> str:
    """What was excluded, or that the planned runs are used up."""
    best, worthwhile = comparison.best_case, comparison.worthwhile
    if best is None or worthwhile is None:
        return ""
    if best < worthwhile:
        return f"; at most {best:+.2%} is left, {worthwhile:+.2%} would be worth more runs"
    return f"; not decided by the {comparison.planned_pairs} pairs that were planned"


def classify_quality(confirmed: Classification, *, passed: bool, detail: str) -> Classification:
    """The last word on a confirmed card whose outputs were evaluated: speed alone does not keep it."""
    if passed:
        return confirmed.model_copy(update={"explanation": f"{confirmed.explanation}; quality passed: {detail}"})
    return Classification(
        route=Route.VALID_NEGATIVE,
        reason=Reason.QUALITY_FAILED,
        explanation=f"quality failed: {detail}",
        comparison=confirmed.comparison,
    )


def classify_not_evaluated(confirmed: Classification, detail: str) -> Classification:
    """The goal requires an evaluation and none could be had: a fault, and no word against the configuration."""
    return Classification(
        route=Route.ORCHESTRATION_FAULT,
        reason=Reason.EVIDENCE_INCOMPLETE,
        explanation=f"its quality could not be evaluated: {detail}",
        comparison=confirmed.comparison,
    )


def describe(comparison: Comparison) -> str:
    """One sentence: what was compared, the effect with its interval, and how many runs stand behind it."""
    return (
        f"{comparison.metric} ({comparison.window}) {comparison.incumbent_mean:.2f} → "
        f"{comparison.challenger_mean:.2f}: {comparison.gain:+.2%} "
        f"[{comparison.low:+.2%}, {comparison.high:+.2%}] at {comparison.confidence:.0%}, "
        f"{len(comparison.challenger_trials)} against {len(comparison.incumbent_trials)} runs"
    )
