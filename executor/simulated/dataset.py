"""The dataset program of a simulated pool: the same contract as the real one, for the simulated tokenizer.

Long texts are stand-ins (`<|seg:KEY:N|>` is N tokens of a text named KEY), so that 640 prompts of 131072 tokens are a
small file. Keys of different requests differ, so nothing is shared that the specification does not say.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from executor.simulated.tokens import BLOCK

INSTRUCTION = {"copy": "Copy the following text word for word:", "ordinary": "Answer the question about this text:"}


def main() -> int:
    """Write every part and then the manifest, each by rename."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    spec = json.loads(arguments.spec.read_text())
    counts = {
        "measure": spec["requests"],
        "warm_up": spec["warm_up_requests"],
        "seed": spec["seed_requests"],
        "check": spec["check_requests"],
    }
    parts: dict[str, Any] = {}
    for part, count in counts.items():
        if count:
            parts[part] = _write_part(arguments.out / f"{part}.jsonl", _rows(spec, part, count))
            print(f"{part}: {count}/{count} rows", flush=True)
    _replace(arguments.out / "manifest.json", json.dumps({"simulated": True, "parts": parts}, indent=1))
    return 0


def _write_part(path: Path, rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    _replace(path, text)
    return {"path": str(path), "sha256": hashlib.sha256(text.encode()).hexdigest(), "rows": text.count("\n")}


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _rows(spec: dict[str, Any], part: str, count: int) -> Iterable[dict[str, Any]]:
    for index in range(count):
        yield {"question": _question(spec, part, index), "answer": "", "max_out_len": spec["output_tokens"]}


def _question(spec: dict[str, Any], part: str, index: int) -> str:
    """Exactly `body_tokens` tokens: the shared prefix of its group if there is one, then a text of its own."""
    instruction = INSTRUCTION[spec["task"]]
    words = len(instruction.split())
    prefix = _prefix_tokens(spec)
    own = spec["body_tokens"] - words - prefix
    key = f"{spec['seed']}-{part}-{index}"
    if not prefix or part == "warm_up":
        return f"{instruction} <|seg:{key}:{own + prefix}|>"
    group = _group(spec, part, index)
    return f"<|seg:{spec['seed']}-group-{group}:{prefix}|> {instruction} <|seg:{key}:{own}|>"


def _group(spec: dict[str, Any], part: str, index: int) -> int:
    """Seeds and checks visit the groups in turn; the measured rows of AISBench in shuffled order, equally often each.

    The 128K record was made with AISBench and a prefix per rank: in turn, every rank would get its next request like
    a clock. The mixed record, made with bench_serving, had one prefix on all ranks, which took turns.
    """
    groups: int = max(spec["seed_requests"], 1)
    if part != "measure" or spec.get("client") == "bench_serving":
        return index % groups
    return _order(groups, spec["requests"], spec["seed"])[index]


@cache
def _order(groups: int, count: int, seed: int) -> list[int]:
    order = [index % groups for index in range(count)]
    random.Random(f"{seed}/group order").shuffle(order)
    return order


def _prefix_tokens(spec: dict[str, Any]) -> int:
    """The shared prefix in whole pages; the least that the scenario's share asks for, where no length is given."""
    if spec["prefix_tokens"]:
        return int(spec["prefix_tokens"])
    share = spec["per_request_min"]
    if not share:
        return 0
    pages = -(-int(share * spec["encoded_tokens"]) // BLOCK) + 1
    return int(pages * BLOCK)


if __name__ == "__main__":
    sys.exit(main())
