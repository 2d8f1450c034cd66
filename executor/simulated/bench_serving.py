"""`python -m executor.simulated.bench_serving <sglang.bench_serving argv>`: the client of SGLang 0.5.23, simulated."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from executor.simulated.bench_arguments import NATIVE_BACKENDS, base_url, output_file, parse_arguments
from executor.simulated.bench_dataset import DatasetError, build_requests
from executor.simulated.bench_metrics import BenchRun, console, result_line
from executor.simulated.faults import Injector
from executor.simulated.http_json import call
from executor.simulated.load_run import LoadOutcome, send_load
from executor.simulated.model.workload import Load, Request
from executor.simulated.virtual_pool import (
    LoadFailed,
    PoolUnreachable,
    VirtualPool,
    account,
    count_run,
    discover,
    run_load,
)


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    injector = Injector("bench", argv)
    print("simulated: a client of the simulated pool of tuneloop; no request leaves this machine", flush=True)
    print(f"benchmark_args={arguments}", flush=True)
    if injector.take("client_exit_1_before_sending"):
        print("ModuleNotFoundError: No module named 'aiohttp'", file=sys.stderr)
        return 1
    url = base_url(arguments)
    print(f"Waiting up to {arguments.ready_check_timeout_sec}s for {url}/v1/models to become ready...", flush=True)
    try:
        pool = _wait_until_ready(url, min(float(arguments.ready_check_timeout_sec), 5.0))
        requests = build_requests(arguments, pool.calibration.chat_overhead_tokens, pool.heads)
    except PoolUnreachable:
        print(f"Server at {url} is not ready. Exiting.", flush=True)
        return 1
    except DatasetError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{arguments}\n", flush=True)
    inputs = _client_inputs(arguments, requests, pool)
    print(f"#Input tokens: {sum(inputs)}", flush=True)
    print(f"#Output tokens: {sum(request.output_tokens for request in requests)}", flush=True)
    return _benchmark(arguments, url, requests, inputs, injector)


def _wait_until_ready(url: str, seconds: float) -> VirtualPool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return discover(url)
        except PoolUnreachable:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.2)


def _client_inputs(arguments: argparse.Namespace, requests: list[Request], pool: VirtualPool) -> list[int]:
    """Prompt lengths as the client's dataset counts them: without the chat template."""
    is_chat = arguments.backend.endswith("-chat")
    overhead = (
        pool.calibration.chat_overhead_tokens if is_chat and arguments.dataset_name in ("custom", "openai") else 0
    )
    return [request.input_tokens - overhead for request in requests]


def _benchmark(
    arguments: argparse.Namespace, url: str, requests: list[Request], inputs: list[int], injector: Injector
) -> int:
    failure = _warm_up(arguments, url, requests)
    if failure:
        return failure
    if arguments.flush_cache and call(f"{url}/flush_cache", "POST")[0] != 200:
        print("RuntimeError: Failed to flush cache", file=sys.stderr)
        return 1
    count = count_run(str(arguments.tag or output_file(arguments).stem), Path.cwd())
    pool = discover(url)
    rate = None if math.isinf(arguments.request_rate) else float(arguments.request_rate)
    load = Load(concurrency=arguments.max_concurrency, rate=rate, gap_s=0.0)
    outcome = send_load(pool, requests, load, count, injector, arguments.dataset_name)
    if not any(record.is_success for record in outcome.records):
        print("IndexError: index -1 is out of bounds for axis 0 with size 0", file=sys.stderr)
        return 1
    return _report(arguments, url, outcome, inputs, injector)


def _warm_up(arguments: argparse.Namespace, url: str, requests: list[Request]) -> int:
    """Copies of the first request, 32 output tokens at most, before the cache is flushed."""
    count = arguments.warmup_requests
    print(f"Starting warmup with {count} sequences...", flush=True)
    if count > 0:
        first = requests[0]
        copies = [
            Request(index=i, prompt=first.prompt, output_tokens=min(32, first.output_tokens), task=first.task)
            for i in range(count)
        ]
        try:
            pool = discover(url)
            trace, caches = run_load(pool, copies, Load(concurrency=arguments.max_concurrency, rate=None, gap_s=0.0), 0)
        except LoadFailed as failure:
            print(
                "ValueError: Warmup failed - Please make sure benchmark arguments are correctly specified. "
                f"Error: {failure.message}",
                file=sys.stderr,
            )
            return 1
        account(pool, trace, caches)
    print(f"Warmup completed with {count} sequences. Starting main benchmark run...", flush=True)
    return 0


def _report(
    arguments: argparse.Namespace, url: str, outcome: LoadOutcome, inputs: list[int], injector: Injector
) -> int:
    info, accept_length = _server_info(url)
    run = BenchRun(
        arguments=arguments,
        records=outcome.records,
        client_inputs=inputs,
        duration=outcome.duration + 0.002,
        server_info=info,
        accept_length=accept_length,
        splits_chunks=arguments.backend in NATIVE_BACKENDS or accept_length is not None,
    )
    line = result_line(run)
    if injector.take("summary_disagrees"):
        line["output_throughput"] = 1.0
    print(f"\n{console(run, line)}", flush=True)
    if injector.take("client_summary_fails"):
        print("PermissionError: [Errno 13] Permission denied: result file", file=sys.stderr)
        return 1
    _append(output_file(arguments), line, injector)
    if injector.take("client_hangs_after_finish"):
        time.sleep(3600)
    return 0


def _server_info(url: str) -> tuple[Any, float | None]:
    """Through a router this is always null: it answers 404."""
    status, info = call(f"{url}/server_info")
    if status != 200:
        return None, None
    length = info["internal_states"][0].get("avg_spec_accept_length")
    return info, None if length is None else float(length)


def _append(path: Path, line: dict[str, Any], injector: Injector) -> None:
    text = json.dumps(line) + "\n"
    stale = injector.take("stale_result_in_place")
    if stale:
        return
    truncated = injector.take("details_truncated")
    if injector.take("double_result"):
        text += text
    with path.open("a", encoding="utf-8") as file:
        file.write(text[: len(text) * 2 // 3] if truncated else text)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main(sys.argv[1:]))
