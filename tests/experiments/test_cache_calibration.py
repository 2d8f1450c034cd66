from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cache_calibration import (
    CacheSplit,
    check_cache_design,
    design_split,
    estimate_share,
    propose_split,
)


def _split(prefix: int, total: int) -> CacheSplit:
    return CacheSplit(prefix_tokens=prefix, question_tokens=total - prefix, page_size=128)


def test_the_first_128k_design_is_refused_before_any_run() -> None:
    """90 % of 131076 rounds down to 921 pages of 128: 89.9387 % (field record 001)."""
    check = check_cache_design(_split(117968, 131076), 0.90)
    assert check.passed is False
    assert "117888 of 131076" in check.detail
    assert "89.9387%" in check.detail


def test_the_design_that_was_kept_passes() -> None:
    """118784 / 131076 = 90.6222 % per request."""
    check = check_cache_design(_split(118784, 131076), 0.90)
    assert check.passed is True
    assert "90.6222%" in check.detail


def test_a_design_with_six_spare_pages_is_the_one_of_the_field() -> None:
    """922 pages reach 90 %; six more make 118784 tokens."""
    bare, spare = design_split(131076, 0.90, 128), design_split(131076, 0.90, 128, spare_pages=6)
    assert bare is not None
    assert spare is not None
    assert (bare.prefix_tokens, spare.prefix_tokens) == (118016, 118784)


def test_a_share_that_leaves_no_question_has_no_design() -> None:
    """A request needs at least one token of its own."""
    assert design_split(256, 1.0, 128) is None


def test_the_field_estimate_of_a_longer_prefix() -> None:
    """85.8 % x 31900 / 30000 is about 91.2 % (field record 000); it was measured as 91.84 %."""
    assert round(estimate_share(0.858, 30000, 31900), 3) == 0.912
    assert round(1968128 / 2143110, 4) == 0.9184


def test_a_measured_miss_proposes_a_longer_prefix_of_whole_pages() -> None:
    """30000/2768 at 85.8 % does not prove 90 %; the next split does by estimate, in whole pages."""
    proposal = propose_split(_split(30000, 32768), 858, 1000, 0.90)
    assert proposal.reachable
    assert proposal.split.prefix_tokens % 128 == 0
    assert 31488 <= proposal.split.prefix_tokens <= 31900
    assert proposal.estimated_share >= 0.90
    assert "85.8000%" in proposal.because


def test_a_hit_rate_that_no_prefix_can_mend_is_said() -> None:
    """Half of the pages were evicted: length is not what is wrong."""
    proposal = propose_split(_split(30000, 32768), 40, 100, 0.90)
    assert not proposal.reachable


def test_a_hit_rate_without_counts_is_no_measurement() -> None:
    """Zero input or more cached than sent cannot be extrapolated."""
    for cached, sent in ((0, 100), (101, 100), (0, 0)):
        with pytest.raises(ValueError, match="cached tokens between"):
            propose_split(_split(30000, 32768), cached, sent, 0.90)


@settings(deadline=None)
@given(
    total=st.integers(1_000, 200_000),
    share=st.floats(0.05, 0.97),
    page=st.sampled_from([1, 16, 64, 128]),
    data=st.data(),
)
def test_a_design_reaches_its_share_and_one_page_less_does_not(
    total: int, share: float, page: int, data: st.DataObject
) -> None:
    """The proposed prefix is the shortest one in whole pages."""
    split = design_split(total, share, page)
    if split is None:
        assert -(-share * total // page) * page >= total - page
        return
    assert check_cache_design(split, share).passed
    shorter = CacheSplit(
        prefix_tokens=split.prefix_tokens - page, question_tokens=split.question_tokens + page, page_size=page
    )
    assert shorter.cached_share < share


@settings(deadline=None)
@given(
    prefix=st.integers(1_000, 30_000), hit=st.integers(300, 999), share=st.floats(0.3, 0.95), spare=st.integers(0, 4)
)
def test_a_proposal_never_shortens_the_input(prefix: int, hit: int, share: float, spare: int) -> None:
    """Only the split moves: the encoded length is the scenario's."""
    current = _split(prefix, 32768)
    proposal = propose_split(current, hit, 1000, share, spare)
    assert proposal.split.input_tokens == current.input_tokens
    if proposal.reachable:
        assert proposal.estimated_share >= share
        assert check_cache_design(proposal.split, share).passed
