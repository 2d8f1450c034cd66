"""What a simulated server answers about itself: /server_info, /model_info, /v1/loads, /metrics."""

from __future__ import annotations

from typing import Any

from executor.simulated.server_state import ServerState

# Environment that changes what the model computes; a client of the simulated pool needs to know it.
MODEL_VARIABLES = (
    "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
    "SGLANG_ENABLE_SPEC_V2",
    "SGLANG_INDEX_TOPK_FREQ",
    "SGLANG_DSPARK_COMPACT",
    "SGLANG_DSPARK_VERIFY_BUDGET",
)


def server_info(state: ServerState) -> dict[str, Any]:
    """All resolved arguments as top-level keys, the scheduler's own figures, and the marker of a simulation."""
    effective = state.effective
    body: dict[str, Any] = {key: value for key, value in effective.arguments.items() if key != "config"}
    body |= {
        "simulated": True,
        "simulated_expert_misfit": effective.expert_misfit,
        "simulated_environment": {
            name: state.environment[name] for name in MODEL_VARIABLES if name in state.environment
        },
        "launch_command": " ".join(state.argv),
        "status": state.phase,
        "max_total_num_tokens": effective.pool_tokens,
        "max_req_input_len": effective.pool_tokens - 6,
        "startup_time": state.startup_time,
        "internal_states": [_internal_state(state, body) for _ in range(effective.dp)],
        "version": state.version,
        "frontend": "python",
    }
    if "SGLANG_EXPOSE_OWN_ENV_VARS" in state.environment:
        body["env_vars"] = dict(state.environment)
    return body


def _internal_state(state: ServerState, arguments: dict[str, Any]) -> dict[str, Any]:
    effective = state.effective
    figures: dict[str, Any] = {
        "chunked_prefill_size": arguments["chunked_prefill_size"],
        "max_running_requests": arguments["max_running_requests"],
        "effective_max_running_requests_per_dp": effective.running_per_rank,
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": state.calibration.memory.weights_gb,
            "kvcache": round(effective.pool_tokens * state.calibration.memory.kv_bytes_per_token / 1e9, 3),
            "token_capacity": effective.pool_tokens,
            "graph": {"decode": round(0.1 * len(effective.graph_sizes), 3)},
        },
        "world_size": int(arguments["tp_size"]),
        "disaggregation_mode": effective.mode,
        "decode_cuda_graph_bs": list(effective.graph_sizes),
    }
    accept_length = state.accept_length()
    if accept_length is not None:
        figures["avg_spec_accept_length"] = accept_length
    return figures


def model_info(state: ServerState) -> dict[str, Any]:
    arguments = state.effective.arguments
    return {
        "model_path": arguments["model_path"],
        "tokenizer_path": arguments["tokenizer_path"],
        "is_generation": True,
        "served_model_name": arguments["served_model_name"],
        "weight_version": arguments["weight_version"],
        "load_format": arguments["load_format"],
        "disaggregation_mode": state.effective.mode,
        "model_type": "deepseek_v4",
        "architectures": ["DeepseekV4ForCausalLM"],
        "simulated": True,
    }


def loads(state: ServerState) -> dict[str, Any]:
    """The answer of /v1/loads."""
    pool = state.effective.pool_tokens
    rows = []
    for rank, load in enumerate(state.loads):
        rows.append(
            {
                "dp_rank": rank,
                "num_running_reqs": load.running,
                "num_waiting_reqs": load.waiting,
                "num_used_tokens": load.tokens,
                "num_total_tokens": load.tokens,
                "max_total_num_tokens": pool,
                "max_running_requests": state.effective.running_per_rank,
                "token_usage": load.tokens / pool,
                "gen_throughput": load.gen_throughput,
                "cache_hit_rate": _hit_rate(state),
                "utilization": load.tokens / pool,
                "disaggregation": {
                    "mode": state.effective.mode,
                    "prefill_bootstrap_queue_reqs": load.bootstrap,
                    "prefill_inflight_queue_reqs": load.inflight,
                    "decode_prealloc_queue_reqs": load.prealloc,
                    "decode_transfer_queue_reqs": load.transfer,
                    "decode_retracted_queue_reqs": 0,
                },
                "queues": {"waiting": load.waiting, "grammar": 0, "paused": 0, "retracted": 0},
            }
        )
    return {"timestamp": state.now(), "version": state.version, "dp_rank_count": len(rows), "loads": rows}


def _hit_rate(state: ServerState) -> float:
    return state.totals.cached_tokens / max(1, state.totals.prompt_tokens)


def metrics(state: ServerState) -> str:
    """The answer of /metrics, in Prometheus text format."""
    totals = state.totals
    labels = _labels(state)
    lines: list[str] = []
    for name, value in _gauges(state).items():
        lines += [f"# TYPE sglang:{name} gauge", f"sglang:{name}{{{labels}}} {float(value)}"]
    counters = {
        "prompt_tokens_total": totals.prompt_tokens,
        "generation_tokens_total": totals.generated_tokens,
        "num_requests_total": totals.requests,
        "num_aborted_requests_total": 0,
        "spec_verify_calls_total": totals.verify_steps,
    }
    for name, value in counters.items():
        lines += [f"# TYPE sglang:{name} counter", f"sglang:{name}{{{labels}}} {float(value)}"]
    lines += [
        "# TYPE sglang:cached_tokens_total counter",
        f'sglang:cached_tokens_total{{cache_source="device",{labels}}} {float(totals.cached_tokens)}',
    ]
    lines += _histogram("time_to_first_token_seconds", totals.first_token_s, labels)
    lines += _histogram("e2e_request_latency_seconds", totals.e2e_s, labels)
    return "\n".join(lines) + "\n"


def _labels(state: ServerState) -> str:
    engine = {"null": "unified"}.get(state.effective.mode, state.effective.mode)
    name = state.effective.arguments["served_model_name"]
    return f'engine_type="{engine}",model_name="{name}"'


def _gauges(state: ServerState) -> dict[str, float]:
    pool = state.effective.pool_tokens
    used = sum(load.tokens for load in state.loads)
    accept_length = state.accept_length() or 0.0
    return {
        "num_running_reqs": sum(load.running for load in state.loads),
        "num_queue_reqs": sum(load.waiting for load in state.loads),
        "num_used_tokens": used,
        "token_usage": used / (pool * len(state.loads)),
        "gen_throughput": sum(load.gen_throughput for load in state.loads),
        "cache_hit_rate": _hit_rate(state),
        "max_total_num_tokens": pool,
        "spec_accept_length": accept_length,
        "spec_accept_rate": accept_length / state.effective.width,
        "num_retracted_reqs": 0,
        "num_prefill_bootstrap_queue_reqs": sum(load.bootstrap for load in state.loads),
        "num_prefill_inflight_queue_reqs": sum(load.inflight for load in state.loads),
        "num_decode_prealloc_queue_reqs": sum(load.prealloc for load in state.loads),
        "num_decode_transfer_queue_reqs": sum(load.transfer for load in state.loads),
        "simulated": 1.0,
    }


_BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)


def _histogram(name: str, values: list[float], labels: str) -> list[str]:
    lines = [f"# TYPE sglang:{name} histogram", f"sglang:{name}_sum{{{labels}}} {sum(values)}"]
    for bound in _BOUNDS:
        count = sum(value <= bound for value in values)
        lines.append(f'sglang:{name}_bucket{{{labels},le="{float(bound)}"}} {float(count)}')
    lines.append(f'sglang:{name}_bucket{{{labels},le="+Inf"}} {float(len(values))}')
    return [*lines, f"sglang:{name}_count{{{labels}}} {float(len(values))}"]
