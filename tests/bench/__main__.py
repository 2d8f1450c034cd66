"""`make bench`: every figure that the issues ask for, printed and written to one file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.agent.ledger import build_speed
from tests.bench import dashboard, decisions, hot_change, reading
from tests.executor.remote import latency

SECTIONS: dict[str, Callable[[], Any]] = {
    "hot_change": hot_change.measure,
    "remote": latency.measure,
    "parsing": reading.measure,
    "decisions": decisions.bench,
    "ledger": build_speed.measure,
    "dashboard": dashboard.measure,
}


def main() -> int:
    """Run the sections one after another, so that none disturbs another on two cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=sorted(SECTIONS), action="append")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in arguments.only or SECTIONS:
        started = time.monotonic()
        found = SECTIONS[name]()
        # The issue names the figures of the decisions at the top of the file.
        figures |= found if name == "decisions" else {name: found}
        print(f"{name} ({time.monotonic() - started:.0f} s)\n{json.dumps(found, indent=1)}", flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
