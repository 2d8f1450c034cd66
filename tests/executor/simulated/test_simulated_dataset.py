"""The data sets of the simulated pool have exact lengths and share exactly what their specification says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from executor.simulated.tokens import count_tokens

SPEC = {
    "task": "copy",
    "client": "aisbench",
    "body_tokens": 131_072,
    "encoded_tokens": 131_076,
    "output_tokens": 1024,
    "requests": 64,
    "warm_up_requests": 4,
    "seed_requests": 16,
    "check_requests": 16,
    "prefix_tokens": 118_784,
    "per_request_min": 0.9,
    "seed": 42,
}


def build(folder: Path, **changes: Any) -> dict[str, list[str]]:
    """The questions of every part."""
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(SPEC | changes))
    command = [sys.executable, "-m", "executor.simulated.dataset", "--spec", str(folder / "spec.json")]
    subprocess.run([*command, "--out", str(folder)], check=True, capture_output=True)
    parts = json.loads((folder / "manifest.json").read_text())["parts"]
    return {
        name: [json.loads(line)["question"] for line in Path(part["path"]).read_text().splitlines()]
        for name, part in parts.items()
    }


def group_of(question: str) -> str:
    return question.split(":")[1]


def test_every_prompt_has_exactly_the_body_tokens(tmp_path: Path) -> None:
    """All parts count 131072 tokens a row, and the file of 64 of them is small."""
    parts = build(tmp_path / "data")
    assert {count_tokens(text) for texts in parts.values() for text in texts} == {131_072}
    assert (tmp_path / "data" / "measure.jsonl").stat().st_size < 20_000


@pytest.mark.parametrize(("client", "in_turn"), [("aisbench", False), ("bench_serving", True)])
def test_groups_are_visited_equally_often(tmp_path: Path, client: str, in_turn: bool) -> None:
    """Seeds visit the groups in turn; measured rows visit each four times, shuffled for AISBench, alike each time."""
    first, again = (build(tmp_path / name, client=client) for name in "ab")
    groups = [group_of(text) for text in first["measure"]]
    assert set(Counter(groups).values()) == {4}
    assert groups == [group_of(text) for text in again["measure"]]
    turn = [group_of(text) for text in first["seed"]]
    assert len(set(turn)) == 16
    assert (groups == turn * 4) is in_turn


def test_warm_up_rows_share_nothing_with_the_measured_ones(tmp_path: Path) -> None:
    """Warming up must not fill the cache that the run is measured with."""
    parts = build(tmp_path / "data")
    assert {group_of(text) for text in parts["warm_up"]} & {group_of(text) for text in parts["measure"]} == set()
