"""The figures of a configuration's newest run by evidence id: what walls, cards and retests are judged on."""

from __future__ import annotations

from experiments.evidence import ServingEvidence
from experiments.measurement import Measurement, WindowKind
from experiments.metric import METRICS
from experiments.study import Study, TrialState

FigureTable = dict[str, float | None]


def incumbent_figures(study: Study) -> FigureTable:
    """Every figure of the incumbent's newest run. None is NOT_OBSERVED."""
    return _figures(study, study.latest_evidence())


def figures_before(study: Study, fingerprint: str, position: int) -> FigureTable:
    """The same of any configuration, as it was known at a position of the ledger."""
    return _figures(study, study.latest_evidence(fingerprint, before=position))


def _figures(study: Study, latest: tuple[TrialState, ServingEvidence] | None) -> FigureTable:
    figures: FigureTable = {}
    if latest is not None:
        trial, evidence = latest
        figures |= evidence.figures()
        figures["client.concurrency_limit"] = float(trial.started.load.concurrency)
        figures["client.rate_limit"] = trial.started.load.rate
        record = trial.record
        if record is not None and record.measurement is not None:
            figures |= _client_figures(study, record.measurement)
    promised = study.goal.scenario.cache.per_request_min
    if promised is not None:
        figures["scenario.cache_promised"] = promised
    return dict(sorted(figures.items()))


def _client_figures(study: Study, measurement: Measurement) -> FigureTable:
    window = measurement.window(study.goal.objective.window) or measurement.window(WindowKind.WHOLE)
    if window is None:
        return {}
    figures: FigureTable = {
        f"client.{metric.field}": metric.read(window) for metric in METRICS.values() if metric.field is not None
    }
    figures["client.accept_length"] = measurement.accept_length
    figures["objective.value"] = METRICS[study.goal.objective.metric].read(window)
    for constraint in study.goal.constraints:
        value = METRICS[constraint.metric].of(measurement, window.kind)
        if value is not None and constraint.bound.limit:
            figures[f"slo.{constraint.metric}.share_of_limit"] = value / constraint.bound.limit
    return figures
