"""Folds log records and load samples of one run into serving evidence.

Load samples are spread evenly in time and are preferred for queues; batch lines are written by the batches
themselves and serve where no sample holds the queue. Ranks log at different rates, so means over ranks weigh
every rank alike. All depths are per DP rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from executor.engines.loads import LoadSample, RankLoad
from executor.engines.server_log import (
    DecodeBatch,
    EffectiveSizes,
    LogRecord,
    PrefillBatch,
    Retraction,
    ServerArguments,
)
from experiments.evidence import (
    DecodeEvidence,
    Depth,
    Figure,
    PrefillEvidence,
    ServingEvidence,
    mean_figure,
    summarise_depth,
)

LONE_TAIL = 0.1  # of the effective chunk


@dataclass(frozen=True, kw_only=True)
class Span:
    """The part of a run that counts, on the clock of the records. Open ends count everything."""

    start: float = float("-inf")
    end: float = float("inf")

    def holds(self, at: float) -> bool:
        return self.start <= at <= self.end


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What one side wrote and answered. Records outside `span` only tell sizes."""

    records: Sequence[LogRecord] = ()
    samples: Sequence[LoadSample] = ()
    span: Span = field(default_factory=Span)
    sample_span: Span = field(default_factory=Span)

    def sizes(self) -> EffectiveSizes | None:
        return next((record for record in self.records if isinstance(record, EffectiveSizes)), None)

    def arguments(self) -> ServerArguments | None:
        return next((record for record in self.records if isinstance(record, ServerArguments)), None)

    def loads(self) -> list[RankLoad]:
        return [rank for sample in self.samples if self.sample_span.holds(sample.at) for rank in sample.ranks]


def fold_evidence(
    prefill: Observed | None = None, decode: Observed | None = None, *, simulated: bool = False
) -> ServingEvidence:
    """The evidence of one run. For a server that does both, give the same `Observed` twice."""
    return ServingEvidence(
        prefill=fold_prefill(prefill) if prefill else PrefillEvidence(),
        decode=fold_decode(decode) if decode else DecodeEvidence(),
        simulated=simulated,
    )


def fold_prefill(observed: Observed) -> PrefillEvidence:
    """The prefill side, from its batch lines and load samples."""
    batches = [
        record
        for record in observed.records
        if isinstance(record, PrefillBatch) and observed.span.holds(record.stamp.at)
    ]
    loads, chunk = observed.loads(), _chunk(observed)
    usage = _present(batch.token_usage for batch in batches)
    tails = [batch.new_tokens for batch in batches if chunk and _is_lone_tail(batch, chunk)]
    n = len(batches)
    return PrefillEvidence(
        waiting=_depth(loads, lambda load: load.waiting, [batch.waiting for batch in batches]),
        bootstrap=_depth(loads, lambda load: load.bootstrap, [batch.bootstrap for batch in batches]),
        inflight=_depth(loads, lambda load: load.inflight, [batch.inflight for batch in batches]),
        batches=Figure(value=float(n), n=n) if n else Figure(),
        batch_tokens_mean=mean_figure([batch.new_tokens for batch in batches]),
        chunk=Figure(value=float(chunk), n=1) if chunk else Figure(),
        chunk_fill=mean_figure([batch.new_tokens / chunk for batch in batches] if chunk else []),
        multi_sequence_share=_share([batch.new_sequences >= 2 for batch in batches]),
        lone_tail_share=_share([_is_lone_tail(batch, chunk) for batch in batches] if chunk else []),
        lone_tail_tokens_mean=mean_figure(tails),
        cache_hit_share=_cache_hit_share(batches),
        token_usage_mean=mean_figure(usage),
        token_usage_max=_maximum(usage),
        **_balance((batch.stamp.dp_rank, float(batch.new_tokens)) for batch in batches).as_totals(),
    )


def fold_decode(observed: Observed) -> DecodeEvidence:
    """The decode side, from its batch lines and load samples."""
    batches = [
        record
        for record in observed.records
        if isinstance(record, DecodeBatch) and observed.span.holds(record.stamp.at)
    ]
    loads = observed.loads()
    usage = _present(batch.token_usage for batch in batches)
    running = [(batch.stamp.dp_rank, float(batch.running)) for batch in batches]
    if any(load.running is not None for load in loads):
        running = [(load.dp_rank, float(load.running)) for load in loads if load.running is not None]
    cap, balance = _running_cap(observed, loads), _balance(running)
    return DecodeEvidence(
        waiting=_depth(loads, lambda load: load.waiting, [batch.waiting for batch in batches]),
        prealloc=_depth(loads, lambda load: load.prealloc, [batch.prealloc for batch in batches]),
        transfer=_depth(loads, lambda load: load.transfer, [batch.transfer for batch in batches]),
        running=_depth(loads, lambda load: load.running, [batch.running for batch in batches]),
        retracted=_depth(loads, lambda load: load.retracted, [batch.retracted for batch in batches]),
        retractions=_retractions(observed, batches),
        running_cap=Figure(value=float(cap), n=1) if cap else Figure(),
        running_share_of_cap=balance.share_of(cap),
        accept_length=_accept_length(batches),
        token_usage_mean=mean_figure(usage),
        token_usage_max=_maximum(usage),
        **balance.as_means(),
    )


@dataclass(frozen=True, kw_only=True)
class _Balance:
    """Values by DP rank."""

    by_rank: dict[int, list[float]]

    @property
    def n(self) -> int:
        return sum(len(values) for values in self.by_rank.values())

    def as_totals(self) -> dict[str, Figure]:
        return self._figures([sum(values) for values in self.by_rank.values()])

    def as_means(self) -> dict[str, Figure]:
        return self._figures(self._means())

    def share_of(self, cap: int | None) -> Figure:
        means = self._means()
        return Figure(value=sum(means) / len(means) / cap, n=self.n) if means and cap else Figure()

    def _means(self) -> list[float]:
        return [sum(values) / len(values) for values in self.by_rank.values()]

    def _figures(self, per_rank: list[float]) -> dict[str, Figure]:
        mean = sum(per_rank) / len(per_rank) if per_rank else 0.0
        imbalance = max(per_rank) / mean - 1 if mean > 0 else None
        return {
            "ranks": Figure(value=float(len(per_rank)), n=self.n) if per_rank else Figure(),
            "rank_imbalance": Figure() if imbalance is None else Figure(value=imbalance, n=self.n),
        }


def _balance(pairs: Iterable[tuple[int, float]]) -> _Balance:
    by_rank: dict[int, list[float]] = defaultdict(list)
    for rank, value in pairs:
        by_rank[rank].append(value)
    return _Balance(by_rank=dict(by_rank))


def _depth(loads: Sequence[RankLoad], read: Callable[[RankLoad], int | None], logged: Sequence[int | None]) -> Depth:
    sampled = _present(read(load) for load in loads)
    return summarise_depth(sampled or _present(logged))


def _present(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None]


def _share(outcomes: Sequence[bool]) -> Figure:
    return mean_figure([float(outcome) for outcome in outcomes])


def _maximum(values: Sequence[float]) -> Figure:
    return Figure(value=max(values), n=len(values)) if values else Figure()


def _is_lone_tail(batch: PrefillBatch, chunk: int) -> bool:
    return batch.new_sequences == 1 and batch.new_tokens < LONE_TAIL * chunk


def _cache_hit_share(batches: Sequence[PrefillBatch]) -> Figure:
    cached = sum(batch.cached_tokens for batch in batches)
    seen = cached + sum(batch.new_tokens for batch in batches)
    return Figure(value=cached / seen, n=len(batches)) if seen else Figure()


def _accept_length(batches: Sequence[DecodeBatch]) -> Figure:
    weighted = [
        (batch.accept_length, batch.running)
        for batch in batches
        if batch.accept_length is not None and batch.running > 0
    ]
    weight = sum(running for _, running in weighted)
    if not weight:
        return Figure()
    return Figure(value=sum(length * running for length, running in weighted) / weight, n=len(weighted))


def _retractions(observed: Observed, batches: Sequence[DecodeBatch]) -> Figure:
    """Zero is observed as soon as the decode side wrote batches at all."""
    if not batches:
        return Figure()
    thrown = [
        record.requests
        for record in observed.records
        if isinstance(record, Retraction) and observed.span.holds(record.stamp.at)
    ]
    return Figure(value=float(sum(thrown)), n=len(batches))


def _chunk(observed: Observed) -> int | None:
    """The effective chunk per DP rank; `None` while chunking is off or was not reported."""
    sizes, arguments = observed.sizes(), observed.arguments()
    reported: object = sizes.chunked_prefill_size if sizes else None
    if reported is None and arguments is not None:
        reported = arguments.values.get("chunked_prefill_size")
    return reported if isinstance(reported, int) and reported > 0 else None


def _running_cap(observed: Observed, loads: Sequence[RankLoad]) -> int | None:
    sizes = observed.sizes()
    if sizes is not None and sizes.max_running_requests:
        return sizes.max_running_requests
    return next((load.running_cap for load in loads if load.running_cap), None)
