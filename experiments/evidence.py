"""What the servers showed during one run, as figures with stable names: the ground that cards stand on.

Every figure carries its number of observations. `None` means NOT_OBSERVED. Nothing here is a result: results
come from per-request records only.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class Figure(BaseModel):
    """One number and how many observations it rests on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float | None = None
    n: int = 0


class Depth(BaseModel):
    """How deep one queue was, per DP rank, in requests. `share_positive`: the share of samples above zero."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    share_positive: float | None = None
    n: int = 0


class PrefillEvidence(BaseModel):
    """The prefill side. Tokens are those of one batch of one DP rank."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    waiting: Depth = Depth()
    bootstrap: Depth = Depth()
    inflight: Depth = Depth()
    batches: Figure = Figure()
    batch_tokens_mean: Figure = Figure()
    chunk: Figure = Figure()  # effective tokens per step, as the server reported it
    chunk_fill: Figure = Figure()  # mean of new tokens / chunk
    multi_sequence_share: Figure = Figure()  # share of batches with at least two new sequences
    lone_tail_share: Figure = Figure()  # share of one-sequence batches below a tenth of the chunk
    lone_tail_tokens_mean: Figure = Figure()
    cache_hit_share: Figure = Figure()  # cached / (cached + computed) tokens
    token_usage_mean: Figure = Figure()
    token_usage_max: Figure = Figure()
    ranks: Figure = Figure()
    rank_imbalance: Figure = Figure()  # tokens of the busiest rank / mean over ranks - 1


class DecodeEvidence(BaseModel):
    """The decode side, per DP rank."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    waiting: Depth = Depth()
    prealloc: Depth = Depth()
    transfer: Depth = Depth()
    running: Depth = Depth()
    retracted: Depth = Depth()
    retractions: Figure = Figure()  # requests thrown out of a full KV pool
    running_cap: Figure = Figure()
    running_share_of_cap: Figure = Figure()
    accept_length: Figure = Figure()  # mean of the logged values, weighted by running requests
    token_usage_mean: Figure = Figure()
    token_usage_max: Figure = Figure()
    ranks: Figure = Figure()
    rank_imbalance: Figure = Figure()  # running of the busiest rank / mean over ranks - 1


class ServingEvidence(BaseModel):
    """Both sides of one run. A server without prefill/decode separation fills both from its one log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefill: PrefillEvidence = PrefillEvidence()
    decode: DecodeEvidence = DecodeEvidence()
    simulated: bool = False

    def figures(self) -> dict[str, float | None]:
        """Every figure under its evidence id: `prefill.lone_tail_share`, `decode.waiting.p90`."""
        return {name: value for name, (value, _) in self._observed().items()}

    def observations(self) -> dict[str, int]:
        """The number of observations behind each evidence id."""
        return {name: n for name, (_, n) in self._observed().items()}

    def _observed(self) -> dict[str, tuple[float | None, int]]:
        observed: dict[str, tuple[float | None, int]] = {}
        sides: tuple[tuple[str, BaseModel], ...] = (("prefill", self.prefill), ("decode", self.decode))
        for side, evidence in sides:
            for name in type(evidence).model_fields:
                match getattr(evidence, name):
                    case Figure() as figure:
                        observed[f"{side}.{name}"] = (figure.value, figure.n)
                    case Depth() as depth:
                        for statistic in ("mean", "p50", "p90", "share_positive"):
                            observed[f"{side}.{name}.{statistic}"] = (getattr(depth, statistic), depth.n)
        return observed


def summarise_depth(samples: Sequence[float]) -> Depth:
    """Linear interpolation between ranks for the percentiles, as numpy does."""
    if not samples:
        return Depth()
    ordered = sorted(samples)
    return Depth(
        mean=sum(ordered) / len(ordered),
        p50=_percentile(ordered, 0.5),
        p90=_percentile(ordered, 0.9),
        share_positive=sum(1 for sample in ordered if sample > 0) / len(ordered),
        n=len(ordered),
    )


def mean_figure(samples: Sequence[float]) -> Figure:
    """The mean of what was observed; nothing observed is no figure."""
    return Figure(value=sum(samples) / len(samples), n=len(samples)) if samples else Figure()


def _percentile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
