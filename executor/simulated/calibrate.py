"""`python -m executor.simulated.calibrate`: the model against every row of the field record → build/calibrate.json.

`--fit` chooses the parameters again from the fitted rows and rewrites the calibration files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from executor.simulated.calibrations import read_calibration
from executor.simulated.field_figures import native_figures, whole_figures
from executor.simulated.field_loads import FieldLoad, run_field_load
from executor.simulated.field_rows import LOADS, NOT_MODELLED, ROWS, Figures, Row
from executor.simulated.model.parameters import Calibration

SEEDS = tuple(range(101, 113))


def mean_figures(
    load: FieldLoad, calibration: Calibration, seeds: tuple[int, ...] = SEEDS
) -> dict[str, dict[str, float]]:
    """Figures of a load, averaged over runs with different seeds; runs without a native window are left out of it."""
    whole, native = [], []
    for seed in seeds:
        trace = run_field_load(load, calibration, seed)
        whole.append(whole_figures(trace))
        native.append(native_figures(trace, load.concurrency))
    return {"whole": _average(whole), "native": _average([figures for figures in native if figures])}


def _average(figures: list[dict[str, float]]) -> dict[str, float]:
    names = figures[0] if figures else {}
    return {name: float(np.mean([item[name] for item in figures])) for name in names}


def quiet_of(calibration: Calibration) -> Calibration:
    """Without the factors that differ between runs: a prediction is the middle of the noise."""
    return replace(calibration, noise=replace(calibration.noise, run_sigma=0.0, step_sigma=0.0))


def predict_all(seeds: tuple[int, ...] = SEEDS) -> dict[str, Figures]:
    """Every load of the record on the model."""
    flash, pro = quiet_of(read_calibration("flash")), quiet_of(read_calibration("pro"))
    return {
        name: mean_figures(load, pro if load.mixed_prompt is not None else flash, seeds) for name, load in LOADS.items()
    }


def judge(row: Row, runs: Mapping[str, Figures]) -> dict[str, Any]:
    """One row of build/calibrate.json. `error` is in per cent of the record; for a change it is in points."""
    predicted = row.predict(runs)
    error = predicted - row.record if row.is_change else 100.0 * (predicted / row.record - 1.0)
    return {
        "row": row.name,
        "record": row.record,
        "predicted": round(predicted, 4),
        "error": round(error, 3),
        "error_unit": "points" if row.is_change else "%",
        "held_out": not row.fitted,
        "direction_right": predicted * row.record > 0 if row.is_change else None,
        "within_limit": None if row.limit is None else abs(error) <= row.limit,
        "note": row.note,
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/serving-model.md."""
    lines = ["| row | record | predicted | error | |", "|---|---|---|---|---|"]
    for row in rows:
        kind = "held out" if row["held_out"] else "fitted"
        outside = "" if row["within_limit"] in (None, True) else ", **outside its limit**"
        wrong = "" if row["direction_right"] in (None, True) else ", **wrong direction**"
        unit = "%" if row["error_unit"] == "%" else " points"
        note = f"; {row['note']}" if row["note"] else ""
        lines.append(
            f"| {row['row']} | {row['record']:g} | {row['predicted']:.4g} | {row['error']:+.2f}{unit} "
            f"| {kind}{outside}{wrong}{note} |"
        )
    lines += [f"| {name} | — | not modelled | — | {why} |" for name, why in NOT_MODELLED.items()]
    return "\n".join(lines)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    held_out = [row for row in rows if row["held_out"]]
    return {
        "simulated": True,
        "rows": rows,
        "not_modelled": NOT_MODELLED,
        "held_out": len(held_out),
        "outside_limit": [row["row"] for row in rows if row["within_limit"] is False],
        "wrong_direction": [row["row"] for row in held_out if row["direction_right"] is False],
        "runs_per_row": len(SEEDS),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="calibrate", description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/calibrate.json"))
    arguments = parser.parse_args(argv)
    if arguments.fit:
        from executor.simulated.fitting import fit_all

        fit_all()
    runs = predict_all()
    rows = [judge(row, runs) for row in ROWS]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(summarise(rows), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(markdown(rows))
    print(f"\nsimulated against the field record; written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
