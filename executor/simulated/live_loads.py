"""Queue figures of the engines at a moment of a run, from its trace: what /v1/loads shows while a paced run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from executor.simulated.model.trace import DecodeSample, PrefillBatch, RunTrace


def prefill_loads(trace: RunTrace, ranks: int, at: float) -> list[dict[str, Any]]:
    """Per prefill rank, as of its latest batch."""
    latest: dict[int, PrefillBatch] = {}
    for batch in trace.prefill_batches:
        if batch.at > at:
            break
        latest[batch.rank] = batch
    return [_prefill_row(latest.get(rank)) for rank in range(ranks)]


def _prefill_row(batch: PrefillBatch | None) -> dict[str, Any]:
    if batch is None:
        return {}
    return {
        "running": batch.sequences,
        "waiting": batch.queued,
        "tokens": batch.used_tokens,
        "inflight": batch.inflight,
        "bootstrap": batch.bootstrap,
    }


def decode_loads(trace: RunTrace, ranks: int, at: float) -> list[dict[str, Any]]:
    """Per decode rank, as of its latest log interval."""
    latest: dict[int, DecodeSample] = {}
    for sample in trace.decode_samples:
        if sample.at > at:
            break
        latest[sample.rank] = sample
    return [_decode_row(latest.get(rank)) for rank in range(ranks)]


def _decode_row(sample: DecodeSample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    return {
        "running": sample.running,
        "waiting": sample.queued,
        "tokens": sample.tokens,
        "gen_throughput": sample.gen_throughput,
        "prealloc": sample.prealloc,
        "transfer": sample.transfer,
    }


def merged(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Both halves of a mixed engine, rank by rank; decode figures win where both speak."""
    return [one | other for one, other in zip(first, second, strict=True)]
