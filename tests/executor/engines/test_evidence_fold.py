"""Log records and load samples folded into evidence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.evidence import Observed, Span, fold_evidence
from executor.engines.loads import LoadSample, parse_loads
from executor.engines.server_log import LogRecord, Ready, parse_server_log
from tests.executor.engines.field_samples import REAL, field_text


def prefill_line(tokens: int, sequences: int = 1, *, rank: int = 0, second: int = 0, waiting: int = 0) -> str:
    return (
        f"[2026-01-01 00:00:{second:02d} DP{rank} TP0] Prefill batch, #new-seq: {sequences}, #new-token: {tokens}, "
        f"#cached-token: 0, token usage: 0.10, #running-req: 0, #queue-req: {waiting}, #inflight-req: 0"
    )


def decode_line(running: int, *, rank: int = 0, accept: float = 3.0) -> str:
    return (
        f"[2026-01-01 00:00:01 DP{rank} TP0] Decode batch, #running-req: {running}, #token: 9, token usage: 0.50, "
        f"accept len: {accept}, #prealloc-req: 0, #transfer-req: 1, #retracted-req: 0, #queue-req: 0"
    )


SIZES = (
    "[2026-01-01 00:00:00 DP0 TP0] max_total_num_tokens=9, chunked_prefill_size=8192, "
    "max_prefill_tokens=16384, max_running_requests=26, context_len=8192, available_gpu_mem=1.00 GB"
)


def records(*lines: str) -> list[LogRecord]:
    return list(parse_server_log(lines))


def sample(waiting: int, running: int = 0, at: float = 0.0) -> LoadSample:
    parsed = parse_loads({"loads": [{"num_waiting_reqs": waiting, "num_running_reqs": running}]}, at=at)
    assert parsed is not None
    return parsed


def test_lone_tails_are_counted_against_the_effective_chunk() -> None:
    """The pattern 8192, 8192, 4 of a capped prefill: one batch in three carries four tokens."""
    lines = [SIZES, *(prefill_line(tokens) for tokens in (8192, 8192, 4) * 3)]
    figures = fold_evidence(prefill=Observed(records=records(*lines))).figures()
    assert figures["prefill.lone_tail_share"] == pytest.approx(1 / 3)
    assert figures["prefill.lone_tail_tokens_mean"] == 4.0
    assert figures["prefill.multi_sequence_share"] == 0.0
    assert figures["prefill.chunk_fill"] == pytest.approx((8192 * 2 + 4) / 3 / 8192)


def test_a_shared_batch_is_no_lone_tail() -> None:
    """Four tokens beside 8064 of the next request waste nothing."""
    lines = [SIZES, prefill_line(8192), prefill_line(8068, sequences=2)]
    figures = fold_evidence(prefill=Observed(records=records(*lines))).figures()
    assert (figures["prefill.lone_tail_share"], figures["prefill.multi_sequence_share"]) == (0.0, 0.5)


def test_without_an_effective_chunk_the_tail_share_is_not_observed() -> None:
    """Chunking is off or its size unknown: no share is made up."""
    figures = fold_evidence(prefill=Observed(records=records(prefill_line(4)))).figures()
    assert figures["prefill.lone_tail_share"] is None
    assert figures["prefill.batch_tokens_mean"] == 4.0


def test_nothing_observed_is_none_everywhere() -> None:
    """Silence is never zero."""
    evidence = fold_evidence(Observed(), Observed())
    assert set(evidence.figures().values()) == {None}
    assert set(evidence.observations().values()) == {0}


def test_load_samples_are_preferred_for_queues() -> None:
    """Samples are even in time; batch lines only appear while batches run."""
    observed = Observed(
        records=records(prefill_line(4, waiting=9)), samples=[sample(0), sample(2), sample(4), sample(6)]
    )
    waiting = fold_evidence(prefill=observed).prefill.waiting
    assert (waiting.mean, waiting.share_positive, waiting.n) == (3.0, 0.75, 4)


def test_records_outside_the_run_only_tell_sizes() -> None:
    """Warm-up batches do not count; the sizes printed before the run do."""
    lines = [SIZES, prefill_line(4, second=1), prefill_line(8192, second=30)]
    start = next(iter(records(SIZES))).stamp.at + 10
    evidence = fold_evidence(prefill=Observed(records=records(*lines), span=Span(start=start)))
    assert (evidence.prefill.batches.value, evidence.prefill.chunk.value) == (1.0, 8192.0)


def test_ranks_weigh_alike_however_often_they_log() -> None:
    """A busy rank logs more lines and must not pull the mean."""
    lines = [SIZES, *(decode_line(24) for _ in range(9)), decode_line(4, rank=1)]
    decode = fold_evidence(decode=Observed(records=records(*lines))).decode
    assert decode.running_share_of_cap.value == pytest.approx((24 + 4) / 2 / 26)
    assert decode.rank_imbalance.value == pytest.approx(24 / 14 - 1)
    assert (decode.ranks.value, decode.retractions.value) == (2.0, 0.0)


def test_accept_length_weighs_by_running_requests() -> None:
    """A drain tail of one request does not move it like a full batch."""
    lines = [decode_line(30, accept=3.0), decode_line(10, accept=1.0), decode_line(0, accept=9.0)]
    decode = fold_evidence(decode=Observed(records=records(*lines))).decode
    assert (decode.accept_length.value, decode.accept_length.n) == (2.5, 2)


@pytest.mark.parametrize(
    ("log", "batches", "shared", "tails"),
    [("real_cpu_cap1.server.log", 24, 0.0, 8 / 24), ("real_cpu_cap2.server.log", 17, 7 / 17, 0.0)],
)
def test_the_effect_of_the_cap_shows_in_real_logs(log: str, batches: int, shared: float, tails: float) -> None:
    """A real server with cap 1 needs 24 batches with lone tails, with cap 2 only 17 without."""
    parsed = list(parse_server_log(field_text(log, REAL).splitlines()))
    ready = next(record.stamp.at for record in parsed if isinstance(record, Ready))
    evidence = fold_evidence(prefill=Observed(records=parsed, span=Span(start=ready + 1)))
    assert evidence.prefill.batches.value == batches
    assert evidence.prefill.multi_sequence_share.value == pytest.approx(shared)
    assert evidence.prefill.lone_tail_share.value == pytest.approx(tails)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9000), st.integers(1, 3)), max_size=30))
def test_shares_stay_between_zero_and_one(batches: list[tuple[int, int, int]]) -> None:
    """Whatever was logged, a share is a share and its count is the number of lines."""
    lines = [prefill_line(tokens, sequences, rank=rank) for rank, tokens, sequences in batches]
    prefill = fold_evidence(prefill=Observed(records=records(SIZES, *lines))).prefill
    for share in (prefill.lone_tail_share, prefill.multi_sequence_share, prefill.cache_hit_share):
        assert share.n in (0, len(batches))
        assert share.value is None or 0.0 <= share.value <= 1.0
    assert prefill.rank_imbalance.value is None or prefill.rank_imbalance.value >= 0.0
