from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.requests import ERROR_TEXT_LIMIT, MISSING, short_error, total
from tests.experiments.request_tables import table_of


def test_columns_must_have_one_entry_per_request() -> None:
    """A table that is short of a column cannot exist."""
    table = table_of([(0.0, 1.0), (0.0, 1.0)])
    with pytest.raises(ValueError, match="one entry per request"):
        type(table)(**{**vars(table), "ttft_s": np.zeros(1)})


def test_a_total_with_a_missing_entry_is_not_a_total() -> None:
    """None, never the sum of what happened to be there."""
    assert (
        total(np.array([3, MISSING, 4])),
        total(np.array([3, 4])),
        total(np.array([], dtype=np.int64)),
    ) == (None, 7, None)


def test_an_error_text_is_one_bounded_line() -> None:
    """A client's error may hold a whole traceback, or a log."""
    text = short_error("boom\n\n  at line 3\x00" + "x" * 10_000)
    assert len(text) == ERROR_TEXT_LIMIT
    assert "\n" not in text


def test_time_per_output_token_needs_a_second_token() -> None:
    """(E2E - TTFT) / (tokens - 1), and no value where that is not defined (field record 000: 21.58 ms)."""
    table = table_of(
        [(0.0, 32.67736), (0.0, 5.0), (0.0, 5.0)],
        chunks=[[10.59734, 32.67736], [1.0, 5.0], [1.0, 5.0]],
        output_tokens=[1024, 1, MISSING],
    )
    tpot = table.tpot_s() * 1000
    assert round(float(tpot[0]), 2) == 21.58
    assert np.isnan(tpot[1:]).all()


def test_an_end_is_the_last_chunk_to_the_last_bit() -> None:
    """start + (end - start) differs from end by a rounding, and ties of time depend on it."""
    table = table_of([(0.1, 0.3), (0.7, 1.1)])
    assert table.end_s.tolist() == [0.3, 1.1]


_answers = st.lists(st.lists(st.integers(0, 1_000).map(float), max_size=6).map(sorted), min_size=1, max_size=12)


@settings(deadline=None)
@given(answers=_answers)
def test_the_longest_silence_is_within_one_answer(answers: list[list[float]]) -> None:
    """The step from one request's last chunk to the next one's first is no gap of either."""
    table = table_of([(0.0, 1.0)] * len(answers), chunks=answers)
    expected = [max((b - a for a, b in itertools.pairwise(t)), default=float("nan")) for t in answers]
    np.testing.assert_array_equal(np.array(expected), table.max_gap_s())
    every = [b - a for t in answers for a, b in itertools.pairwise(t)]
    assert every == table.gaps_s(np.ones(len(answers), dtype=np.bool_)).tolist()


@settings(deadline=None)
@given(answers=_answers, after=st.integers(0, 1_000), length=st.integers(0, 500))
def test_chunks_within_a_span_are_counted_per_request(answers: list[list[float]], after: int, length: int) -> None:
    """The span is open at its start and closed at its end."""
    table = table_of([(0.0, 1.0)] * len(answers), chunks=answers)
    expected = [sum(after < t <= after + length for t in times) for times in answers]
    assert expected == table.chunks_within(after, after + length).tolist()


@settings(deadline=None)
@given(answers=_answers, data=st.data())
def test_selected_rows_keep_their_own_chunks_and_errors(answers: list[list[float]], data: st.DataObject) -> None:
    """Selecting rows carries ragged columns and row-keyed errors along."""
    failed = sorted(data.draw(st.sets(st.integers(0, len(answers) - 1))))
    table = table_of([(0.0, 1.0)] * len(answers), chunks=answers, failed=failed)
    kept = table.succeeded()
    rows = [i for i in range(len(answers)) if i not in failed]
    assert [f"r{i}" for i in rows] == list(kept.request_id)
    assert [t for i in rows for t in answers[i]] == kept.chunk_times_s.tolist()
    failures = table.select(~table.success)
    assert sorted(failures.errors) == list(range(len(failed)))
