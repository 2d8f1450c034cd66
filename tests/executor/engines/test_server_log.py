"""Server log lines across releases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.server_log import (
    Adjustment,
    DecodeBatch,
    EffectiveSizes,
    KvPool,
    PrefillBatch,
    Ready,
    Retraction,
    ServerArguments,
    parse_line,
    parse_server_log,
)
from tests.executor.engines.field_samples import FIELD, REAL, field_text

STAMP = "[2026-01-04 03:43:20 DP1 TP8 EP8]"
PREFILL_LINES = {
    "0.5.6": f"{STAMP} Prefill batch, #new-seq: 4, #new-token: 14336, #cached-token: 0, token usage: 0.16, "
    "#running-req: 0, #queue-req: 1, #prealloc-req: 1, #inflight-req: 2, input throughput (token/s): 7537.33, ",
    "0.5.10": f"{STAMP} Prefill batch, #new-seq: 4, #new-token: 14336, #cached-token: 0, token usage: 0.16, "
    "#running-req: 0, #queue-req: 1, #prealloc-req: 1, #inflight-req: 2, npu graph: False, "
    "input throughput (token/s): 7537.33",
    "0.5.10, order of March": f"{STAMP} Prefill batch, #new-seq: 4, #new-token: 14336, #cached-token: 0, "
    "token usage: 0.16, #running-req: 0, #queue-req: 1, #prealloc-req: 1, #inflight-req: 2, "
    "input throughput (token/s): 7537.33, npu graph: False",
    "0.5.23": f"{STAMP} Prefill batch [17], #new-seq: 4, #new-token: 14336, #cached-token: 0, token usage: 0.16, "
    "#running-req: 0, #queue-req: 1, #pending-token: 2664, #bootstrap-req: 1, #inflight-req: 2, "
    "#optimistic-req: 0, cpu graph: False, input throughput (token/s): 7537.33",
}


@pytest.mark.parametrize("release", PREFILL_LINES)
def test_prefill_lines_of_every_release_read_alike(release: str) -> None:
    """Renamed labels, another order, a trailing comma and new fields change nothing."""
    record = parse_line(PREFILL_LINES[release])
    assert isinstance(record, PrefillBatch)
    assert (record.new_sequences, record.new_tokens, record.waiting) == (4, 14336, 1)
    assert (record.bootstrap, record.inflight, record.token_usage) == (1, 2, 0.16)
    assert record.input_tok_s == 7537.33
    assert record.stamp.ranks == {"DP": 1, "TP": 8, "EP": 8}


def test_unknown_fields_are_kept() -> None:
    """A field of tomorrow is there as text."""
    record = parse_line(PREFILL_LINES["0.5.23"])
    assert isinstance(record, PrefillBatch)
    assert record.fields["#optimistic-req"] == "0"
    assert record.pending_tokens == 2664


def test_decode_line_with_speculation() -> None:
    """Accept length and the hand-over queues of a real 0.5.6 line."""
    record = parse_line(
        "[2026-01-04 03:47:49 DP13 TP13 EP13] Decode batch, #running-req: 25, #token: 112000, token usage: 0.83, "
        "accept len: 2.48, accept rate: 0.83, pre-allocated usage: 0.03, #prealloc-req: 0, #transfer-req: 1, "
        "#retracted-req: 0, cpu graph: True, gen throughput (token/s): 520.52, #queue-req: 0, "
    )
    assert isinstance(record, DecodeBatch)
    assert (record.running, record.accept_length, record.transfer, record.graph) == (25, 2.48, 1, True)
    assert record.stamp.dp_rank == 13


def test_usage_of_a_hybrid_model_is_its_full_pool() -> None:
    """The state pool of such a model is full by design and is not the KV pool."""
    record = parse_line(
        "[2026-01-04 07:36:48 TP0 EP0] Decode batch, #running-req: 80, #full token: 300, full token usage: 0.31, "
        "mamba num: 80, mamba usage: 1.00, cpu graph: True, gen throughput (token/s): 0.12, #queue-req: 0, "
    )
    assert isinstance(record, DecodeBatch)
    assert (record.token_usage, record.tokens) == (0.31, 300)


def test_stamps_differ_by_seconds_and_milliseconds() -> None:
    """Only differences of stamps are meant."""
    first = parse_line("[2026-11-30 05:17:37] The server is fired up and ready to roll!")
    later = parse_line("[2026-11-30 05:17:38.500] The server is fired up and ready to roll!")
    assert isinstance(first, Ready)
    assert isinstance(later, Ready)
    assert later.stamp.at - first.stamp.at == 1.5


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[2026-01-01 00:00:00 TP0] max_total_num_tokens=5, chunked_prefill_size=-1, x=1", EffectiveSizes),
        ("[2026-01-01 00:00:00 TP0] KV Cache is allocated. #tokens: 75904, KV size: 0.08 GB", KvPool),
        ("[2026-01-01 00:00:00] server_args={'tp_size': 2, 'x': object()}", ServerArguments),
        ("[2026-01-01 00:00:00] server_args=ServerArgs(tp_size=2, x=<T.A: 1>)", type(None)),
        (
            "[2026-01-01 00:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 3, "
            "#new_tokens_gained: 9, #new_token_ratio: 0.5 -> 0.7",
            Retraction,
        ),
        (
            "[2026-01-01 00:00:00] DP attention is enabled. chunked prefill size is adjusted from 8192 to 4096.",
            Adjustment,
        ),
        ("\x1b[1;33m[2026-01-01 00:00:00]\x1b[0m The server is fired up and ready to roll!", Ready),
        ("50%|##  |\r[2026-01-01 00:00:00] The server is fired up and ready to roll!", Ready),
        ("[2026-99-99 00:00:00] The server is fired up and ready to roll!", type(None)),
        ("[2026-01-01 00:00:00] Prefill batch, #new-seq: many, #new-token: 1", type(None)),
        ("[2026-01-01 00:00:00] INFO: said: [2026-01-01 00:00:00] Prefill batch, #new-seq: 1", type(None)),
        ("", type(None)),
    ],
)
def test_other_lines_and_broken_lines(line: str, kind: type) -> None:
    """What is ours is recognised by its beginning; everything else is passed over."""
    assert isinstance(parse_line(line), kind)


def test_figures_that_are_no_numbers_are_none() -> None:
    """NaN and infinity in a log are no figures."""
    record = parse_line(
        "[2026-01-01 00:00:00] Decode batch, #running-req: 1, token usage: nan, gen throughput (token/s): inf"
    )
    assert isinstance(record, DecodeBatch)
    assert (record.token_usage, record.gen_tok_s) == (None, None)


def batch_lines(text: str) -> int:
    return text.count("Prefill batch, #") + text.count("Decode batch, #")


@pytest.mark.parametrize(
    "path",
    sorted((*FIELD.glob("server_log/*.log"), *FIELD.glob("incidents/*/*.log"), *REAL.glob("*.log"))),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_every_batch_line_of_the_stored_logs_is_read(path: object) -> None:
    """No batch line of any stored real log is lost."""
    text = field_text(str(path))
    records = list(parse_server_log(text.splitlines()))
    batches = [record for record in records if isinstance(record, PrefillBatch | DecodeBatch)]
    assert len(batches) == batch_lines(text)


def test_effective_sizes_of_a_real_server() -> None:
    """What the server resolved, not what was asked."""
    records = list(parse_server_log(field_text("real_cpu_pd_prefill.server.log", REAL).splitlines()))
    sizes = next(record for record in records if isinstance(record, EffectiveSizes))
    assert (sizes.chunked_prefill_size, sizes.max_running_requests) == (2048, 16)
    arguments = next(record for record in records if isinstance(record, ServerArguments))
    assert arguments.values["disaggregation_mode"] == "prefill"


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=200))
def test_any_text_is_a_record_or_nothing(text: str) -> None:
    """Untrusted text never raises."""
    parse_line(text)
    parse_line(f"{STAMP} Prefill batch, {text}")
    parse_line(f"{STAMP} server_args={text}")
