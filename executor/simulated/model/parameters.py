"""What a model of hardware and weights is calibrated with. Values come from a calibration file, units are in the names.

One dataclass per mechanism, so that a parameter can be traced to the equation that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PrefillCost:
    """One forward of all prefill ranks: fixed + busiest rank + expert work + attention over context.

    T = fixed_s + local_s_per_token·max_r(n_r)·s + expert_s_per_token·I·Σn_r/dies + context_s_per_token2·max_r(w_r)·s
    with n_r the new tokens of rank r, w_r the sum of n·(context + n/2), I the imbalance of the expert layout, and
    s = dp/dies the share of a rank's own work that one die does (attention TP splits it).
    """

    fixed_s: float
    local_s_per_token: float
    expert_s_per_token: float
    context_s_per_token2: float


@dataclass(frozen=True, kw_only=True)
class DecodeCost:
    """One decode (or verify) step of all decode ranks.

    T = fixed_s + draft_s·(W−1) + row_s·W·bucket(max_r b_r) + context_s_per_token·max_r(c_r), times the layout factor,
    with W the verify width, b_r the running requests of rank r and c_r their context tokens.
    """

    fixed_s: float
    draft_s: float
    row_s: float
    context_s_per_token: float
    eager_factor: float  # a step that no captured graph covers


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """KV hand-over of one request from prefill to decode: base_s + s_per_token·prompt tokens."""

    base_s: float
    s_per_token: float


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Device memory of one die, GB. KV pool = device·fraction − weights; activations must fit beside it."""

    device_gb: float
    weights_gb: float
    kv_bytes_per_token: float
    runtime_gb: float
    activation_bytes_per_token: float
    graph_gb_per_request: float
    redundant_expert_gb: float


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Probability that one more draft token is accepted, per kind of text, and its spread between requests."""

    by_task: Mapping[str, float]
    spread: float


@dataclass(frozen=True, kw_only=True)
class Mechanisms:
    """Costs and gains of optional mechanisms, one parameter each. 1.0 means no effect."""

    prefill_imbalance: Mapping[str, float]  # by expert layout: fitted, original
    decode_imbalance: Mapping[str, float]
    index_cache_saving: float  # share of a step that index reuse (freq 2) saves
    compact_overhead: float  # planning cost of Compact, share of a forward
    budget_acceptance: float  # factor on the acceptance probability under a fixed 95 % verify budget
    delay_passes: int  # decode passes that a mixed engine's prefill waits for other ranks


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Seeded variation. The run factor stands for everything that differs between two runs of one configuration."""

    run_sigma: float
    step_sigma: float
    drift_per_hour: float
    cold_forwards: int
    cold_factor: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """One model on one kind of device."""

    name: str
    prefill: PrefillCost
    decode: DecodeCost
    transfer: Transfer
    memory: Memory
    acceptance: Acceptance
    mechanisms: Mechanisms
    noise: Noise
    cache_granularity: int  # tokens; a prefix hit is a whole number of these
    chat_overhead_tokens: int  # added by the chat template
    router_s: float
    weight_load_s: float
