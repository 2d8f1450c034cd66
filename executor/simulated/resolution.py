"""From parsed options to effective arguments: what a real server changes by itself, and what it refuses.

Rules are those of reference/sglang.md §4 and §5. A refusal is a LaunchRefused whose text is the last line of the
traceback that the real server prints before it exits with code 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.simulated.model.experts import EXPERTS, misfit, refusal
from executor.simulated.model.memory import graphs_fit, kv_tokens
from executor.simulated.model.parameters import Calibration


class LaunchRefused(Exception):
    """The server cannot start with these arguments; `kind` is the exception type that the real one raises."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        super().__init__(f"{kind}: {message}")


@dataclass(slots=True)
class Effective:
    """Resolved arguments, the notices printed on the way, and what follows from memory."""

    arguments: dict[str, Any]
    notices: list[str] = field(default_factory=list)
    running_per_rank: int = 0
    pool_tokens: int = 0
    graph_sizes: tuple[int, ...] = ()
    expert_misfit: float | None = None  # of the layout file, if one was read

    @property
    def mode(self) -> str:
        return str(self.arguments["disaggregation_mode"])

    @property
    def side(self) -> str:
        """Whose tokens its experts see: decode's own, or those of prompts."""
        return "decode" if self.mode == "decode" else "prefill"

    @property
    def dp(self) -> int:
        return int(self.arguments["dp_size"])

    @property
    def width(self) -> int:
        """Tokens verified per request and step."""
        return int(self.arguments["speculative_num_draft_tokens"] or 1)


def resolve(options: Mapping[str, Any], environment: Mapping[str, str], calibration: Calibration) -> Effective:
    """The effective arguments of a server started with `options`."""
    effective = Effective(dict(options))
    _parallelism(effective)
    _defaults(effective)
    _speculation(effective)
    _chunking(effective)
    _balance(effective)
    _dispatch(effective, environment)
    _experts(effective, calibration.name)
    _memory(effective, calibration)
    return effective


def _refuse_unless(condition: bool, message: str, kind: str = "AssertionError") -> None:
    if not condition:
        raise LaunchRefused(kind, message)


def _parallelism(effective: Effective) -> None:
    arguments = effective.arguments
    if int(arguments.get("attn_dp_size") or 1) > 1:
        arguments["dp_size"] = arguments["attn_dp_size"]
        arguments["enable_dp_attention"] = True
    if arguments["dp_size"] == 1:
        arguments["enable_dp_attention"] = False
    tp, dp = int(arguments["tp_size"]), int(arguments["dp_size"])
    _refuse_unless(tp % int(arguments["nnodes"]) == 0, "tp_size must be divisible by number of nodes")
    if arguments["enable_dp_attention"]:
        _refuse_unless(tp % dp == 0, "tp_size must be divisible by dp_size")
    _refuse_unless(
        not arguments["enable_dp_lm_head"] or arguments["enable_dp_attention"],
        "Please enable dp attention when setting enable_dp_lm_head. ",
    )
    _refuse_unless(arguments["moe_dense_tp_size"] in (None, 1), "moe_dense_tp_size only support 1 and None currently")
    if arguments["moe_a2a_backend"] in ("deepep", "ascend_fuseep"):
        arguments["ep_size"] = tp
        effective.notices.append(
            f"{arguments['moe_a2a_backend']} MoE is enabled. The expert parallel size is adjusted to be the same as "
            f"the tensor parallel size[{tp}]."
        )


def _defaults(effective: Effective) -> None:
    arguments = effective.arguments
    on_npu = arguments["device"] in (None, "npu")
    arguments["device"] = arguments["device"] or "npu"
    arguments["page_size"] = arguments["page_size"] or (128 if on_npu else 1)
    arguments["attention_backend"] = arguments["attention_backend"] or ("ascend" if on_npu else "triton")
    arguments["tokenizer_path"] = arguments["tokenizer_path"] or arguments["model_path"]
    arguments["served_model_name"] = arguments["served_model_name"] or arguments["model_path"]
    arguments["mem_fraction_static"] = arguments["mem_fraction_static"] or 0.8
    arguments["random_seed"] = arguments["random_seed"] or 42
    arguments["max_prefill_tokens"] = arguments["max_prefill_tokens"] or 16384
    if arguments["disaggregation_mode"] == "decode" and not arguments.get(
        "disaggregation_decode_enable_radix_cache", False
    ):
        arguments["disable_radix_cache"] = True
        effective.notices.append("Radix cache is disabled for decode server")


def _speculation(effective: Effective) -> None:
    arguments = effective.arguments
    if arguments["speculative_algorithm"] in (None, "NONE"):
        return
    if arguments["speculative_algorithm"] == "NEXTN":
        arguments["speculative_algorithm"] = "EAGLE"
    steps = arguments["speculative_num_steps"] or 3
    topk = arguments["speculative_eagle_topk"] or 1
    draft = arguments["speculative_num_draft_tokens"] or steps + 1
    _refuse_unless(
        topk == 1,
        "speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for paged attention "
        "backends. This combination is only supported for the 'flashinfer' backend.",
        "ValueError",
    )
    if draft != steps + 1:
        effective.notices.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
        )
        draft = steps + 1
    arguments |= {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": draft,
    }
    if arguments["max_running_requests"] is None:
        arguments["max_running_requests"] = 48
        effective.notices.append("Max running requests is reset to 48 for speculative decoding.")


def _chunking(effective: Effective) -> None:
    arguments = effective.arguments
    chunk = arguments["chunked_prefill_size"]
    chunk = 8192 * (arguments["dp_size"] if arguments["enable_dp_attention"] else 1) if chunk is None else int(chunk)
    if arguments["enable_dp_attention"]:
        arguments["schedule_conservativeness"] = arguments["schedule_conservativeness"] * 0.3
        if chunk > 0:
            divided = chunk // int(arguments["dp_size"])
            effective.notices.append(
                f"DP attention is enabled. chunked prefill size is adjusted from {chunk} to {divided}."
            )
            chunk = divided
    arguments["chunked_prefill_size"] = chunk
    page = int(arguments["page_size"])
    if effective.mode != "decode" and chunk > 0:
        _refuse_unless(chunk % page == 0, "chunked_prefill_size must be divisible by page_size")
    _refuse_unless(
        not (arguments["enable_mixed_chunk"] and arguments["speculative_algorithm"]),
        "enable_mixed_chunk is required to be disabled when speculative decoding is enabled",
    )
    _refuse_unless(
        not (arguments["disable_radix_cache"] and arguments["enable_hierarchical_cache"]),
        "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive "
        "and cannot be used at the same time. Please use only one of them.",
    )


def _balance(effective: Effective) -> None:
    arguments = effective.arguments
    if arguments["load_balance_method"] == "auto":
        arguments["load_balance_method"] = "follow_bootstrap_room" if effective.mode == "prefill" else "round_robin"
    if arguments["init_expert_location"] != "trivial" and arguments["ep_dispatch_algorithm"] is None:
        arguments["ep_dispatch_algorithm"] = "static"


def _experts(effective: Effective, model: str) -> None:
    """Read the expert layout as the real server does; a path that is not here stands for a layout by its name."""
    arguments = effective.arguments
    path = Path(str(arguments["init_expert_location"]))
    if path.suffix != ".json" or not path.is_file():
        return
    try:
        placement = json.loads(path.read_text(encoding="utf-8"))["physical_to_logical_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchRefused("NotImplementedError", f"Unknown init_expert_location format ({error!r})") from None
    slots, ranks = EXPERTS + int(arguments["ep_num_redundant_experts"] or 0), int(arguments["ep_size"])
    why = refusal(placement, slots, ranks)
    _refuse_unless(why is None, why or "")
    effective.notices.append("init_expert_location from init_by_mapping using ServerArgs.init_expert_location")
    effective.expert_misfit = misfit(placement, model, effective.side, ranks)


def _dispatch(effective: Effective, environment: Mapping[str, str]) -> None:
    arguments = effective.arguments
    arguments["max_running_requests"] = arguments["max_running_requests"] or 48 * effective.dp
    effective.running_per_rank = int(arguments["max_running_requests"]) // effective.dp
    _refuse_unless(effective.running_per_rank > 0, "max_running_request is zero. Something is wrong.", "AssertionError")
    uses_buffer = arguments["moe_a2a_backend"] == "deepep" and arguments["deepep_mode"] == "low_latency"
    if not uses_buffer:
        return
    capacity = int(environment.get("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "128"))
    needed = effective.running_per_rank * effective.width
    _refuse_unless(capacity <= 1024, f"num_max_dispatch_tokens_per_rank {capacity} exceeds 1024")
    _refuse_unless(
        needed <= capacity,
        f"num_tokens {needed} exceeds num_max_dispatch_tokens_per_rank {capacity}",
    )


def _memory(effective: Effective, calibration: Calibration) -> None:
    arguments = effective.arguments
    fraction = float(arguments["mem_fraction_static"])
    redundant = int(arguments["ep_num_redundant_experts"] or 0) // max(1, int(arguments["tp_size"]))
    tokens = kv_tokens(calibration.memory, fraction, redundant)
    if tokens <= 0:
        raise LaunchRefused("RuntimeError", "Not enough memory. Please try to increase --mem-fraction-static.")
    page = int(arguments["page_size"])
    tokens = min(tokens, int(arguments["max_total_tokens"] or tokens)) // page * page
    effective.pool_tokens = tokens
    effective.graph_sizes = _graph_sizes(effective)
    largest = max(effective.graph_sizes, default=0)
    if largest and not graphs_fit(calibration.memory, fraction, largest, effective.width):
        raise LaunchRefused(
            "Exception",
            "Capture cuda graph failed: NPU out of memory. Tried to allocate 2.25 GiB\n"
            "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
            "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)",
        )


def _graph_sizes(effective: Effective) -> tuple[int, ...]:
    """Captured batch sizes per rank; none on a prefill server and where graphs are off."""
    arguments = effective.arguments
    if effective.mode == "prefill" or arguments["disable_cuda_graph"] or arguments["deepep_mode"] == "normal":
        return ()
    chosen = arguments.get("cuda_graph_bs_decode")
    if chosen:
        return tuple(sorted(int(size) for size in chosen))
    largest = int(arguments.get("cuda_graph_max_bs_decode") or min(effective.running_per_rank, 32))
    sizes = [*range(1, min(largest, 8) + 1), *range(10, largest + 1, 2)]
    return tuple(sizes if sizes[-1] == largest else [*sizes, largest])
