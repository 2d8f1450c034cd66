"""Live load answers of both endpoints."""

from __future__ import annotations

import pytest

from executor.engines.loads import parse_loads

PREFILL_ANSWER = {
    "timestamp": "2026-11-30T05:16:16+00:00",
    "version": "0.5.23",
    "loads": [
        {
            "dp_rank": 1,
            "num_running_reqs": 2,
            "num_waiting_reqs": 9,
            "max_running_requests": 16,
            "token_usage": 0.25,
            "cache_hit_rate": 0.5,
            "gen_throughput": 0.0,
            "a_key_of_tomorrow": "kept",
            "disaggregation": {
                "mode": "prefill",
                "prefill_bootstrap_queue_reqs": 2,
                "prefill_inflight_queue_reqs": 3,
                "decode_prealloc_queue_reqs": 0,
                "decode_transfer_queue_reqs": 0,
                "decode_retracted_queue_reqs": 0,
            },
            "queues": {"waiting": 7, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
        }
    ],
}


def test_the_waiting_queue_is_separate_from_the_hand_over_queues() -> None:
    """The total that the server reports counts the bootstrap queue as waiting; ours does not."""
    sample = parse_loads(PREFILL_ANSWER, at=5.0)
    assert sample is not None
    rank = sample.ranks[0]
    assert (sample.mode, sample.version, rank.dp_rank) == ("prefill", "0.5.23", 1)
    assert (rank.waiting, rank.bootstrap, rank.inflight, rank.running) == (7, 2, 3, 2)
    assert rank.fields["a_key_of_tomorrow"] == "kept"


def test_without_the_queue_section_the_hand_over_queues_are_taken_off() -> None:
    """The same figure from a narrower answer."""
    entry = {key: value for key, value in PREFILL_ANSWER["loads"][0].items() if key != "queues"}  # type: ignore[index]
    sample = parse_loads({"loads": [entry]}, at=0.0)
    assert sample is not None
    assert sample.ranks[0].waiting == 7


def test_the_older_endpoint_is_read() -> None:
    """It counts running and waiting together and knows nothing else."""
    sample = parse_loads(
        [{"dp_rank": 0, "num_reqs": 12, "num_waiting_reqs": 4, "num_tokens": 900, "ts_tic": 1.0}], at=0.0
    )
    assert sample is not None
    rank = sample.ranks[0]
    assert (rank.running, rank.waiting, rank.bootstrap, rank.token_usage) == (8, 4, None, None)


@pytest.mark.parametrize("body", [None, {}, {"loads": []}, [], [1, "x"], {"loads": "no"}, "text", {"detail": "404"}])
def test_an_answer_without_entries_is_no_sample(body: object) -> None:
    """Neither an error nor an empty queue."""
    assert parse_loads(body, at=0.0) is None


def test_values_of_a_wrong_type_are_none() -> None:
    """A number that is none is not observed."""
    sample = parse_loads({"loads": [{"num_running_reqs": "3", "token_usage": True}]}, at=0.0)
    assert sample is not None
    assert (sample.ranks[0].running, sample.ranks[0].token_usage) == (None, None)
