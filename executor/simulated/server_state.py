"""What a simulated server knows: its effective arguments, its prefix caches, and what the runs so far have added up to.

A server has a virtual clock that runs ahead of the wall by the virtual length of every run it accounted for.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.experts import recorded_counts
from executor.simulated.model.parameters import Calibration
from executor.simulated.model.workload import Segment
from executor.simulated.profile_trace import write_trace
from executor.simulated.resolution import Effective
from executor.simulated.server_log import LogStyle, run_lines, stamp


@dataclass(slots=True)
class Totals:
    """Counters since the launch."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    verify_steps: int = 0
    spec_tokens: int = 0
    forwards: int = 0
    runs: int = 0
    first_token_s: list[float] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Load:
    """Current queue figures per rank, for /v1/loads."""

    running: int = 0
    waiting: int = 0
    tokens: int = 0
    gen_throughput: float = 0.0
    prealloc: int = 0
    transfer: int = 0
    inflight: int = 0
    bootstrap: int = 0


class ServerState:
    """Shared by the HTTP threads; every change is made under `lock`."""

    def __init__(
        self, effective: Effective, calibration: Calibration, version: str, argv: Sequence[str], env: Mapping[str, str]
    ) -> None:
        self.effective, self.calibration, self.version = effective, calibration, version
        self.argv, self.environment = list(argv), dict(env)
        self.lock = threading.RLock()
        self.phase = "starting"
        self.behaviours: dict[str, dict[str, Any]] = {}
        self.recording: int | None = None  # tokens seen before it was switched on
        self.recorded = 0
        self.profiling: tuple[Path, int] | None = None  # where to, and of how many steps
        self.totals = Totals()
        self.caches = [PrefixCache(effective.pool_tokens, calibration.cache_granularity) for _ in range(effective.dp)]
        self.loads = [Load() for _ in range(effective.dp)]
        self.busy_since: float | None = None
        self._skew = 0.0
        self._turn = 0
        self.started = time.time()
        self.startup_time = startup_times(effective, calibration)

    @property
    def style(self) -> LogStyle:
        arguments = self.effective.arguments
        return LogStyle(
            version=self.version,
            mode=self.effective.mode,
            dp=self.effective.dp,
            tp=int(arguments["tp_size"]),
            ep=int(arguments["ep_size"]),
            dp_attention=bool(arguments["enable_dp_attention"]),
            page=int(arguments["page_size"]),
            pool_tokens=self.effective.pool_tokens,
            width=self.effective.width,
        )

    def now(self) -> float:
        """Seconds since the epoch on the server's virtual clock."""
        return time.time() + self._skew

    def log(self, text: str, ranks: str = "") -> None:
        print(f"{stamp(self.now())}{ranks}] {text}", flush=True)

    def choose_rank(self, pinned: int | None, room: int | None) -> int:
        """The rank of a single request, by the effective balance method."""
        if pinned is not None:
            return pinned % self.effective.dp
        if room is not None and self.effective.arguments["load_balance_method"] == "follow_bootstrap_room":
            return room % self.effective.dp
        self._turn += 1
        return (self._turn - 1) % self.effective.dp

    def prefill_one(self, prompt: tuple[Segment, ...], rank: int) -> int:
        """A single request passes through prefill; answers its cached tokens."""
        with self.lock:
            radix = not self.effective.arguments["disable_radix_cache"]
            tokens = sum(segment.tokens for segment in prompt)
            cached = self.caches[rank].match(prompt) if radix else 0
            if radix:
                self.caches[rank].insert(prompt, tokens)
            self.totals.requests += 1
            self.totals.prompt_tokens += tokens
            self.totals.cached_tokens += cached
            self.totals.forwards += 1
            row = (0.0, rank, 1, tokens - cached, cached, 0, 0, 0, 0, 1, tokens)
            print(run_lines(self.style, {"prefill_batches": [row]}, self.now()), flush=True)
            return cached

    def decode_one(self, prompt_tokens: int, output_tokens: int) -> None:
        """A single request passes through decode."""
        with self.lock:
            self.totals.generated_tokens += output_tokens
            if self.effective.mode == "decode":
                self.totals.requests += 1

    def account(self, run: Mapping[str, Any]) -> None:
        """Take over a finished run: log lines, counters, caches, and the virtual time that it took."""
        with self.lock:
            start = self.now()
            if "log_truncated" in self.behaviours:
                os.ftruncate(1, 0)
            lines = run_lines(self.style, run, start)
            if lines:
                print(lines, flush=True)
            self._skew += float(run.get("duration_s", 0.0))
            self._add(run)
            for cache, rows in zip(self.caches, run.get("caches", []), strict=False):
                cache.load(rows)
            self.loads = [Load() for _ in range(self.effective.dp)]
            self.busy_since = None
            self.stop_profile()
            if "misleading_log" in self.behaviours:
                self.log(str(self.behaviours["misleading_log"].get("text", "all done, ignore the result")))
            if "restarted_in_run" in self.behaviours:
                self.effective.arguments["random_seed"] += 1

    def _add(self, run: Mapping[str, Any]) -> None:
        totals = self.totals
        totals.runs += 1
        totals.requests += int(run.get("requests", 0))
        totals.prompt_tokens += int(run.get("prompt_tokens", 0))
        totals.cached_tokens += int(run.get("cached_tokens", 0))
        totals.generated_tokens += int(run.get("output_tokens", 0))
        totals.spec_tokens += int(run.get("output_tokens", 0))
        totals.verify_steps += int(run.get("verify_steps", 0))
        totals.forwards += int(run.get("forwards", 0))
        totals.first_token_s.extend(float(value) for value in run.get("first_token_s", []))
        totals.e2e_s.extend(float(value) for value in run.get("e2e_s", []))

    def flush(self) -> bool:
        """Empty the caches and reset the speculation totals; False while requests are in flight."""
        with self.lock:
            if self.busy_since is not None or self.is_due("flush_refused", 1):
                return False
            for cache in self.caches:
                cache.clear()
            self.totals.spec_tokens = self.totals.verify_steps = 0
            return True

    def is_due(self, behaviour: str, times: int) -> bool:
        """Whether a behaviour that happens `requests` times is to happen now; counts it."""
        fault = self.behaviours.get(behaviour)
        if fault is None:
            return False
        fault["left"] = int(fault.get("left", fault.get("requests", times))) - 1
        return bool(fault["left"] >= 0)

    def start_profile(self, folder: str, steps: int | None) -> None:
        with self.lock:
            self.profiling = (Path(folder), steps or 10)

    def stop_profile(self) -> bool:
        """Write the trace; False where no profile is in progress."""
        with self.lock:
            wanted, self.profiling = self.profiling, None
        if wanted is None:
            return False
        write_trace(wanted[0], self.effective.mode, wanted[1])
        return True

    def record_experts(self, on: bool) -> bool:
        """Switch the expert distribution recorder; False where the server was launched without one."""
        if not self.effective.arguments["expert_distribution_recorder_mode"]:
            return False
        with self.lock:
            if on:
                self.recording, self.recorded = self._tokens(), 0
            elif self.recording is not None:
                self.recorded, self.recording = self._tokens() - self.recording, None
        return True

    def _tokens(self) -> int:
        """Tokens whose experts this side computed."""
        totals = self.totals
        return (
            totals.generated_tokens if self.effective.side == "decode" else totals.prompt_tokens - totals.cached_tokens
        )

    def dump_experts(self) -> Path | None:
        """Write what was recorded; a file that `--init-expert-location` reads. None without a recorder."""
        if not self.effective.arguments["expert_distribution_recorder_mode"]:
            return None
        folder = Path(self.environment.get("SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR", "/tmp"))  # noqa: S108
        path = folder / f"expert_distribution_recorder_{self.now():.6f}.json"
        if "dump_missing" in self.behaviours:
            return path
        counts = recorded_counts(self.calibration.name, self.effective.side, self.recorded)
        text = json.dumps({"simulated": True, "rank": 0, "logical_count": counts})
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text[: len(text) // 2] if "dump_cut_off" in self.behaviours else text, encoding="utf-8")
        self.recorded = 0
        return path

    def accept_length(self) -> float | None:
        totals = self.totals
        if self.effective.width <= 1 or not totals.verify_steps:
            return None
        return totals.spec_tokens / totals.verify_steps


def startup_times(effective: Effective, calibration: Calibration) -> dict[str, Any]:
    """What a start of this configuration takes on real hardware, seconds."""
    graphs = 3.1 * len(effective.graph_sizes)
    load = calibration.weight_load_s
    scheduler = load + 21.0 + graphs
    stages = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")
    return {
        "load_weight": load,
        "kv_cache_allocation": 2.4,
        "scheduler_e2e": scheduler,
        "cuda_graph": {stage: graphs if stage == "decode" else 0.0 for stage in stages},
        "tokenizer_e2e": scheduler + 18.0,
    }
