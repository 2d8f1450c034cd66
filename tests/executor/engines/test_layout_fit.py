"""From recorded expert loads to a layout: the on-host program, and the reading of what it says."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.layout_fit import FitRefused, Fitted, parse_fit
from executor.engines.on_host import fit_expert_layout
from executor.engines.on_host.fit_expert_layout import answer, balancedness, fit, fit_layer, replicas_of, trivial

LAB = Path(os.environ.get("TUNELOOP_LAB", Path.home() / ".cache" / "tuneloop-lab"))
LOADS = [[8.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 8.0]]


def fitted(
    folder: Path, counts: Any, *words: str, name: str = "dump.json", sha256: str | None = None
) -> dict[str, Any]:
    path = folder / name
    path.write_text(json.dumps({"rank": 0, "logical_count": counts}))
    known = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    return answer(["--dump", str(path), "--sha256", known, "--out", str(folder / "layout.json"), *words])


def layout(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "layout.json").read_text())
    return found


def test_a_heavy_expert_gets_the_redundant_slots(tmp_path: Path) -> None:
    """Two ranks of three slots: the heavy one is copied twice, and both ranks hold a copy."""
    said = fitted(tmp_path, LOADS, "--ranks", "2", "--redundant", "2")
    assert (said["layers"], said["experts"], said["slots"], said["tokens"]) == (2, 4, 6, 22)
    first, second = layout(tmp_path)["physical_to_logical_map"]
    assert first.count(0) == 3
    assert second.count(3) == 3
    assert all(0 in rank for rank in (first[:3], first[3:]))
    assert said["after"] > said["before"]


def test_the_engine_gets_the_map_and_no_other_key(tmp_path: Path) -> None:
    """Its loader takes every key as an argument; one it does not know ends the launch."""
    said = fitted(tmp_path, LOADS, "--ranks", "2")
    assert set(layout(tmp_path)) == {"physical_to_logical_map"}
    assert said["sha256"] == hashlib.sha256((tmp_path / "layout.json").read_bytes()).hexdigest()


def test_the_same_dump_gives_the_same_bytes(tmp_path: Path) -> None:
    """Ties are settled by numbers, never by chance."""
    even = [[5.0] * 16] * 3
    assert fitted(tmp_path, even, "--ranks", "4", "--redundant", "4") == fitted(
        tmp_path, even, "--ranks", "4", "--redundant", "4"
    )


def test_steps_are_added_up(tmp_path: Path) -> None:
    """The engine's recorder dumps step by step; the sum decides."""
    one = fitted(tmp_path, [[[1.0, 5.0]], [[7.0, 1.0]]], "--ranks", "2")
    assert (one["layers"], one["experts"], one["tokens"]) == (1, 2, 14)


def test_a_layer_without_experts_keeps_the_engines_placement(tmp_path: Path) -> None:
    """The first layers of the model are dense: nothing is counted there, and nothing predicted from them."""
    said = fitted(tmp_path, [[0.0] * 4, LOADS[0]], "--ranks", "2", "--redundant", "2")
    assert layout(tmp_path)["physical_to_logical_map"][0] == [0, 1, 2, 3, 0, 1]
    assert said["after"] == round(balancedness(layout(tmp_path)["physical_to_logical_map"][1], LOADS[0], 2), 4)


@pytest.mark.parametrize(
    ("counts", "words", "message"),
    [
        (LOADS, ("--ranks", "3"), "4 experts + 0 redundant = 4, not a multiple of 3 ranks"),
        (LOADS, ("--ranks", "0"), "not a multiple of 0 ranks"),
        ([[0.0] * 4], ("--ranks", "2"), "the recorder counted no tokens"),
        (None, ("--ranks", "2"), "the dump holds no logical_count"),
        ([], ("--ranks", "2"), "the dump holds no logical_count"),
        ([[[1.0, 2.0]], [[1.0]]], ("--ranks", "1"), "the layers of logical_count differ in length"),
    ],
)
def test_what_cannot_be_fitted_is_refused(tmp_path: Path, counts: Any, words: tuple[str, ...], message: str) -> None:
    """With a reason, and without a file."""
    said = fitted(tmp_path, counts, *words)
    assert (said["refused"], message in said["error"]) == (True, True)
    assert not (tmp_path / "layout.json").exists()


def test_another_file_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    """The dump is known by its hash."""
    assert fitted(tmp_path, LOADS, "--ranks", "2", sha256="0" * 64)["error"] == "dump.json is not the recorded file"


def test_a_dump_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    """Half a file, or a torch file where there is no torch: not refused, so it may be tried again."""
    path = tmp_path / "half.json"
    path.write_text('{"logical_count": [[1')
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    said = answer(["--dump", str(path), "--sha256", digest, "--out", str(tmp_path / "x"), "--ranks", "1"])
    assert (said["refused"], said["error"].split(":")[0]) == (False, "JSONDecodeError")


def test_a_dump_of_the_real_recorder_is_read_with_its_own_torch(tmp_path: Path) -> None:
    """The engine of the lab writes a `.pt` in the shape of its recorder; the program reads it in that installation."""
    python = LAB / "engine" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no engine is installed in {LAB}; `make lab` installs one")
    write = "import sys, torch; torch.save({'rank': 0, 'logical_count': torch.tensor(%r), "
    write += "'average_utilization_rate_over_window': None}, sys.argv[1])"
    path = tmp_path / "expert_distribution_recorder_1.5.pt"
    counts = [[[4, 0, 1, 1], [0, 1, 0, 4]], [[4, 1, 0, 0], [1, 0, 1, 4]]]
    subprocess.run([python, "-W", "ignore", "-c", write % counts, path], check=True, timeout=120)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    words = ["--dump", path, "--sha256", digest, "--out", tmp_path / "layout.json", "--ranks", "2", "--redundant", "2"]
    program = [python, "-W", "ignore", fit_expert_layout.__file__, *words]
    done = subprocess.run(program, check=True, capture_output=True, text=True, timeout=120)
    said = parse_fit(done.stdout)
    assert isinstance(said, Fitted)
    assert (said.layers, said.experts, said.slots, said.tokens) == (2, 4, 6, 22)
    assert said.sha256 == hashlib.sha256((tmp_path / "layout.json").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("output", "message", "refused"),
    [
        ("", "the program gave no answer", False),
        ("Traceback\nKilled", "the program gave no answer", False),
        ('{"error": "no", "refused": true}', "no", True),
        ('{"error": "OSError: /x/y/z", "refused": false}', "OSError: <path>", False),
        ('{"sha256": "abc"}', "sha256: String should match pattern '^[0-9a-f]{64}$'", False),
    ],
)
def test_no_layout_has_its_reason(output: str, message: str, refused: bool) -> None:
    """Untrusted words become one redacted sentence."""
    assert parse_fit(output) == FitRefused(message=message, refused=refused)


loads = st.lists(st.integers(0, 1000), min_size=8, max_size=8)


@settings(deadline=None)
@given(loads, st.sampled_from([0, 4, 8]), st.sampled_from([1, 2, 4]))
def test_every_expert_has_a_slot_and_every_rank_is_full(counts: list[int], redundant: int, ranks: int) -> None:
    """No layout loses an expert, whatever was counted; its copies are as many as were asked for."""
    placement = fit_layer([float(n) for n in counts], ranks, redundant)
    assert len(placement) == 8 + redundant
    assert set(placement) == set(range(8))
    assert [placement.count(expert) for expert in range(8)] == replicas_of([float(n) for n in counts], redundant)


@settings(deadline=None)
@given(loads, st.sampled_from([0, 8]))
def test_a_fitted_layer_is_near_the_best_or_better_than_the_engines(counts: list[int], redundant: int) -> None:
    """Heaviest first onto the least loaded is within 4/3 of the best spread where slots are free; never far behind."""
    if not any(counts):
        return
    row = [float(n) for n in counts]
    _, before, after = fit([row], 2, redundant)
    assert before == balancedness(trivial(8, 8 + redundant), row, 2)
    assert after >= min(before, 0.75) - 1e-9
