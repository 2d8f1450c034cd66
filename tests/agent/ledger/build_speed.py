"""How long the ledger takes to build as a study grows: 100, 1,000 and 10,000 experiments.

python -m tests.agent.ledger.build_speed
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path

from agent.ledger.build import build_ledger
from experiments.study import fold
from tests.factories import a_long_study

EXPERIMENTS = (100, 1000, 10_000)


def measure() -> dict[str, object]:
    """Seconds and processor seconds of the fold and of the whole build, from nothing, with every page written."""
    with tempfile.TemporaryDirectory() as folder:
        build_ledger(a_long_study(1), Path(folder) / "warm", artifacts=None)  # imports and the font cache
        rows = [_measure_one(experiments, Path(folder) / str(experiments)) for experiments in EXPERIMENTS]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"builds": rows, "peak_mib": round(peak)}


def _measure_one(experiments: int, folder: Path) -> dict[str, object]:
    entries = a_long_study(experiments)
    folding = _timed(lambda: fold(entries))
    building = _timed(lambda: build_ledger(entries, folder, artifacts=folder / "artifacts"))
    again = _timed(lambda: build_ledger(entries, folder, artifacts=folder / "artifacts"))
    return {
        "experiments": experiments,
        "files": sum(1 for path in folder.rglob("*") if path.is_file()),
        "fold_s": folding[0],
        "build_s": building[0],
        "build_cpu_s": building[1],
        "build_again_s": again[0],
    }


def _timed(work: object) -> tuple[float, float]:
    assert callable(work)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return round(time.perf_counter() - wall, 2), round(time.process_time() - cpu, 2)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
