"""`python -m tests.bench.fuzz --kills N --out FILE`: kill -9 of the service at random instants, and what came of it.

Exit code 1 if a formal load was sent twice, a result was lost, or an invariant is violated.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.killing import Tally, cold_start_s, in_lanes

TUNELOOP = str(Path(sys.executable).with_name("tuneloop"))
COLD_STARTS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--lanes", type=int, default=2, help="studies at once, each on a pool of its own")
    parser.add_argument("--seed", type=int, default=None, help="of the instants; a series can be repeated by it")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1 << 31)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tuneloop-fuzz-") as folder:
        tally = in_lanes(Path(folder), arguments.kills, seed, arguments.lanes)
        cold = sorted(cold_start_s(TUNELOOP) for _ in range(COLD_STARTS))
    figures = figures_of(tally, seed, cold[len(cold) // 2], time.monotonic() - began)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 1 if tally.duplicated or tally.lost or tally.violations else 0


def figures_of(tally: Tally, seed: int, cold_s: float, took_s: float) -> dict[str, object]:
    """The services are forked from a process that has imported the product; what that saves is added again."""
    return {
        "kills": tally.kills,
        "duplicated": tally.duplicated,
        "lost": tally.lost,
        "resumed_p95_s": round(tally.resumed_at(0.95) + cold_s, 2),
        "resumed_max_s": round(tally.resumed_at(1.0) + cold_s, 2),
        "resumed_of_which_imports_s": round(cold_s, 2),
        "resumed_count": len(tally.resumed_s),
        "studies": tally.studies,
        "trials": tally.trials,
        "losses": tally.losses,
        "violations": tally.violations,
        "seed": seed,
        "took_s": round(took_s, 1),
        "machine_load": round(os.getloadavg()[0], 1),
        "simulated_pool": True,
    }


if __name__ == "__main__":
    sys.exit(main())
