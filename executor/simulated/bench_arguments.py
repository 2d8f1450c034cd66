"""The command line of sglang.bench_serving 0.5.23, as far as it means something to the simulated client."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

_INT_OPTIONS: dict[str, int | None] = {
    "dataset-offset": 0,
    "num-prompts": 1000,
    "sharegpt-output-len": None,
    "sharegpt-context-len": None,
    "random-input-len": 1024,
    "random-output-len": 1024,
    "max-concurrency": None,
    "warmup-requests": 1,
    "seed": 42,
    "ready-check-timeout-sec": 60,
    "gsp-num-groups": 64,
    "gsp-prompts-per-group": 16,
    "gsp-system-prompt-len": 2048,
    "gsp-question-len": 128,
    "gsp-output-len": 256,
    "gsp-num-turns": 1,
    "rust-worker-threads": None,
    "profile-num-steps": None,
}
_FLOAT_OPTIONS: dict[str, float] = {
    "random-range-ratio": 0.0,
    "request-rate": float("inf"),
    "flush-cache-timeout": 60.0,
    "gsp-range-ratio": 1.0,
    "temperature": 0.0,
    "top-p": 1.0,
}
_SWITCHES = (
    "output-details",
    "cache-report",
    "flush-cache",
    "disable-tqdm",
    "disable-stream",
    "disable-ignore-eos",
    "return-logprob",
    "apply-chat-template",
    "profile",
    "pd-separated",
    "tokenize-prompt",
    "gsp-fast-prepare",
    "gsp-send-routing-key",
    "gsp-ordered",
    "fake-prefill",
    "plot-throughput",
    "print-requests",
)
_TEXT_OPTIONS = (
    "base-url",
    "dataset-path",
    "model",
    "served-model-name",
    "tokenizer",
    "output-file",
    "tag",
    "prompt-suffix",
)
DEFAULT_PORTS = {"sglang": 30000, "sglang-native": 30000, "sglang-oai": 30000, "sglang-oai-chat": 30000}
CHAT_BACKENDS = ("sglang-oai-chat", "vllm-chat", "lmdeploy-chat")
NATIVE_BACKENDS = ("sglang", "sglang-native")
_OTHER_BACKENDS = ("sglang-oai", "vllm", "lmdeploy")
DATASETS = (
    "sharegpt",
    "custom",
    "openai",
    "random",
    "random-ids",
    "generated-shared-prefix",
    "mooncake",
    "longbench_v2",
)


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_serving.py")
    backends = (*NATIVE_BACKENDS, *_OTHER_BACKENDS, *CHAT_BACKENDS)
    parser.add_argument("--backend", choices=backends, default="sglang")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - the real client's default
    parser.add_argument("--port", type=int)
    parser.add_argument("--dataset-name", choices=DATASETS, default="sharegpt")
    for name in _TEXT_OPTIONS:
        parser.add_argument(f"--{name}", default="" if name in ("dataset-path", "prompt-suffix") else None)
    for name, number in _INT_OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    for name, value in _FLOAT_OPTIONS.items():
        parser.add_argument(f"--{name}", type=float, default=value)
    for name in _SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--goodput", nargs="+")
    parser.add_argument("--header", nargs="+")
    parser.add_argument("--extra-request-body", type=json.loads)
    parser.add_argument("--gsp-group-distribution", choices=("uniform", "zipf"), default="uniform")
    return parser.parse_args(argv)


def base_url(arguments: argparse.Namespace) -> str:
    """Where the load goes."""
    if arguments.base_url:
        return str(arguments.base_url).rstrip("/")
    host = "127.0.0.1" if arguments.host == "0.0.0.0" else arguments.host  # noqa: S104
    return f"http://{host}:{arguments.port or DEFAULT_PORTS.get(arguments.backend, 8000)}"


def output_file(arguments: argparse.Namespace) -> Path:
    if arguments.output_file:
        return Path(arguments.output_file)
    lengths = f"{arguments.random_input_len}_{arguments.random_output_len}"
    return Path(f"{arguments.backend}_{arguments.num_prompts}_{lengths}.jsonl")
