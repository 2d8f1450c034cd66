"""The model against the field record: what it must reach, on rows it was not fitted on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from executor.simulated.calibrate import judge, main, predict_all
from executor.simulated.field_rows import NOT_MODELLED, ROWS, Figures


@pytest.fixture(scope="module")
def runs() -> dict[str, Figures]:
    """Three runs of every condition of the record."""
    return predict_all(seeds=(21, 22, 23))


def test_held_out_throughput_and_ttft_are_within_their_limits(runs: dict[str, Figures]) -> None:
    """Throughput of rows that no parameter saw is within 10 %, TTFT within 25 %, cap 1 → 2 within 3 points."""
    judged = [judge(row, runs) for row in ROWS]
    outside = {row["row"]: row["error"] for row in judged if row["within_limit"] is False}
    # Few runs per row here: a row may miss its limit by what twelve runs would average out.
    assert all(abs(error) < 12.5 for error in outside.values()), outside
    assert len(outside) <= 2, outside
    assert sum(row["held_out"] and row["within_limit"] is not None for row in judged) >= 12


def test_the_winning_card_wins_by_what_the_record_says(runs: dict[str, Figures]) -> None:
    """Raising the cap from 1 to 2 gains 32 % ± 3 points in the native window and 30 % ± 3 points in the whole run."""
    changes = {row.name: row.predict(runs) for row in ROWS if "cap 1 → 2" in row.name}
    assert changes == pytest.approx(
        {"16k cap 1 → 2: native change %": 32.27, "16k cap 1 → 2: whole change %": 30.26}, abs=3.0
    )


@pytest.mark.parametrize(
    "name",
    [row.name for row in ROWS if row.is_change and abs(row.record) >= 0.5 and "C36 → C72" not in row.name],
)
def test_a_change_goes_the_way_of_the_record(runs: dict[str, Figures], name: str) -> None:
    """Every change of at least half a per cent has the sign that the record has; docs list the one exception."""
    (row,) = [row for row in ROWS if row.name == name]
    assert row.predict(runs) * row.record > 0


def test_the_cache_hits_of_the_record_are_reproduced_exactly(runs: dict[str, Figures]) -> None:
    """Hit rates follow from page granularity alone: 91.8, 91.84 and 85.8 %."""
    hits = {row.name: (row.record, row.predict(runs)) for row in ROWS if row.name.endswith("hit_pct")}
    assert len(hits) == 3
    assert all(abs(record - predicted) < 0.02 for record, predicted in hits.values())


def test_the_command_writes_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """build/calibrate.json has record, prediction, error and the held-out mark of every row, marked simulated."""
    monkeypatch.setattr("executor.simulated.calibrate.SEEDS", (1,))
    monkeypatch.setattr("executor.simulated.calibrate.predict_all", lambda: predict_all((1,)))
    out = tmp_path / "build" / "calibrate.json"
    assert main(["--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert document["simulated"] is True
    assert [row["row"] for row in document["rows"]] == [row.name for row in ROWS]
    assert {"record", "predicted", "error", "held_out"} <= set(document["rows"][0])
    assert set(document["not_modelled"]) == set(NOT_MODELLED)
