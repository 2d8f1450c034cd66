"""The benchmark itself, reduced: the landscape is the one that was measured, and the planner holds its floor on it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.bench.planner.__main__ import bench, main
from tests.bench.planner.figures import paired
from tests.bench.planner.landscape import LOOSE, TIGHT, Landscape, Slo
from tests.bench.planner.roster import ROSTER, WITHOUT_MODEL


@pytest.mark.parametrize(("slo", "optimum", "start"), [(LOOSE, 5.6691, 0.192), (TIGHT, 5.1566, 0.211)])
def test_the_landscape_is_the_published_one(slo: Slo, optimum: float, start: float) -> None:
    """Optimum and start as in the first replay of it."""
    pool = Landscape(slo)

    assert pool.optimum == pytest.approx(optimum)
    assert pool.worth(pool.starting) / pool.optimum == pytest.approx(start, abs=0.001)


@pytest.mark.parametrize("slo", [LOOSE, TIGHT], ids=str)
@pytest.mark.parametrize("strategy", [WITHOUT_MODEL, "hybrid, model down"])
def test_the_planner_is_far_above_the_start_within_the_budget(slo: Slo, strategy: str) -> None:
    """Three seeds: at least 0.8 of the optimum, no more than the budget, few launches that could not run."""
    pool = Landscape(slo)
    for seed in range(3):
        session = ROSTER[strategy](pool, 40, random.Random(seed))

        assert session.launches == 40
        assert pool.worth(session.picks[-1]) >= 0.8 * pool.optimum
        assert session.infeasible + session.duplicates <= 4


def test_one_seed_gives_one_session() -> None:
    """The comparison over seeds is a paired one."""
    pool = Landscape(LOOSE)
    first, second = (ROSTER[WITHOUT_MODEL](pool, 40, random.Random(7)) for _ in range(2))

    assert first.picks == second.picks


def test_a_tie_is_called_a_tie() -> None:
    """An interval that holds 0 decides nothing."""
    assert paired([1.0, 0.8, 0.9], [0.9, 0.9, 0.9])["verdict"] == "tie"
    assert paired([0.9, 0.9, 0.91], [0.5, 0.6, 0.5])["verdict"] == "better"


def test_the_report_has_a_row_of_figures_for_every_strategy(tmp_path: Path) -> None:
    """Median, p10, waste and the count of picks below the start, and the curves beside it."""
    assert set(bench(range(1), ["landscape renamed, TPOT 50 ms, TTFT 5 s"], workers=1)["settings"])  # type: ignore[call-overload]
    main(["--seeds", "1", "--workers", "1", "--only", "landscape, TPOT 30 ms", "--out", str(tmp_path / "p.json")])

    (found,) = json.loads((tmp_path / "p.json").read_text())["settings"].values()
    assert set(found["strategies"]) == set(ROSTER)
    for row in found["strategies"].values():
        assert {"median", "p10", "wasted", "worse_than_start"} <= set(row)
    assert (tmp_path / "p.svg").read_text().lstrip().startswith("<?xml")
