"""Compare two configurations, or say exactly why they cannot be compared.

Nothing may differ between the sides but the one change: scenario, window and its rule, N, C, r, cache preparation,
client and build must agree, unless the card changes just that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from experiments.measurement import Measurement, WindowKind, WindowMetrics
from experiments.metric import METRICS
from experiments.scenario import Scenario
from experiments.serving_config import Change, Kind, Role, ServingConfig, diff
from experiments.statistics import GIVE_UP_CONFIRMATION, Effect, Noise, effective_pairs, estimate_effect
from experiments.trial import Tier, TrialLoad

LOAD_FIELDS = ("requests", "concurrency", "rate", "cache")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One valid run, with everything that decides what it may be compared with."""

    trial_id: str
    tier: Tier
    config: ServingConfig
    fingerprint: str  # of `config`, kept because a study asks for it often
    scenario: Scenario
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
    """The effect of one change on one metric of one window, with its interval. Gains are positive.

    `planned_pairs` and the interval go together: before the plan is done the interval is wider, so that looking after
    every run does not raise the share of false gains. The last three are None in entries of older versions.
    """

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
    best_case: float | None = None  # the largest gain not excluded, at the probability of giving up
    planned_pairs: int | None = None  # None: judged as if this were the only look
    worthwhile: float | None = None  # the least gain that was worth going on for

    def effect(self) -> Effect:
        return Effect(
            gain=self.gain,
            low=self.low,
            high=self.high,
            best_case=self.high if self.best_case is None else self.best_case,
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
    incumbent_window: WindowKind | None = None,
    planned_pairs: int | None = None,
    give_up: float = GIVE_UP_CONFIRMATION,
) -> Comparison | Refusal:
    """Compare runs of the incumbent with runs of the challenger. `change` is None for a repeat of the incumbent.

    `incumbent_window` is the window that the other figure was read in, where a reader picked both by hand.
    `planned_pairs` is given where a comparison is looked at repeatedly.
    """
    if incumbent_window not in (None, window):
        return Refusal(reasons=(f"different windows: {incumbent_window} and {window}",))
    reasons = refusal_reasons(incumbent, challenger, change, window)
    if reasons:
        return Refusal(reasons=reasons)
    before, after = _values(incumbent, metric, window), _values(challenger, metric, window)
    unusable = _unusable([*incumbent, *challenger], metric, window)
    if unusable:
        return Refusal(reasons=unusable)
    effect = estimate_effect(
        before,
        after,
        noise,
        maximise=METRICS[metric].maximise,
        confidence=confidence,
        information=None if planned_pairs is None else effective_pairs(len(before), len(after)) / planned_pairs,
        give_up=give_up,
    )
    measured = challenger[0].measurement.window(window)
    return Comparison(
        metric=metric,
        window=window,
        rule=measured.rule if measured else "",
        incumbent_mean=math.fsum(before) / len(before),
        challenger_mean=math.fsum(after) / len(after),
        gain=effect.gain,
        low=effect.low,
        high=effect.high,
        confidence=confidence,
        noise_relative_sd=noise.relative_sd,
        incumbent_trials=tuple(s.trial_id for s in incumbent),
        challenger_trials=tuple(s.trial_id for s in challenger),
        best_case=effect.best_case,
        planned_pairs=planned_pairs,
    )


def metric_value(sample: Sample, metric: str, window: WindowKind) -> float | None:
    found = sample.measurement.window(window)
    return METRICS[metric].read(found) if found is not None else None


def _values(samples: Sequence[Sample], metric: str, window: WindowKind) -> list[float]:
    return [value for s in samples if (value := metric_value(s, metric, window)) is not None]


def _unusable(samples: Sequence[Sample], metric: str, window: WindowKind) -> tuple[str, ...]:
    """Runs whose figure no ratio can be taken of."""
    found = []
    for sample in samples:
        value = metric_value(sample, metric, window)
        if value is None:
            found.append(f"{sample.trial_id}: {metric} in the {window} window is NOT_OBSERVED")
        elif not value > 0:
            found.append(f"{sample.trial_id}: {metric} in the {window} window is {value:.2f}, no ratio can be taken")
    return tuple(found)


def refusal_reasons(
    incumbent: Sequence[Sample], challenger: Sequence[Sample], change: Change | None, window: WindowKind
) -> tuple[str, ...]:
    """Every reason that forbids the comparison; empty when it is allowed."""
    if not incumbent or not challenger:
        return ("one side has no valid run",)
    reasons: list[str] = []
    for before in _distinct(incumbent):
        for after in _distinct(challenger):
            reasons += _pair_reasons(before, after, change)
    for sample in (*incumbent, *challenger):
        reasons += _window_reasons(sample, window)
    rules = sorted({w.rule for s in (*incumbent, *challenger) if (w := s.measurement.window(window))})
    if len(rules) > 1:
        reasons.append(f"the {window} window follows different rules: {' and '.join(rules)}")
    return tuple(dict.fromkeys(reasons))


def _distinct(samples: Sequence[Sample]) -> list[Sample]:
    """One sample of each kind: repeats of one configuration differ in nothing that a comparison asks for."""
    kinds: dict[tuple[object, ...], Sample] = {}
    for sample in samples:
        measured = sample.measurement
        kind = (
            sample.fingerprint,
            sample.scenario_digest,
            sample.load,
            sample.build,
            measured.client,
            measured.simulated,
        )
        kinds.setdefault(kind, sample)
    return list(kinds.values())


def _pair_reasons(before: Sample, after: Sample, change: Change | None) -> list[str]:
    reasons = _scenario_reasons(before, after)
    for field in LOAD_FIELDS:
        old, new = getattr(before.load, field), getattr(after.load, field)
        if old != new and not _changes_load_field(change, field):
            reasons.append(f"different {field}: {_shown(old)} and {_shown(new)}")
    if before.build != after.build and not _changes_build(change):
        reasons.append(f"different builds: {_shown(before.build)} and {_shown(after.build)}")
    if before.measurement.simulated is not after.measurement.simulated:
        reasons.append("one side was simulated, the other measured")
    if before.measurement.client != after.measurement.client:
        reasons.append(f"different clients: {before.measurement.client} and {after.measurement.client}")
    found = diff(before.config, after.config)
    if not is_one_change(found, change):
        listed = "; ".join(map(str, found)) or "none"
        wanted = str(change) if change is not None else "none"
        reasons.append(f"the configurations differ by [{listed}], the card's one change is [{wanted}]")
    return reasons


def _scenario_reasons(before: Sample, after: Sample) -> list[str]:
    """What differs between the scenarios, by name. N, C and r are the load's and are judged there."""
    if before.scenario_digest == after.scenario_digest:
        return []
    old = before.scenario.comparable_key(before.scenario.load)
    new = after.scenario.comparable_key(after.scenario.load)
    return [
        f"different {name}: {_shown(old.get(name))} and {_shown(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if name != "load.requests" and old.get(name) != new.get(name)
    ]


def is_one_change(found: Sequence[Change], change: Change | None) -> bool:
    """Whether the differences are exactly the one change (a `both` knob shows once per role)."""
    if change is None:
        return not found
    parts = change.parts
    return all(any(_is_part_of(d, p) for p in parts) for d in found) and all(
        any(_is_part_of(d, p) for d in found) for p in parts
    )


def _is_part_of(difference: Change, change: Change) -> bool:
    if (difference.kind, difference.name, difference.to_value) != (change.kind, change.name, change.to_value):
        return False
    if change.role is Role.BOTH and difference.role is Role.DECODE:
        return True  # the value before is that of the prefill side; decode may have had another
    role = Role.PREFILL if change.role is Role.BOTH else change.role
    return difference.role is role and difference.from_value == change.from_value


def _changes_build(change: Change | None) -> bool:
    return change is not None and any(part.kind is Kind.BUILD for part in change.parts)


def _changes_load_field(change: Change | None, field: str) -> bool:
    return change is not None and any(part.kind is Kind.CLIENT and part.name == field for part in change.parts)


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
