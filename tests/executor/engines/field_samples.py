"""Where stored outputs of real servers lie. Tests that read them skip with a reason where they are absent."""

from __future__ import annotations

from pathlib import Path

import pytest

_SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples"
FIELD = _SAMPLES / "field"
REAL = _SAMPLES / "sglang_real"


def field_text(name: str, root: Path = FIELD) -> str:
    """The text of one sample."""
    path = root / name
    if not path.is_file():
        pytest.skip(f"stored sample {name} is not on this machine ({root})")
    return path.read_text(encoding="utf-8", errors="replace")
