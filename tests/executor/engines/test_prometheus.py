"""Figures from the metrics endpoint."""

from __future__ import annotations

import pytest

from executor.engines.prometheus import counter_increase, parse_metrics
from tests.executor.engines.field_samples import field_text


def test_a_real_dump_reads_as_its_index_says() -> None:
    """Counters in exponent form, names with a colon, the mean of a histogram."""
    scrape = parse_metrics(field_text("metrics/01_doc_histograms_full.txt"))
    assert scrape.unread == 0
    assert scrape.total("num_running_reqs") == 162
    assert scrape.total("sglang:num_queue_reqs") == 2826
    assert scrape.total("gen_throughput") == 86.50814177726902
    assert scrape.total("prompt_tokens_total") == 8128902.0
    assert scrape.histogram_mean("time_to_first_token_seconds") == pytest.approx(213.65351993202904)


def test_a_quantile_in_the_open_bucket_is_not_observed() -> None:
    """Above the last bound nothing is known, so nothing is said."""
    scrape = parse_metrics(field_text("metrics/01_doc_histograms_full.txt"))
    assert scrape.histogram_quantile("time_to_first_token_seconds", 0.99) is None
    assert scrape.histogram_quantile("time_to_first_token_seconds", 0.01) is not None
    assert scrape.histogram_quantile("no_such_metric", 0.5) is None


def test_a_counter_that_fell_is_a_restart() -> None:
    """The difference over a restart does not exist."""
    text = field_text("metrics/07_derived_counter_reset_pair.txt")
    before, _, after = text.partition("## scrape 2")
    old, new = parse_metrics(before), parse_metrics("# " + after)
    assert counter_increase(old, new, "generation_tokens_total") is None
    assert counter_increase(old, old, "generation_tokens_total") == 0.0
    assert counter_increase(old, new, "no_such_total") is None


def test_series_add_up_over_ranks_and_filter_by_label() -> None:
    """A pool figure is the sum over its ranks."""
    scrape = parse_metrics(
        'sglang:num_running_reqs{dp_rank="0",engine_type="decode"} 3.0\n'
        'sglang:num_running_reqs{dp_rank="1",engine_type="decode"} 4.0\n'
    )
    assert scrape.total("num_running_reqs") == 7.0
    assert scrape.total("num_running_reqs", dp_rank="1") == 4.0
    assert scrape.total("num_running_reqs", dp_rank="9") is None


def test_broken_lines_are_counted_and_the_rest_is_read() -> None:
    """One bad line costs one line."""
    scrape = parse_metrics('sglang:a 1.0\nsglang:b{x="1" 2.0\n<html>\nsglang:c 3.0\n')
    assert (scrape.total("a"), scrape.total("c"), scrape.unread) == (1.0, 3.0, 2)
