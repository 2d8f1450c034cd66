"""The trace that a simulated server leaves after `/start_profile`: made-up operators in the shape of a real trace.

Its shares are constants per mode and mean nothing; what they exercise is the way from a trace to conclusions.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

# (name, microseconds) of one layer, in order; the gap after a step is idle time.
_LAYERS = {
    "prefill": [
        ("FlashAttentionScore", 620),
        ("GroupedMatmul_3", 540),
        ("MoeDistributeDispatch", 210),
        ("MatMulV2", 180),
    ],
    "decode": [("PagedAttention", 90), ("GroupedMatmul_3", 120), ("MoeDistributeCombine", 110), ("MatMulV2", 40)],
}
_LAYER_COUNT = 4
_SAMPLING_US, _GAP_US = 30, 160


def write_trace(folder: Path, mode: str, steps: int, rank: int = 0) -> Path:
    """One rank's trace of so many steps."""
    layer = _LAYERS["decode" if mode == "decode" else "prefill"]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "Ascend Hardware"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
    ]
    at = 0
    for _ in range(steps):
        for name, length in [*layer * _LAYER_COUNT, ("ArgMaxV2", _SAMPLING_US)]:
            events.append({"ph": "X", "name": name, "pid": 7, "tid": rank, "ts": at, "dur": length})
            at += length
        at += _GAP_US
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"simulated-TP-{rank}.trace.json.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        json.dump({"simulated": True, "traceEvents": events}, stream)
    return path
