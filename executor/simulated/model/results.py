"""From the state of the engines after a run to its trace: token times per request, samples per log interval."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from executor.simulated.model.decode import DecodeSide, step_ends
from executor.simulated.model.prefill import PrefillSide
from executor.simulated.model.trace import DecodeSample, Floats, RequestTrace, RunTrace
from executor.simulated.model.workload import Request

LOG_INTERVAL = 40


def collect(
    requests: list[Request],
    prefill: PrefillSide,
    decode: DecodeSide,
    sent: Floats,
    prefill_end: Floats,
    prefill_busy_s: float,
) -> RunTrace:
    """The trace of a finished run."""
    steps = sum(span.count for span in decode.spans)
    ends = step_ends(decode.spans, steps)
    return RunTrace(
        requests=[_trace(request, prefill, decode, sent, prefill_end, ends) for request in requests],
        prefill_batches=prefill.batches,
        decode_samples=_samples(decode, ends),
        retractions=decode.retracted,
        verify_steps=sum(len(item) for item in decode.yields),
        prefill_busy_s=prefill_busy_s,
        decode_busy_s=sum(span.count * span.seconds for span in decode.spans),
    )


def _trace(
    request: Request, prefill: PrefillSide, decode: DecodeSide, sent: Floats, prefill_end: Floats, ends: Floats
) -> RequestTrace:
    index = request.index
    yields = decode.yields[index]
    times = np.concatenate(([decode.admitted_at[index]], _arrivals(decode.pieces[index], len(yields), ends)))
    return RequestTrace(
        index=index,
        sent=float(sent[index]),
        times=times,
        tokens=np.concatenate(([1], yields)),
        input_tokens=request.input_tokens,
        cached_tokens=prefill.cached.get(index, 0),
        prefill_rank=prefill.rank_of[index],
        decode_rank=decode.rank_of[index],
        prefill_end=float(prefill_end[index]),
        retractions=decode.retractions.get(index, 0),
    )


def _arrivals(pieces: list[tuple[int, int]], count: int, ends: Floats) -> Floats:
    """When each of a request's `count` yields arrived, over all its stays in the batch."""
    stops = [done for _, done in pieces[1:]] + [count]
    stays = [ends[first : first + stop - done] for (first, done), stop in zip(pieces, stops, strict=True)]
    return np.concatenate(stays)


def _samples(decode: DecodeSide, ends: Floats) -> list[DecodeSample]:
    """One sample per busy rank every LOG_INTERVAL steps, with the batch as it was then."""
    total = sum(len(item) for item in decode.yields)
    mean_yield = sum(int(item.sum()) for item in decode.yields) / max(1, total)
    starts = [step for _, step, _ in decode.history]
    largest = max(decode.setup.graph_sizes, default=0)
    samples: list[DecodeSample] = []
    for step in range(LOG_INTERVAL, len(ends), LOG_INTERVAL):
        _, _, ranks = decode.history[max(0, bisect_right(starts, step) - 1)]
        elapsed = max(1e-9, float(ends[step] - ends[step - LOG_INTERVAL]))
        for number, state in enumerate(ranks):
            if state.running:
                samples.append(
                    DecodeSample(
                        at=float(ends[step]),
                        rank=number,
                        running=state.running,
                        tokens=state.context_tokens,
                        accept_length=mean_yield,
                        prealloc=state.prealloc,
                        transfer=state.transfer,
                        queued=state.queued,
                        retracted=state.retracted,
                        gen_throughput=state.running * mean_yield * LOG_INTERVAL / elapsed,
                        graph=state.running <= largest,
                        reserved_tokens=state.reserved_tokens,
                    )
                )
    return samples
