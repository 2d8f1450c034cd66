from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.requests import MISSING, RequestTable
from experiments.validity import (
    CacheRule,
    Check,
    ServerEvidence,
    Workload,
    check_cache_proof,
    check_first_token,
    check_garbling,
    check_input_length,
    check_littles_law,
    check_output_length,
    check_retokenized,
    check_retried,
    check_run,
    check_saturation,
    check_stream_gap,
    check_success,
    check_zero_cache,
    failures,
    peak_concurrency,
    usual_retokenized_ratio,
)
from experiments.windows import Window, whole_window
from tests.experiments.request_tables import table_of
from tests.factories import a_measurement

PLAN = Workload(requests=4, concurrency=2, output_tokens=1024)
SPANS = [(0.0, 2.0), (0.0, 2.0), (2.0, 4.0), (2.0, 4.0)]


def _table(**changes: object) -> RequestTable:
    return table_of(SPANS, **{"output_tokens": 1024, **changes})  # type: ignore[arg-type]


def _whole(table: RequestTable) -> Window:
    window = whole_window(table)
    assert isinstance(window, Window)
    return window


def test_a_clean_run_passes_every_gate_that_its_records_can_answer() -> None:
    """What the client does not report is None, never True."""
    table = _table()
    checks = check_run(table, PLAN, _whole(table), ServerEvidence())
    assert failures(checks, PLAN) == ()
    assert {"count", "success", "retried", "exact_output_length", "garbling", "stream_gap", "littles_law"} <= {
        c.name for c in checks if c.passed
    }


@pytest.mark.parametrize(("allowed", "passed"), [(0, False), (1, True)])
def test_failed_requests_are_allowed_only_where_the_goal_says_so(allowed: int, passed: bool) -> None:
    """One short request in 3440 is a policy, not a rounding."""
    check = check_success(_table(failed=[1]), allowed)
    assert check.passed is passed
    assert "1 of 4 requests failed" in check.detail
    assert "Internal Server Error" in check.detail


def test_a_missing_record_fails_the_count() -> None:
    """A run of fewer records than planned is incomplete evidence, whatever its summary says."""
    plan = Workload(requests=5, concurrency=2, output_tokens=1024)
    table = _table()
    assert "count" in {c.name for c in failures(check_run(table, plan, _whole(table), ServerEvidence()), plan)}


@pytest.mark.parametrize(
    ("lengths", "passed", "says"),
    [
        ([1024] * 4, True, "0 of 4"),
        ([1024, 1024, 1023, 1024], False, "they are 1023…1023"),
        ([1024, 1024, MISSING, 1024], False, "HTTP 200"),
    ],
)
def test_every_output_is_exactly_as_long_as_promised(lengths: list[int], passed: bool, says: str) -> None:
    """A success without any token is an error that came as HTTP 200."""
    check = check_output_length(_table(output_tokens=lengths), 1024)
    assert (passed, True) == (check.passed, says in check.detail)


def test_input_lengths_are_compared_where_they_are_known() -> None:
    """16384 asked and 16388 encoded is the chat template; 16750 is a data set that re-encoded longer."""
    assert check_input_length(_table(input_tokens=16388), 16388).passed is True
    assert check_input_length(_table(input_tokens=16750), 16388).passed is False
    assert check_input_length(_table(input_tokens=MISSING), 16388).passed is None


def test_a_retried_success_is_refused() -> None:
    """Its clock was restarted, so its latency is not what the user waited."""
    table = _table()
    again = type(table)(**{**vars(table), "retried": np.array([False, True, False, False])})
    assert check_retried(again).passed is False


def test_a_zero_cache_run_shows_no_reuse_by_any_request() -> None:
    """By the client's own report where there is one, else by the servers' counter over the load."""
    plan = Workload(requests=4, concurrency=2, output_tokens=1024, cache=CacheRule.ZERO)
    cases = [
        (_table(cached_tokens=0), None, True),
        (_table(cached_tokens=[0, 0, 128, 0]), None, False),
        (_table(), None, None),
        (_table(), 0, True),
        (_table(), 128, False),
    ]
    assert [expected for _, _, expected in cases] == [
        check_zero_cache(table, plan, counted).passed for table, counted, _ in cases
    ]


def test_the_cache_is_proved_per_request_and_not_by_a_ratio_of_sums() -> None:
    """One cold request among warm ones fails, though the sum is above 90 % (118784/131076 = 90.6222 %)."""
    warm = table_of(SPANS, input_tokens=131076, cached_tokens=118784)
    check = check_cache_proof(warm, 0.90)
    assert check.passed is True
    assert "90.6222%" in check.detail
    cold = table_of(SPANS, input_tokens=131076, cached_tokens=[131072, 131072, 131072, 0])
    assert check_cache_proof(cold, 0.60).passed is False
    first_design = table_of(SPANS, input_tokens=131076, cached_tokens=117888)
    assert check_cache_proof(first_design, 0.90).passed is False


def test_check_requests_stand_in_for_a_client_that_reports_no_cached_tokens() -> None:
    """They are separate from the seeds, and each of them must reach the share."""
    assert check_cache_proof(_table(), 0.90).passed is None
    assert check_cache_proof(_table(), 0.90, [(118784, 131076)] * 16).passed is True
    assert check_cache_proof(_table(), 0.90, [(118784, 131076)] * 15 + [(0, 131076)]).passed is False


@pytest.mark.parametrize(("must_prove", "voids"), [(True, ("cache_proof",)), (False, ())])
def test_an_unproved_cache_voids_the_run_where_proof_is_asked_for(must_prove: bool, voids: tuple[str, ...]) -> None:
    """A warm comparison without its proof is no comparison."""
    plan = Workload(requests=4, concurrency=2, output_tokens=1024, cache=CacheRule.WARM, must_prove_cache=must_prove)
    table = _table()
    found = failures(check_run(table, plan, _whole(table), ServerEvidence()), plan)
    assert voids == tuple(c.name for c in found)


def test_garbled_answers_are_counted_by_replacement_characters() -> None:
    """Ten are tolerated in one answer, eleven are not (field record: 14 garbled requests, then none)."""
    assert check_garbling(_table(replaced=[0, 10, 0, 0]), 0).passed is True
    assert check_garbling(_table(replaced=[0, 11, 0, 0]), 0).passed is False
    assert check_garbling(_table(replaced=[0, 11, 0, 0]), 1).passed is True
    assert check_garbling(_table(replaced=[MISSING] * 4), 0).passed is None


@pytest.mark.parametrize(
    ("generated", "retokenized", "usual", "passed"),
    [
        (5158500, 4632899, 0.9995, False),  # A3, Qwen3-235B: -44 % throughput and no error anywhere
        (5158500, 5156118, 0.9995, True),
        (16384, 9300, 0.57, True),  # random tokens on the documentation's own sample: usual there
        (2116125, 1076256, 0.51, True),
        (5158500, 4632899, None, None),
    ],
)
def test_only_the_workloads_own_history_says_which_retokenized_ratio_is_usual(
    generated: int, retokenized: int, usual: float | None, passed: bool | None
) -> None:
    """0.898 is broken output for one model and half is normal for another."""
    assert check_retokenized(retokenized / generated, usual).passed is passed


def test_one_broken_run_does_not_become_the_usual_ratio() -> None:
    """The median of earlier runs is the norm; without any there is none, and without a report no finding."""
    run = a_measurement()
    runs = [run.model_copy(update={"retokenized_ratio": ratio}) for ratio in (0.9996, 0.898, 0.9994, None)]
    assert usual_retokenized_ratio(runs) == 0.9994
    assert usual_retokenized_ratio([run.model_copy(update={"retokenized_ratio": None})]) is None
    assert check_retokenized(None, 0.9994).passed is None


def test_a_huge_silence_in_a_stream_fails() -> None:
    """The field met 58.26 s before a fix and 1.59 s after it."""
    silent = table_of([(0.0, 60.0)] * 4, chunks=[[1.0, 59.26, 60.0]] * 4)
    check = check_stream_gap(silent, 30.0)
    assert (check.passed, "58.26 s" in check.detail) == (False, True)
    assert check_stream_gap(table_of(SPANS, chunks=[[]] * 4), 30.0).passed is None


def test_littles_law_catches_a_mixed_up_unit() -> None:
    """More in flight than the cap allows means that latencies and duration are not of one clock."""
    table = _table()
    assert check_littles_law(table, _whole(table), 2).passed is True
    assert check_littles_law(table, _whole(table), 1).passed is False
    milliseconds = replace(table, e2e_s=table.e2e_s * 1000)
    assert check_littles_law(milliseconds, _whole(table), 2).passed is False
    assert check_littles_law(table, None, 2).passed is None


def test_a_client_below_its_cap_is_said_and_voids_nothing() -> None:
    """Client supply is a finding about the load: at a low rate the cap need not be reached."""
    plan = Workload(requests=4, concurrency=8, output_tokens=1024)
    table = _table()
    check = check_saturation(table, _whole(table), plan)
    assert (check.passed, "peak 2" in check.detail) == (False, True)
    assert failures([check], plan) == ()


def test_the_true_peak_counts_a_reused_slot_once() -> None:
    """A whole wave ending as the next begins is twice the limit in a per-second bucket, and the limit here."""
    assert peak_concurrency(_table()) == 2
    assert peak_concurrency(table_of([(float("nan"), float("nan"))])) is None


def test_an_answer_without_a_first_token_is_said() -> None:
    """A TTFT of zero would be the best latency of all."""
    check: Check = check_first_token(table_of(SPANS, chunks=[[1.0, 2.0], [], [3.0, 4.0], [3.0, 4.0]]))
    assert (check.passed, "1 succeeded" in check.detail) == (None, True)
