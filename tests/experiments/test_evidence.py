"""The evidence document and its stable names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.evidence import (
    Depth,
    Figure,
    PrefillEvidence,
    ServingEvidence,
    mean_figure,
    summarise_depth,
)


def test_every_figure_has_a_stable_name_and_a_count() -> None:
    """A card cites `prefill.lone_tail_share`; code finds value and count under it."""
    evidence = ServingEvidence(
        prefill=PrefillEvidence(
            lone_tail_share=Figure(value=0.33, n=960), waiting=Depth(mean=4.0, p50=4.0, p90=7.0, n=9)
        )
    )
    assert evidence.figures()["prefill.lone_tail_share"] == 0.33
    assert evidence.figures()["prefill.waiting.p90"] == 7.0
    assert evidence.observations()["prefill.waiting.p90"] == 9
    assert evidence.figures()["decode.accept_length"] is None
    assert evidence.figures().keys() == evidence.observations().keys()


def test_the_document_survives_storage() -> None:
    """What is stored is read back equal."""
    evidence = ServingEvidence(prefill=PrefillEvidence(batches=Figure(value=960.0, n=960)), simulated=True)
    assert ServingEvidence.model_validate_json(evidence.model_dump_json()) == evidence


def test_nothing_observed_is_no_figure() -> None:
    """An empty sample has neither a mean nor a percentile."""
    assert summarise_depth([]) == Depth()
    assert mean_figure([]) == Figure()


def test_percentiles_interpolate() -> None:
    """p50 and p90 of 0..10 lie on the line between ranks."""
    depth = summarise_depth([float(value) for value in range(11)])
    assert (depth.mean, depth.p50, depth.p90, depth.share_positive, depth.n) == (5.0, 5.0, 9.0, 10 / 11, 11)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_agree_with_numpy(samples: list[float]) -> None:
    """The same rule as the clients use."""
    numpy = pytest.importorskip("numpy")
    depth = summarise_depth(samples)
    assert depth.p50 == pytest.approx(float(numpy.percentile(samples, 50)))
    assert depth.p90 == pytest.approx(float(numpy.percentile(samples, 90)))
