"""What a simulated client holds per request before it writes its files: token arrivals, counts, text, error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.simulated.model.trace import Floats, Ints, RequestTrace, RunTrace
from executor.simulated.model.workload import Request

_WORDS = tuple(f"w{number}" for number in range(997))
NO_TIMES: Floats = np.zeros(0)
NO_TOKENS: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class ClientRecord:
    """One request as its client saw it. `times` are arrivals in seconds since the run began, `tokens` what came."""

    index: int
    sent: float
    times: Floats
    tokens: Ints
    input_tokens: int
    cached_tokens: int
    requested_tokens: int
    error: str = ""
    retried: str = ""  # why the first attempt broke; the request succeeded all the same
    garbled: bool = False
    stream_error: str = ""  # an error event ended the stream

    @property
    def is_success(self) -> bool:
        return not self.error

    @property
    def output_tokens(self) -> int:
        return int(self.tokens.sum())

    @property
    def end(self) -> float:
        return float(self.times[-1]) if len(self.times) else self.sent

    def text(self) -> str:
        """The answer: one word per token, replacement characters where it is garbled."""
        count = self.output_tokens
        if self.garbled:
            return "�" * 24 + " ".join(["���"] * count)
        start = self.index * 31 % len(_WORDS)
        words = _WORDS * ((start + count) // len(_WORDS) + 1)
        text = " ".join(words[start : start + count])
        return f'{text} {{"error": {{"message": "{self.stream_error}"}}}}' if self.stream_error else text


def records_of(trace: RunTrace, requests: Sequence[Request]) -> list[ClientRecord]:
    """One record per request, in order of completion."""
    records = [_record(item, requests[item.index]) for item in trace.requests]
    return sorted(records, key=lambda record: record.end)


def _record(item: RequestTrace, request: Request) -> ClientRecord:
    return ClientRecord(
        index=item.index,
        sent=item.sent,
        times=item.times,
        tokens=item.tokens,
        input_tokens=item.input_tokens,
        cached_tokens=item.cached_tokens,
        requested_tokens=request.output_tokens,
    )


def failed(record: ClientRecord, error: str, at: float | None = None) -> ClientRecord:
    """The same request, failed: nothing of it arrived that the client keeps."""
    times = NO_TIMES if at is None else np.array([max(at, record.sent)])
    return replace(record, times=times, tokens=np.zeros(len(times), dtype=np.int64), error=error)


def all_failed(requests: Sequence[Request], error: str) -> list[ClientRecord]:
    """Every request failed at once: the server was gone."""
    return [
        ClientRecord(
            index=request.index,
            sent=0.001 * request.index,
            times=NO_TIMES,
            tokens=NO_TOKENS,
            input_tokens=request.input_tokens,
            cached_tokens=0,
            requested_tokens=request.output_tokens,
            error=error,
        )
        for request in requests
    ]


def clip(trace: RunTrace, at: float) -> RunTrace:
    """What had happened by `at`: finished requests, batches and samples until then."""
    return RunTrace(
        requests=[request for request in trace.requests if request.end <= at],
        prefill_batches=[batch for batch in trace.prefill_batches if batch.at <= at],
        decode_samples=[sample for sample in trace.decode_samples if sample.at <= at],
        retractions=[retraction for retraction in trace.retractions if retraction.at <= at],
        verify_steps=sum(len(request.tokens) - 1 for request in trace.requests if request.end <= at),
    )
