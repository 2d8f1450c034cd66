"""The datasets of sglang.bench_serving as requests of the model. Lengths follow the client's own rules."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from executor.simulated.aisbench_config import read_side_file
from executor.simulated.bench_arguments import CHAT_BACKENDS
from executor.simulated.model.workload import Request, Segment
from executor.simulated.tokens import segment_prompts, task_of, wrap_chat

# Token ids decoded to text and encoded again are more tokens than before: field record 000 sent 31900 and got 32597.
REENCODED = 32597 / 31900


class DatasetError(Exception):
    """The dataset cannot be read; the message is for the console."""


def build_requests(arguments: argparse.Namespace, overhead: int, shared_heads: frozenset[str]) -> list[Request]:
    """The requests of the run, in dataset order."""
    match arguments.dataset_name:
        case "random-ids" | "random":
            prompts = _random(arguments)
        case "generated-shared-prefix":
            prompts = _shared_prefix(arguments)
        case "custom" | "openai":
            return _custom(arguments, overhead, shared_heads)
        case name:
            raise DatasetError(f"dataset {name} needs a download, which the simulated client does not do")
    return [Request(index=i, prompt=prompt, output_tokens=tokens) for i, (prompt, tokens) in enumerate(prompts)]


Prompt = tuple[tuple[Segment, ...], int]


def _lengths(rng: np.random.Generator, length: int, ratio: float, count: int) -> list[int]:
    low = max(1, int(length * ratio))
    return [int(value) for value in rng.integers(low, length + 1, size=count)]


def _random(arguments: argparse.Namespace) -> list[Prompt]:
    rng = np.random.default_rng(arguments.seed)
    count, ratio = arguments.num_prompts, arguments.random_range_ratio
    inputs = _lengths(rng, arguments.random_input_len, ratio, count)
    outputs = _lengths(rng, arguments.random_output_len, ratio, count)
    # The same seed sends the same prompts again: a second run without a flush hits the cache of the first.
    names = [f"random-{arguments.seed}-{number}" for number in range(count)]
    grown = 1.0 if arguments.tokenize_prompt else REENCODED
    return [
        ((Segment(name, round(tokens * grown)),), output)
        for name, tokens, output in zip(names, inputs, outputs, strict=True)
    ]


def _shared_prefix(arguments: argparse.Namespace) -> list[Prompt]:
    rng = np.random.default_rng(arguments.seed)
    grown = 1.0 if arguments.tokenize_prompt else REENCODED
    system, question = arguments.gsp_system_prompt_len * grown, arguments.gsp_question_len * grown
    prompts: list[Prompt] = []
    for group in range(arguments.gsp_num_groups):
        name = f"gsp-{arguments.seed}-{group}"
        for number in range(arguments.gsp_prompts_per_group):
            segments = (Segment(name, round(system)), Segment(f"{name}-{number}", round(question)))
            prompts.append((segments, arguments.gsp_output_len))
    if not arguments.gsp_ordered:
        prompts = [prompts[int(place)] for place in rng.permutation(len(prompts))]
    return prompts


def _custom(arguments: argparse.Namespace, overhead: int, shared_heads: frozenset[str]) -> list[Request]:
    rows = _rows(Path(arguments.dataset_path), arguments.num_prompts)
    texts = [_question(row) for row in rows]
    side = read_side_file(Path(arguments.dataset_path))
    listed = side.get("segments")
    if listed is not None:
        prompts = [tuple(Segment(str(key), int(tokens)) for key, tokens in row) for row in listed[: len(rows)]]
    else:
        prompts = segment_prompts(texts, shared_heads)
    if arguments.backend in CHAT_BACKENDS:
        prompts = [wrap_chat(prompt, overhead) for prompt in prompts]
    return [
        Request(
            index=index,
            prompt=prompt,
            output_tokens=int(arguments.sharegpt_output_len or row.get("max_out_len") or row.get("output_len") or 256),
            task=str(side.get("task") or task_of(text)),
        )
        for index, (row, text, prompt) in enumerate(zip(rows, texts, prompts, strict=True))
    ]


def _rows(path: Path, limit: int) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()][:limit]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: {error}") from error


def _question(row: Mapping[str, Any]) -> str:
    """The first human turn: ShareGPT-like `conversations`, a `messages` list, or a plain `question` or `prompt`."""
    for key in ("conversations", "conversation", "messages"):
        turns = row.get(key)
        if turns:
            return str(turns[0].get("content", turns[0].get("value", "")))
    return str(row.get("question", row.get("prompt", "")))
