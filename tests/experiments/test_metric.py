"""The registry of metrics: each spelling reads one field, and none is derived."""

from __future__ import annotations

import pytest

from experiments.measurement import Measurement, WindowKind, WindowMetrics
from experiments.metric import METRICS, Direction, metric


def window(**values: float) -> WindowMetrics:
    return WindowMetrics(
        kind=WindowKind.WHOLE, rule="whole", meets_floor=True, n_requests=640, duration_s=133.2, **values
    )


def measurement(*windows: WindowMetrics, n_failed: int = 0) -> Measurement:
    return Measurement(
        client="aisbench",
        client_version=None,
        windows=windows,
        n_planned=640,
        n_succeeded=640 - n_failed,
        n_failed=n_failed,
        input_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        accept_length=None,
        checks=(),
        raw_sha256="0" * 64,
        simulated=True,
    )


def test_every_metric_reads_a_field_of_the_window_or_counts() -> None:
    """Each registered field exists in WindowMetrics, and the field's suffix is the canonical unit."""
    fields = [m for m in METRICS.values() if m.field is not None]
    assert [m.id for m in fields if m.field not in WindowMetrics.model_fields] == []
    latencies = [m for m in fields if m.id.startswith(("ttft", "tpot", "e2e"))]
    assert [m.field for m in latencies] == [f"{m.id}_{m.unit.symbol}" for m in latencies]


def test_every_optional_field_of_the_window_has_a_spelling() -> None:
    """No measured field is out of reach of a goal."""
    named = {m.field for m in METRICS.values()}
    optional = {n for n, f in WindowMetrics.model_fields.items() if not f.is_required()}
    assert optional - named == set()


def test_metric_reads_its_own_field() -> None:
    """Two fields with different values are not mixed up."""
    found = measurement(window(tpot_mean_ms=9.4, ttft_mean_s=12.7))
    assert metric("tpot_mean").of(found, WindowKind.WHOLE) == 9.4
    assert metric("ttft_mean").of(found, WindowKind.WHOLE) == 12.7


def test_unobserved_value_is_none() -> None:
    """A metric that the window lacks, or a window that the run lacks, is None and not another number."""
    found = measurement(window(tpot_mean_ms=9.4))
    assert metric("ttft_p90").of(found, WindowKind.WHOLE) is None
    assert metric("tpot_mean").of(found, WindowKind.NATIVE) is None


def test_failed_requests_are_counted_over_the_run() -> None:
    """The count of failures belongs to the run, whatever window a goal names."""
    assert metric("failed_requests").of(measurement(n_failed=3), WindowKind.NATIVE) == 3.0


def test_better_sides() -> None:
    """Rates are to be high, latencies and failures low; concurrency is neither."""
    sides = {m.better for m in METRICS.values() if m.id.startswith(("ttft", "tpot", "e2e", "failed"))}
    assert sides == {Direction.MINIMIZE}
    assert metric("output_tok_s_per_card").maximise
    assert metric("concurrency_mean").better is None


def test_unknown_metric_names_the_closest() -> None:
    """A misspelt metric is refused with the one that was probably meant."""
    with pytest.raises(ValueError, match=r"unknown metric 'tpot_avg'; did you mean 'tpot_mean'\?"):
        metric("tpot_avg")
