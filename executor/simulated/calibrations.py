"""Reads the calibration files of the package. The model itself never touches a file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from executor.simulated.model.parameters import (
    Acceptance,
    Calibration,
    DecodeCost,
    Mechanisms,
    Memory,
    Noise,
    PrefillCost,
    Transfer,
)

FOLDER = Path(__file__).parent / "calibration"


@cache
def read_calibration(name: str) -> Calibration:
    """The calibration called `name` (`flash`, `pro`)."""
    return parse_calibration(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def calibration_for(model_path: str) -> Calibration:
    """The calibration that fits a model path best: a V4-Pro by its name, else Flash."""
    return read_calibration("pro" if "pro" in model_path.lower() else "flash")


def parse_calibration(document: dict[str, Any]) -> Calibration:
    parts = dict(document)
    return Calibration(
        prefill=PrefillCost(**parts.pop("prefill")),
        decode=DecodeCost(**parts.pop("decode")),
        transfer=Transfer(**parts.pop("transfer")),
        memory=Memory(**parts.pop("memory")),
        acceptance=Acceptance(**parts.pop("acceptance")),
        mechanisms=Mechanisms(**parts.pop("mechanisms")),
        noise=Noise(**parts.pop("noise")),
        **parts,
    )
