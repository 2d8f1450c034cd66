"""`python -m executor.simulated.engine_checks arguments WORDS…` and `… admission QUESTION`: the answers of the
simulated engine to the two host-side questions, in the form of `executor/engines/on_host`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections import deque
from typing import Any

from executor.simulated.arguments import build_parser
from executor.simulated.model.admission import AdmissionRule, Pending, compose, is_gated_release
from executor.simulated.server import DEFAULT_VERSION, VERSION_VARIABLE

FIRST = 8


def answer_arguments(words: list[str], version: str) -> dict[str, Any]:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            build_parser(version).parse_args(words)
    except (SystemExit, argparse.ArgumentError):
        said = complaint.getvalue().strip().splitlines()
        return {"release": version, "accepted": False, "error": said[-1].partition("error: ")[2] if said else ""}
    return {"release": version, "source": "simulated", "accepted": True, "deprecated": [], "ignored": []}


def answer_admission(question: dict[str, Any], version: str) -> dict[str, Any]:
    return {
        "release": f"{version}, simulated",
        "counts": [_count(question, variant, version) for variant in question["variants"]],
    }


def _count(question: dict[str, Any], variant: dict[str, Any], version: str) -> dict[str, Any]:
    rule = AdmissionRule(
        chunk=variant["chunk"],
        page=variant["page"],
        cap=variant["cap"],
        max_prefill_tokens=variant["max_prefill_tokens"],
        gate=variant["radix_cache"] and is_gated_release(version),
    )
    cached = question["cached_tokens"]
    remaining = question["prompt_tokens"] - cached
    queue = deque(Pending(i, remaining, cached) for i in range(question["requests"]))
    batches: list[list[int]] = []
    chunked: Pending | None = None
    while queue or chunked is not None:
        pieces, chunked = compose(rule, chunked, queue, lambda _: True)
        batches.append([piece.tokens for piece in pieces])
    return {"batches": len(batches), "tokens": sum(map(sum, batches)), "first": batches[:FIRST]}


def main(arguments: list[str]) -> int:
    version = os.environ.get(VERSION_VARIABLE, DEFAULT_VERSION)
    kind, *words = arguments
    answer = (
        answer_arguments(words, version) if kind == "arguments" else answer_admission(json.loads(words[0]), version)
    )
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
