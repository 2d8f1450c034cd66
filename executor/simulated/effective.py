"""From what two servers report (`/server_info`) to the setups of the model. Pure: decoded JSON in, setups out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from executor.simulated.model.admission import AdmissionRule, is_gated_release
from executor.simulated.model.mechanisms import ServerMechanisms, decode_factors, prefill_factors
from executor.simulated.model.parameters import Calibration
from executor.simulated.model.setup import DecodeSetup, PrefillSetup, Routing

_ROUTING = {"random": Routing.RANDOM, "cache_aware": Routing.LONGEST_PREFIX}
SLOTS_FACTOR = 3  # a decode rank holds memory for waiting transfers besides its running requests, up to this many times


def prefill_setup(info: Mapping[str, Any], calibration: Calibration, policy: str) -> PrefillSetup:
    """The prefill engine as the server reports it, behind a router of `policy`."""
    chunk = int(info["chunked_prefill_size"])
    cap = info["prefill_max_requests"]
    radix = not info["disable_radix_cache"]
    rule = AdmissionRule(
        chunk=chunk if chunk > 0 else None,
        page=int(info["page_size"]),
        cap=None if cap is None else int(cap),
        max_prefill_tokens=int(info["max_prefill_tokens"]),
        gate=radix and is_gated_release(str(info["version"])),
    )
    mechanisms = mechanisms_of(info)
    imbalance, slowdown = prefill_factors(calibration.mechanisms, mechanisms)
    passes = mechanisms.delay_passes
    return PrefillSetup(
        dp=int(info["dp_size"]),
        dies=int(info["tp_size"]),
        rule=rule,
        radix=radix,
        pool_tokens=int(info["max_total_num_tokens"]),
        max_running=_running_per_rank(info),
        routing=_ROUTING.get(policy, Routing.ROUND_ROBIN),
        imbalance=imbalance,
        slowdown=slowdown,
        delay_passes=calibration.mechanisms.delay_passes if passes is None else passes,
    )


def decode_setup(info: Mapping[str, Any], calibration: Calibration) -> DecodeSetup:
    """The decode engine as the server reports it."""
    running = _running_per_rank(info)
    state = info["internal_states"][0]
    imbalance, slowdown, acceptance = decode_factors(calibration.mechanisms, mechanisms_of(info))
    balanced = info["load_balance_method"] in ("total_requests", "total_tokens")
    return DecodeSetup(
        dp=int(info["dp_size"]),
        max_running=running,
        slots=running * (SLOTS_FACTOR if running <= 32 else 1),
        pool_tokens=int(info["max_total_num_tokens"]),
        reserved_tokens=int(info.get("num_reserved_decode_tokens") or 512),
        graph_sizes=tuple(int(size) for size in state["decode_cuda_graph_bs"]),
        width=int(info["speculative_num_draft_tokens"] or 1),
        routing=Routing.LEAST_LOADED if balanced else Routing.ROUND_ROBIN,
        imbalance=imbalance,
        slowdown=slowdown,
        acceptance_scale=acceptance,
    )


def mechanisms_of(info: Mapping[str, Any]) -> ServerMechanisms:
    """The optional mechanisms that a server runs with, by its arguments and its environment."""
    environment = info.get("simulated_environment") or {}
    passes = info.get("prefill_delayer_max_delay_passes")
    return ServerMechanisms(
        layout=str(info["init_expert_location"]),
        misfit=info.get("simulated_expert_misfit"),
        index_cache=_reuses_index(str(environment.get("SGLANG_INDEX_TOPK_FREQ", "2"))),
        compact=str(environment.get("SGLANG_DSPARK_COMPACT", "1")) not in ("", "0"),
        verify_budget=bool(environment.get("SGLANG_DSPARK_VERIFY_BUDGET")),
        delay_passes=int(passes) if passes is not None and info.get("enable_prefill_delayer") else None,
    )


def _reuses_index(frequency: str) -> bool:
    return frequency not in ("", "0", "1")


def _running_per_rank(info: Mapping[str, Any]) -> int:
    return int(info["internal_states"][0]["effective_max_running_requests_per_dp"])
