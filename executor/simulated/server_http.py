"""The HTTP surface of the simulated server: the endpoints of reference/sglang.md §3, and `/_simulated/*`."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from executor.simulated.http_json import JsonHandler
from executor.simulated.model.workload import Segment
from executor.simulated.server_report import loads, metrics, model_info, server_info
from executor.simulated.server_state import Load, ServerState
from executor.simulated.tokens import split_blocks, wrap_chat

QUIET = ("/metrics", "/_simulated/state")


class ServerHandler(JsonHandler):
    """`state` is set on a subclass by `handler_for`."""

    state: ServerState

    def route(self, method: str) -> None:
        if "healthy_then_hangs" in self.state.behaviours and self.target != "/health":
            time.sleep(3600)
        action = _ROUTES.get(self.target)
        if action is None:
            self.answer(404, {"detail": "Not Found"})
        else:
            action(self)

    def answer(self, status: int, content: object, content_type: str = "application/json") -> None:
        if not self.target.startswith("/_simulated"):
            phrase = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}.get(status, "")
            client = f"{self.client_address[0]}:{self.client_address[1]}"
            self.state.log(f'INFO:     {client} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}'.rstrip())
        super().answer(status, content, content_type)

    def health(self) -> None:
        state = self.state
        is_sick = "unhealthy_when_busy" in state.behaviours and state.busy_since is not None
        self.answer_text(200 if state.phase == "ready" and not is_sick else 503)

    def report(self, build: Callable[[ServerState], Any]) -> None:
        with self.state.lock:
            content = build(self.state)
        self.answer(200, content)

    def metrics(self) -> None:
        if not self.state.effective.arguments["enable_metrics"]:
            self.answer(404, {"detail": "Not Found"})
            return
        with self.state.lock:
            text = metrics(self.state)
        self.answer_text(200, text)

    def models(self) -> None:
        name = self.state.effective.arguments["served_model_name"]
        self.answer(200, {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "sglang"}]})

    def flush_cache(self) -> None:
        if self.state.flush():
            self.state.log("Cache flushed successfully!")
            self.answer_text(
                200,
                "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting "
                "requests, the operation will not be performed.)\n",
            )
            return
        self.state.log("Cache not flushed because there are pending requests. #queue-req: 1, #running-req: 1")
        self.answer_text(400, "Flush cache failed.\n")

    def record_experts(self, on: bool) -> None:
        if self.state.record_experts(on):
            self.answer_text(200, f"{'Start' if on else 'Stop'} recording expert distribution.\n")
        else:
            self.answer_text(400, "Please set ServerArgs.expert_distribution_recorder_mode to enable it.\n")

    def dump_experts(self) -> None:
        path = self.state.dump_experts()
        if path is None:
            self.answer_text(400, "Please set ServerArgs.expert_distribution_recorder_mode to enable it.\n")
            return
        self.state.log(f"Write expert distribution to {path}")
        self.answer_text(200, "Dump expert distribution record.\n")

    def start_profile(self) -> None:
        if "profile_refused" in self.state.behaviours:
            self.answer_text(500, "Internal Server Error")
            return
        body = self.body() or {}
        folder = body.get("output_dir") or self.state.environment.get("SGLANG_TORCH_PROFILER_DIR", "/tmp")  # noqa: S108
        self.state.start_profile(str(folder), body.get("num_steps"))
        self.answer_text(200, "Start profiling.\n")

    def stop_profile(self) -> None:
        if self.state.stop_profile():
            self.answer_text(200, "Stop profiling. This will take some time.\n")
        else:
            self.answer_text(500, "Internal Server Error")

    def generate(self) -> None:
        body = self.body() or {}
        text = body.get("text")
        ids = body.get("input_ids") or []
        prompt = tuple(split_blocks(text)) if isinstance(text, str) else (Segment(f"ids{hash(tuple(ids))}", len(ids)),)
        tokens = int((body.get("sampling_params") or {}).get("max_new_tokens") or 128)
        served = self._serve(prompt, tokens, body)
        if served is None:
            return
        identity, cached, words = served
        meta = {
            "id": identity,
            "finish_reason": {"type": "length", "length": tokens},
            "prompt_tokens": sum(segment.tokens for segment in prompt),
            "completion_tokens": tokens,
            "cached_tokens": cached,
            "weight_version": "default",
        }
        if body.get("stream"):
            self.answer_events([{"text": words, "meta_info": meta}])
        else:
            self.answer(200, {"text": words, "meta_info": meta})

    def chat(self) -> None:
        body = self.body() or {}
        text = " ".join(str(message.get("content", "")) for message in body.get("messages") or [])
        prompt = wrap_chat(split_blocks(text), self.state.calibration.chat_overhead_tokens)
        tokens = int(body.get("max_completion_tokens") or body.get("max_tokens") or 128)
        served = self._serve(prompt, tokens, body)
        if served is None:
            return
        identity, cached, words = served
        count = sum(segment.tokens for segment in prompt)
        usage = {
            "prompt_tokens": count,
            "completion_tokens": tokens,
            "total_tokens": count + tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        base = {"id": identity, "created": int(time.time()), "model": body.get("model") or "default"}
        if not body.get("stream"):
            message = {"role": "assistant", "content": words, "reasoning_content": None, "tool_calls": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}
            self.answer(200, {**base, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        delta = {"role": "assistant", "content": words}
        self.answer_events(
            [
                {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
                {**chunk, "choices": [], "usage": usage},
            ]
        )

    def _serve(self, prompt: tuple[Segment, ...], tokens: int, body: dict[str, Any]) -> tuple[str, int, str] | None:
        """Run one request through this engine; None when it was refused (and answered)."""
        state = self.state
        if state.phase != "ready" or state.is_due("healthy_before_warm", 3):
            self.answer_text(503)
            return None
        if "hangs_after_requests" in state.behaviours and not state.is_due("hangs_after_requests", 2):
            time.sleep(3600)
        mode = state.effective.mode
        if mode != "null" and body.get("bootstrap_room") is None:
            message = "Disaggregated request received without bootstrap room id."
            self.answer(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})
            return None
        cached = int(body.get("_simulated_cached_tokens") or 0)
        if mode != "decode":
            pinned = body.get("data_parallel_rank", body.get("routed_dp_rank"))
            cached = state.prefill_one(prompt, state.choose_rank(pinned, body.get("bootstrap_room")))
        if mode != "prefill":
            state.decode_one(sum(segment.tokens for segment in prompt), tokens)
        return secrets.token_hex(16), cached, " ".join(f"w{number % 997}" for number in range(tokens))

    def simulated_state(self) -> None:
        """What a client of the simulated pool needs to go on from: caches and counters."""
        state = self.state
        with state.lock:
            content = {
                "caches": [cache.dump() for cache in state.caches],
                "heads": sorted({head for cache in state.caches for head in cache.heads()}),
                "forwards": state.totals.forwards,
                "runs": state.totals.runs,
                "age_s": state.now() - state.started,
                "started": state.started,
            }
        self.answer(200, content)

    def simulated_begin(self) -> None:
        with self.state.lock:
            self.state.busy_since = time.time()
        self.answer(200, {"status": "ok"})

    def simulated_loads(self) -> None:
        with self.state.lock:
            self.state.loads = [Load(**row) for row in self.body()]
        self.answer(200, {"status": "ok"})

    def simulated_account(self) -> None:
        self.state.account(self.body())
        self.answer(200, {"status": "ok"})

    def simulated_die(self) -> None:
        """The engine dies now, as a real one does: the lines of the given cause, then the whole process tree."""
        cause = str((self.body() or {}).get("lines", ""))
        self.answer(200, {"status": "dying"})
        for line in cause.splitlines():
            self.state.log(line)
        self.state.log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self.state.log(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
        threading.Timer(0.02, os._exit, args=(137,)).start()


_ROUTES: dict[str, Callable[[ServerHandler], None]] = {
    "/health": ServerHandler.health,
    "/health_generate": ServerHandler.health,
    "/ready": ServerHandler.health,
    "/model_info": lambda handler: handler.report(model_info),
    "/get_model_info": lambda handler: handler.report(model_info),
    "/server_info": lambda handler: handler.report(server_info),
    "/get_server_info": lambda handler: handler.report(server_info),
    "/v1/loads": lambda handler: handler.report(loads),
    "/v1/models": ServerHandler.models,
    "/metrics": ServerHandler.metrics,
    "/flush_cache": ServerHandler.flush_cache,
    "/start_expert_distribution_record": lambda handler: handler.record_experts(True),
    "/stop_expert_distribution_record": lambda handler: handler.record_experts(False),
    "/dump_expert_distribution_record": ServerHandler.dump_experts,
    "/start_profile": ServerHandler.start_profile,
    "/stop_profile": ServerHandler.stop_profile,
    "/generate": ServerHandler.generate,
    "/v1/chat/completions": ServerHandler.chat,
    "/_simulated/state": ServerHandler.simulated_state,
    "/_simulated/begin": ServerHandler.simulated_begin,
    "/_simulated/loads": ServerHandler.simulated_loads,
    "/_simulated/account": ServerHandler.simulated_account,
    "/_simulated/die": ServerHandler.simulated_die,
}


def handler_for(state: ServerState) -> type[ServerHandler]:
    """A handler class bound to one server's state."""
    return type("BoundServerHandler", (ServerHandler,), {"state": state})
