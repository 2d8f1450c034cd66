"""`python -m executor.simulated.router --pd-disaggregation --prefill URL [PORT] --decode URL --host H --port P`.

Looks like sglang-router in front of one or more simulated servers: health, worker list, broadcast flush, and both
halves of a request. It has no /server_info, as the real one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from executor.simulated.faults import Injector
from executor.simulated.http_json import JsonHandler, Server, call


@dataclass(frozen=True, kw_only=True)
class Worker:
    url: str
    kind: str  # "prefill", "decode", "regular"
    bootstrap_port: int | None = None


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="launch_router.py")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--pd-disaggregation", action="store_true")
    parser.add_argument("--prefill", nargs="+", action="append", default=[])
    parser.add_argument("--decode", nargs=1, action="append", default=[])
    parser.add_argument("--worker-urls", nargs="*", default=[])
    policies = ["random", "round_robin", "cache_aware", "power_of_two", "manual", "bucket"]
    parser.add_argument("--policy", choices=policies, default="cache_aware")
    parser.add_argument("--prefill-policy", choices=policies)
    parser.add_argument("--decode-policy", choices=policies)
    parser.add_argument("--dp-aware", action="store_true")
    parser.add_argument("--mini-lb", action="store_true")
    parser.add_argument("--disable-retries", action="store_true")
    parser.add_argument("--disable-circuit-breaker", action="store_true")
    for name in ("--log-level", "--log-dir", "--prometheus-host", "--model-path", "--tokenizer-path", "--api-key"):
        parser.add_argument(name)
    for name in (
        "--prometheus-port",
        "--worker-startup-timeout-secs",
        "--worker-startup-check-interval",
        "--request-timeout-secs",
        "--retry-max-retries",
        "--max-concurrent-requests",
        "--queue-size",
        "--health-check-interval-secs",
        "--health-failure-threshold",
    ):
        parser.add_argument(name, type=int)
    return parser.parse_args(argv)


def workers_of(arguments: argparse.Namespace) -> list[Worker]:
    """The workers in the order of the command line."""
    workers = [Worker(url=url, kind="regular") for url in arguments.worker_urls]
    for url, *port in arguments.prefill:
        bootstrap = int(port[0]) if port and port[0] != "none" else None
        workers.append(Worker(url=url, kind="prefill", bootstrap_port=bootstrap))
    return [*workers, *(Worker(url=url[0], kind="decode") for url in arguments.decode)]


class RouterState:
    """Workers and the choices of the router."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.workers = workers_of(arguments)
        self.healthy: set[str] = set()
        self._random = random.Random(arguments.port)
        self._turn = 0
        self._lock = threading.Lock()

    def wait_for_workers(self) -> None:
        """Admit each worker once its /health says 200; later deaths go unnoticed for a long while, as in reality."""
        while len(self.healthy) < len(self.workers):
            for worker in self.workers:
                if worker.url not in self.healthy and _is_healthy(worker.url):
                    self.healthy.add(worker.url)
            time.sleep(0.05)

    @property
    def is_ready(self) -> bool:
        return bool(self.workers) and len(self.healthy) == len(self.workers)

    def of_kind(self, kind: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.kind == kind]

    def room(self) -> int:
        """A bootstrap room. The real router draws it; here it counts up unless the policy is random, so that ranks
        take turns and as many seed requests as ranks reach every cache."""
        with self._lock:
            self._turn += 1
            policy = self.arguments.prefill_policy or self.arguments.policy
            return self._random.getrandbits(62) if policy == "random" else self._turn - 1


def _is_healthy(url: str) -> bool:
    try:
        return call(f"{url}/health", timeout=5)[0] == 200
    except OSError:
        return False


class RouterHandler(JsonHandler):
    state: RouterState

    def route(self, method: str) -> None:
        match self.target:
            case "/health" | "/liveness":
                self.answer_text(200, "OK")
            case "/readiness":
                self.readiness()
            case "/workers":
                self.workers()
            case "/v1/models":
                self.models()
            case "/flush_cache" if method == "POST":
                self.flush_cache()
            case "/generate" | "/v1/chat/completions" if method == "POST":
                self.forward()
            case _:
                self.answer_text(404)

    def readiness(self) -> None:
        state = self.state
        if not state.is_ready:
            self.answer(503, {"status": "not ready", "reason": "insufficient healthy workers"})
            return
        counts = {"healthy_workers": len(state.healthy), "total_workers": len(state.workers)}
        self.answer(200, {"status": "ready", **counts})

    def workers(self) -> None:
        state = self.state
        rows = [
            {
                "id": f"{number:08d}",
                "url": worker.url,
                "worker_type": worker.kind,
                "bootstrap_port": worker.bootstrap_port,
                "is_healthy": worker.url in state.healthy,
                "load": 0,
                "connection_mode": "HTTP",
                "metadata": {"simulated": "true"},
            }
            for number, worker in enumerate(state.workers)
        ]
        counts = {kind: len(state.of_kind(kind)) for kind in ("prefill", "decode", "regular")}
        router = {
            "policy": state.arguments.policy,
            "prefill_policy": state.arguments.prefill_policy,
            "decode_policy": state.arguments.decode_policy,
            "dp_aware": state.arguments.dp_aware,
        }
        stats = {f"{kind}_count": count for kind, count in counts.items()}
        self.answer(200, {"workers": rows, "total": len(rows), "stats": stats, "simulated": router})

    def models(self) -> None:
        worker = self.state.workers[0]
        try:
            status, content = call(f"{worker.url}/v1/models")
        except OSError:
            self.answer(503, {"error": "no worker answers"})
            return
        self.answer(status, content)

    def flush_cache(self) -> None:
        failed = []
        for worker in self.state.workers:
            try:
                status, _ = call(f"{worker.url}/flush_cache", "POST")
            except OSError:
                status = 0
            if status != 200:
                failed.append(worker.url)
        count = len(self.state.workers)
        if failed:
            content = {"status": "partial_success", "message": "flush failed on some workers", "failed": failed}
            self.answer(206, content)
            return
        message = f"Successfully flushed cache on all {count} workers"
        self.answer(200, {"status": "success", "message": message, "workers_flushed": count})

    def forward(self) -> None:
        body = self.body() or {}
        if not self.state.arguments.pd_disaggregation:
            self._relay(self.state.of_kind("regular")[0], body)
            return
        if not self.state.of_kind("decode"):
            message = "No decode workers available. Please check if decode servers are configured and healthy."
            self.answer(503, {"error": {"type": "Service Unavailable", "code": "no_decode", "message": message}})
            return
        prefill, decode = self.state.of_kind("prefill")[0], self.state.of_kind("decode")[0]
        pair = dict(body)
        pair |= {
            "bootstrap_host": urlsplit(prefill.url).hostname,
            "bootstrap_port": prefill.bootstrap_port,
            "bootstrap_room": self.state.room(),
        }
        try:
            _, computed = call(prefill.url + self.path, "POST", {**pair, "stream": False})
        except OSError:
            self._bad_gateway("prefill_server_error", prefill.url)
            return
        pair["_simulated_cached_tokens"] = _cached_tokens(computed)
        self._relay(decode, pair)

    def _relay(self, worker: Worker, body: dict[str, Any]) -> None:
        kind = "decode_server_error" if worker.kind == "decode" else "server_error"
        try:
            status, content = call(worker.url + self.path, "POST", body)
        except OSError:
            self._bad_gateway(kind, worker.url)
            return
        self.answer(status, content, "text/event-stream" if isinstance(content, str) else "application/json")

    def _bad_gateway(self, code: str, url: str) -> None:
        message = f"Failed to send request to worker {url}"
        self.answer(502, {"error": {"type": "Bad Gateway", "code": code, "message": message}})


def _cached_tokens(answer: Any) -> int:
    match answer:
        case {"meta_info": {"cached_tokens": int() as cached}}:
            return cached
        case {"usage": {"prompt_tokens_details": {"cached_tokens": int() as cached}}}:
            return cached
        case _:
            return 0


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    injector = Injector("router", argv)
    if injector.take("router_exits_at_start"):
        print("Error starting router: failed to bind", flush=True)
        return 1
    state = RouterState(arguments)
    if injector.take("router_loses_decode"):
        state.workers = [worker for worker in state.workers if worker.kind != "decode"]
    handler = type("BoundRouterHandler", (RouterHandler,), {"state": state})
    server = Server((arguments.host, arguments.port), handler)
    print(f"simulated: router on {arguments.host}:{server.server_port} for {len(state.workers)} workers", flush=True)
    if not injector.take("router_never_ready"):
        threading.Thread(target=state.wait_for_workers, daemon=True).start()

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    server.serve_forever(poll_interval=0.05)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main(sys.argv[1:]))
