"""A client's view of the simulated pool: finds the engines through the router, runs a load on the model in virtual
time, and hands the outcome back to the engines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from executor.simulated.calibrations import calibration_for
from executor.simulated.effective import decode_setup, prefill_setup
from executor.simulated.http_json import call
from executor.simulated.live_loads import decode_loads, merged, prefill_loads
from executor.simulated.model.cache import PrefixCache
from executor.simulated.model.memory import prefill_fits
from executor.simulated.model.mixed import MixedRun
from executor.simulated.model.noise import RunNoise
from executor.simulated.model.parameters import Calibration
from executor.simulated.model.pool_setup import PoolSetup
from executor.simulated.model.run import PoolRun
from executor.simulated.model.setup import PrefillSetup
from executor.simulated.model.trace import RunTrace
from executor.simulated.model.workload import Load, Request

RUNS_VARIABLE = "TUNELOOP_SIM_RUNS_FILE"
SEED_VARIABLE = "TUNELOOP_SIM_SEED"
DRIFT_VARIABLE = "TUNELOOP_SIM_DRIFT_PER_RUN"  # share by which every started run makes the pool slower
PACE_VARIABLE = "TUNELOOP_SIM_PACE"  # real seconds that a run takes

OUT_OF_MEMORY = (
    "Prefill out of memory. Try to lower your batch size.\n"
    "Scheduler hit an exception: Traceback (most recent call last):\n"
    "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 4.51 GiB "
    "(NPU 0; 60.97 GiB total capacity; 3.12 GiB free)"
)


class PoolUnreachable(Exception):
    """The router or an engine behind it does not answer."""


class LoadFailed(Exception):
    """An engine died under the load; the requests that were in flight failed with `message`."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One server behind the router."""

    url: str
    info: Mapping[str, Any]
    state: Mapping[str, Any]

    def post(self, action: str, content: object = None) -> None:
        call(f"{self.url}/_simulated/{action}", "POST", content or {})


@dataclass(frozen=True, kw_only=True)
class VirtualPool:
    """The engines of one deployment; in a mixed one both are the same server."""

    prefill: Engine
    decode: Engine
    policy: str
    calibration: Calibration

    @property
    def is_mixed(self) -> bool:
        return self.prefill.url == self.decode.url

    @property
    def version(self) -> str:
        return str(self.prefill.info["version"])

    @property
    def heads(self) -> frozenset[str]:
        return frozenset(self.prefill.state["heads"])


def discover(base_url: str) -> VirtualPool:
    """The pool behind a router; a server's own address makes a mixed pool of one."""
    try:
        status, listing = call(f"{base_url}/workers")
        if status == 404:
            engine = _engine(base_url)
            return _pool(engine, engine, "round_robin")
        workers = listing["workers"]
        prefill = next(w["url"] for w in workers if w["worker_type"] in ("prefill", "regular"))
        decode = next(w["url"] for w in workers if w["worker_type"] in ("decode", "regular"))
        options = listing.get("simulated") or {}
        policy = str(options.get("prefill_policy") or options.get("policy") or "round_robin")
        first = _engine(prefill)
        return _pool(first, first if decode == prefill else _engine(decode), policy)
    except (OSError, KeyError, TypeError, StopIteration) as error:
        raise PoolUnreachable(f"{base_url}: {error!r}") from error


def _pool(prefill: Engine, decode: Engine, policy: str) -> VirtualPool:
    calibration = calibration_for(str(prefill.info["model_path"]))
    return VirtualPool(prefill=prefill, decode=decode, policy=policy, calibration=calibration)


def _engine(url: str) -> Engine:
    status, info = call(f"{url}/server_info")
    state_status, state = call(f"{url}/_simulated/state")
    if status != 200 or state_status != 200:
        raise OSError(f"{url}: /server_info answers {status}, /_simulated/state {state_status}")
    return Engine(url=url, info=info, state=state)


def count_run(run_id: str, folder: Path) -> int:
    """Append one line to the counter of started runs on this host; answers how many runs were started before."""
    path = Path(os.environ.get(RUNS_VARIABLE) or folder / "simulated_runs.log")
    line = json.dumps({"run": run_id, "pid": os.getpid(), "utc": datetime.now(UTC).isoformat()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        file.seek(0)
        before = sum(1 for _ in file)
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    return before


def noise_seed(runs_before: int) -> int:
    """Seed of a run: fixed by TUNELOOP_SIM_SEED and the number of the run on this host, else fresh each time."""
    chosen = os.environ.get(SEED_VARIABLE)
    if chosen is None:
        return int.from_bytes(os.urandom(6), "big")
    return int(np.random.SeedSequence([int(chosen), runs_before]).generate_state(1)[0])


def drift_factor(runs_before: int) -> float:
    """How much slower the pool has become since its first run; 1 without TUNELOOP_SIM_DRIFT_PER_RUN."""
    drift: float = (1.0 + float(os.environ.get(DRIFT_VARIABLE, "0"))) ** runs_before
    return drift


def run_load(
    pool: VirtualPool, requests: list[Request], load: Load, seed: int, slowdown: float = 1.0
) -> tuple[RunTrace, list[PrefixCache]]:
    """The load in virtual time; the caches are those of the prefill ranks afterwards. LoadFailed if memory runs out."""
    prefill = prefill_setup(pool.prefill.info, pool.calibration, pool.policy)
    if not _fits(pool, prefill, requests):
        run_out_of_memory(pool)
    caches = load_caches(pool, prefill)
    noise = RunNoise(
        pool.calibration.noise,
        seed,
        hours=float(pool.prefill.state["age_s"]) / 3600.0,
        forwards_before=int(pool.prefill.state["forwards"]),
        slowdown=slowdown,
    )
    setup = PoolSetup(
        prefill=prefill,
        decode=decode_setup(pool.decode.info, pool.calibration),
        calibration=pool.calibration,
        mixed=pool.is_mixed,
    )
    engine = MixedRun if pool.is_mixed else PoolRun
    return engine(setup, requests, load, caches, noise).run(), caches


def run_out_of_memory(pool: VirtualPool) -> NoReturn:
    """The prefill server dies in its first full batch, and with it the load."""
    pool.prefill.post("die", {"lines": OUT_OF_MEMORY})
    raise LoadFailed("Internal Server Error")


def load_caches(pool: VirtualPool, prefill: PrefillSetup) -> list[PrefixCache]:
    """The prefix caches of the prefill ranks as the server holds them."""
    caches = [PrefixCache(prefill.pool_tokens, pool.calibration.cache_granularity) for _ in range(prefill.dp)]
    for cache, rows in zip(caches, pool.prefill.state["caches"], strict=True):
        cache.load(rows)
    return caches


def _fits(pool: VirtualPool, prefill: PrefillSetup, requests: Sequence[Request]) -> bool:
    longest = max((request.input_tokens for request in requests), default=0)
    chunk = prefill.rule.chunk or max(longest, prefill.rule.max_prefill_tokens)
    fraction = float(pool.prefill.info["mem_fraction_static"])
    attention_share = prefill.dp / prefill.dies
    return prefill_fits(
        pool.calibration.memory, fraction, int(min(chunk, longest * 4) * attention_share), prefill.rule.cap or 4
    )


def account(pool: VirtualPool, trace: RunTrace, caches: list[PrefixCache]) -> None:
    """Tell the engines what they did, so that their logs, counters and caches show it."""
    finished = trace.requests
    common = {
        "duration_s": trace.duration,
        "requests": len(finished),
        "output_tokens": sum(request.output_tokens for request in finished),
    }
    latencies = {
        "first_token_s": [round(request.first - request.sent, 4) for request in finished],
        "e2e_s": [round(request.end - request.sent, 4) for request in finished],
    }
    prefilled = {
        "prompt_tokens": sum(request.input_tokens for request in finished),
        "cached_tokens": sum(request.cached_tokens for request in finished),
        "forwards": max((batch.forward for batch in trace.prefill_batches), default=0),
        "prefill_batches": [_row(batch) for batch in trace.prefill_batches],
        "caches": [cache.dump() for cache in caches],
    }
    decoded = {
        "verify_steps": trace.verify_steps,
        "decode_samples": [_row(sample) for sample in trace.decode_samples],
        "retractions": [_row(retraction) for retraction in trace.retractions],
        **latencies,
    }
    if pool.is_mixed:
        pool.prefill.post("account", common | prefilled | decoded)
        return
    pool.prefill.post("account", common | prefilled | {"output_tokens": len(finished), **latencies})
    pool.decode.post("account", common | decoded)


def _row(item: tuple[Any, ...]) -> list[Any]:
    return [round(value, 6) if isinstance(value, float) else value for value in item]


def report_progress(pool: VirtualPool, trace: RunTrace, label: str) -> None:
    """A run "takes place": lines on standard error, and, where it is paced over real seconds, live queue figures."""
    pace = float(os.environ.get(PACE_VARIABLE, "0"))
    ends = np.sort([request.end for request in trace.requests])
    marks = max(1, min(20, len(ends)))
    for mark in range(1, marks + 1):
        virtual = trace.duration * mark / marks
        done = int(np.searchsorted(ends, virtual + 1e-9))
        print(
            f"simulated {label}: {done}/{len(ends)} requests done, {virtual:.1f} s virtual", file=sys.stderr, flush=True
        )
        if pace > 0:
            _show_loads(pool, trace, virtual)
            time.sleep(pace / marks)


def _show_loads(pool: VirtualPool, trace: RunTrace, at: float) -> None:
    prefill = prefill_loads(trace, int(pool.prefill.info["dp_size"]), at)
    decode = decode_loads(trace, int(pool.decode.info["dp_size"]), at)
    if pool.is_mixed:
        pool.prefill.post("loads", merged(prefill, decode))
        return
    pool.prefill.post("loads", prefill)
    pool.decode.post("loads", decode)
