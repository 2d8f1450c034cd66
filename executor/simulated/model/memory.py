"""Device memory of one die: how many KV tokens fit, and which configurations run out of it.

static = device·fraction holds weights and the KV pool; what is left must hold runtime buffers, the activations of the
largest prefill chunk and the captured decode graphs.
"""

from __future__ import annotations

from executor.simulated.model.parameters import Memory

GB = 1e9


def kv_tokens(memory: Memory, fraction: float, redundant_experts: int) -> int:
    """Tokens in the KV pool of one rank; zero or less means that the weights do not fit the static share."""
    free_gb = memory.device_gb * fraction - memory.weights_gb - redundant_experts * memory.redundant_expert_gb
    return int(free_gb * GB / memory.kv_bytes_per_token)


def dynamic_gb(memory: Memory, fraction: float) -> float:
    """What the static share leaves, runtime buffers deducted."""
    return memory.device_gb * (1.0 - fraction) - memory.runtime_gb


def prefill_fits(memory: Memory, fraction: float, chunk_tokens: int, requests: int) -> bool:
    """Whether the activations of one prefill batch fit; every further request adds a twentieth."""
    need_gb = memory.activation_bytes_per_token * chunk_tokens * (1.0 + 0.05 * (requests - 1)) / GB
    return need_gb <= dynamic_gb(memory, fraction)


def graphs_fit(memory: Memory, fraction: float, largest_batch: int, width: int) -> bool:
    """Whether the captured decode graphs fit; a graph row per verified token."""
    return memory.graph_gb_per_request * largest_batch * (width + 2) / 8.0 <= dynamic_gb(memory, fraction)
