"""Compare two configurations, or say exactly why they cannot be compared.

Nothing may differ between the sides but the one change: scenario, window and its rule, N, C, r, cache preparation and
build must agree, unless the card changes just that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from experiments.measurement import Measurement, WindowKind, WindowMetrics
from experiments.metric import METRICS
from experiments.serving_config import Change, Kind, ServingConfig, diff
from experiments.statistics import Effect, Noise, estimate_effect
from experiments.trial import Tier, TrialLoad

LOAD_FIELDS = ("requests", "concurrency", "rate", "cache")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One valid run, with everything that decides what it may be compared with."""

    trial_id: str
    tier: Tier
    config: ServingConfig
    fingerprint: str  # of `config`, kept because a study asks for it often
    scenario_digest: str
    load: TrialLoad
    build: str | None  # what the servers report as their version
    measurement: Measurement
    position: int  # order in the ledger


class Refusal(BaseModel):
    """Why two results are not comparable: each reason is a whole sentence with both values in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reasons: tuple[str, ...]


class Comparison(BaseModel):
    """The effect of one change on one metric of one window, with its interval. Gains are positive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    window: WindowKind
    rule: str
    incumbent_mean: float
    challenger_mean: float
    gain: float
    low: float
    high: float
    confidence: float
    noise_relative_sd: float
    incumbent_trials: tuple[str, ...]
    challenger_trials: tuple[str, ...]

    def effect(self) -> Effect:
        return Effect(
            gain=self.gain,
            low=self.low,
            high=self.high,
            confidence=self.confidence,
            n_incumbent=len(self.incumbent_trials),
            n_challenger=len(self.challenger_trials),
        )


def compare(
    incumbent: Sequence[Sample],
    challenger: Sequence[Sample],
    change: Change | None,
    *,
    metric: str,
    window: WindowKind,
    noise: Noise,
    confidence: float,
) -> Comparison | Refusal:
    """Compare runs of the incumbent with runs of the challenger. `change` is None for a repeat of the incumbent."""
    reasons = refusal_reasons(incumbent, challenger, change, window)
    if reasons:
        return Refusal(reasons=reasons)
    before = [metric_value(sample, metric, window) for sample in incumbent]
    after = [metric_value(sample, metric, window) for sample in challenger]
    if None in before or None in after:
        return Refusal(reasons=(f"{metric} in the {window} window is NOT_OBSERVED on one side",))
    effect = estimate_effect(
        [v for v in before if v is not None],
        [v for v in after if v is not None],
        noise,
        maximise=METRICS[metric].maximise,
        confidence=confidence,
    )
    measured = challenger[0].measurement.window(window)
    return Comparison(
        metric=metric,
        window=window,
        rule=measured.rule if measured else "",
        incumbent_mean=sum(v for v in before if v is not None) / len(before),
        challenger_mean=sum(v for v in after if v is not None) / len(after),
        gain=effect.gain,
        low=effect.low,
        high=effect.high,
        confidence=confidence,
        noise_relative_sd=noise.relative_sd,
        incumbent_trials=tuple(s.trial_id for s in incumbent),
        challenger_trials=tuple(s.trial_id for s in challenger),
    )


def metric_value(sample: Sample, metric: str, window: WindowKind) -> float | None:
    found = sample.measurement.window(window)
    return METRICS[metric].read(found) if found is not None else None


def refusal_reasons(
    incumbent: Sequence[Sample], challenger: Sequence[Sample], change: Change | None, window: WindowKind
) -> tuple[str, ...]:
    """Every reason that forbids the comparison; empty when it is allowed."""
    if not incumbent or not challenger:
        return ("one side has no valid run",)
    reasons: list[str] = []
    for before in incumbent:
        for after in challenger:
            reasons += _pair_reasons(before, after, change)
    for sample in (*incumbent, *challenger):
        reasons += _window_reasons(sample, window)
    rules = sorted({w.rule for s in (*incumbent, *challenger) if (w := s.measurement.window(window))})
    if len(rules) > 1:
        reasons.append(f"the {window} window follows different rules: {' and '.join(rules)}")
    return tuple(dict.fromkeys(reasons))


def _pair_reasons(before: Sample, after: Sample, change: Change | None) -> list[str]:
    reasons = []
    if before.scenario_digest != after.scenario_digest:
        reasons.append(f"different scenarios: {before.scenario_digest[:12]} and {after.scenario_digest[:12]}")
    for field in LOAD_FIELDS:
        old, new = getattr(before.load, field), getattr(after.load, field)
        if old != new and not _changes_load_field(change, field):
            reasons.append(f"different {field}: {_shown(old)} and {_shown(new)}")
    if before.build != after.build and (change is None or change.kind is not Kind.BUILD):
        reasons.append(f"different builds: {_shown(before.build)} and {_shown(after.build)}")
    found = diff(before.config, after.config)
    if not is_one_change(found, change):
        listed = "; ".join(map(str, found)) or "none"
        wanted = str(change) if change is not None else "none"
        reasons.append(f"the configurations differ by [{listed}], the card's one change is [{wanted}]")
    return reasons


def is_one_change(found: Sequence[Change], change: Change | None) -> bool:
    """Whether the differences are exactly the one change (a `both` knob shows once per role)."""
    if change is None:
        return not found
    return bool(found) and all(
        c.kind is change.kind and c.name == change.name and c.to_value == change.to_value for c in found
    )


def _changes_load_field(change: Change | None, field: str) -> bool:
    return change is not None and change.kind is Kind.CLIENT and change.name == field


def _window_reasons(sample: Sample, window: WindowKind) -> list[str]:
    found: WindowMetrics | None = sample.measurement.window(window)
    if found is None:
        return [f"{sample.trial_id}: the {window} window is NOT_OBSERVED"]
    if not found.meets_floor:
        return [
            f"{sample.trial_id}: the {window} window holds {found.n_requests} requests over "
            f"{found.duration_s:.2f} s, below the goal's floor"
        ]
    return []


def _shown(value: object) -> str:
    return "NOT_OBSERVED" if value is None else str(value)
