"""experiments.csv and experiments.json: the columns, the missing values, the precision, and no formulas."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.ledger.csv_text import csv_cell, csv_text
from agent.ledger.redaction import Redactor
from agent.ledger.rows import COLUMNS
from experiments.ledger import LedgerEntry, TrialFinished, TrialStarted

PROMISED = (
    *("trial", "card", "parent", "change_role", "change_knob", "change_from", "change_to", "tier", "route", "reason"),
    *("window", "window_rule", "n_requests", "duration_s", "output_tok_s_per_card", "tpot_mean_ms", "ttft_mean_s"),
    *("ttft_p90_s", "e2e_mean_s", "requests_planned", "concurrency", "rate", "failed", "simulated", "started_at"),
)
NUMBERS = PROMISED[PROMISED.index("n_requests") : PROMISED.index("requests_planned")]


@pytest.fixture(scope="module")
def rows(ledger: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((ledger / "experiments.csv").read_text())))


def test_the_promised_columns_come_in_the_promised_order(rows: list[dict[str, str]]) -> None:
    """Readers of the file may count on them; `change` is one more, for people."""
    assert tuple(column for column in rows[0] if column in PROMISED) == PROMISED
    assert "change" in rows[0]


def test_a_measured_trial_has_a_row_per_window(rows: list[dict[str, str]], night: Sequence[LedgerEntry]) -> None:
    """Whole, native and in_window, in this order, for each trial with numbers."""
    measured = [e.record.trial_id for e in night if isinstance(e, TrialFinished) and e.record.measurement is not None]
    windows = {trial: [r["window"] for r in rows if r["trial"] == trial] for trial in measured}
    assert windows == {trial: ["whole", "native", "in_window"] for trial in measured}


def test_every_trial_is_in_the_file(rows: list[dict[str, str]], night: Sequence[LedgerEntry]) -> None:
    """A trial that was started is never left out, whatever became of it."""
    assert {r["trial"] for r in rows} == {e.trial_id for e in night if isinstance(e, TrialStarted)}


def test_a_fault_has_one_row_without_any_number(rows: list[dict[str, str]]) -> None:
    """NOT_OBSERVED in window and every figure; the failed count as well."""
    faults = [r for r in rows if r["route"] == "orchestration_fault"]
    assert [(r["card"][:3], r["reason"]) for r in faults] == [
        ("c06", "contract_mismatch"),
        ("c06", "contract_mismatch"),
        ("c07", "unknown_end"),
    ]
    assert len({r["trial"] for r in faults}) == len(faults)
    for row in faults:
        assert {row[column] for column in ("window", "window_rule", "failed", *NUMBERS)} == {"NOT_OBSERVED"}


def test_an_infeasible_card_is_a_negative_without_numbers(rows: list[dict[str, str]]) -> None:
    """The configuration did it: a valid negative, and still no number."""
    (row,) = [r for r in rows if r["card"].startswith("c04")]
    assert (row["route"], row["reason"]) == ("valid_negative", "infeasible")
    assert {row[column] for column in NUMBERS} == {"NOT_OBSERVED"}


def test_runs_of_the_incumbent_are_references(rows: list[dict[str, str]]) -> None:
    """They belong to no card and go by the name of their configuration."""
    references = {(r["card"], r["change"]) for r in rows if r["route"] == "reference"}
    assert references == {("start", "none"), ("c01-prefill-max-requests-2", "none")}


def test_csv_figures_have_full_precision(rows: list[dict[str, str]], night: Sequence[LedgerEntry]) -> None:
    """A figure reads back as the very float of the entry."""
    for entry in night:
        if isinstance(entry, TrialFinished) and entry.record.measurement is not None:
            for window in entry.record.measurement.windows:
                (row,) = [r for r in rows if r["trial"] == entry.record.trial_id and r["window"] == window.kind]
                assert [float(row[column]) for column in NUMBERS] == [getattr(window, column) for column in NUMBERS]


def test_json_has_null_where_csv_says_not_observed(ledger: Path, rows: list[dict[str, str]]) -> None:
    """Both files hold the same rows."""
    experiments = json.loads((ledger / "experiments.json").read_text())["experiments"]
    assert len(experiments) == len(rows)
    for row, experiment in zip(rows, experiments, strict=True):
        assert {k for k, v in row.items() if v == "NOT_OBSERVED"} == {k for k, v in experiment.items() if v is None}


def test_json_tells_that_the_pool_is_simulated(ledger: Path) -> None:
    """In data as on screen."""
    document = json.loads((ledger / "experiments.json").read_text())
    assert document["simulated"] is True
    assert {row["simulated"] for row in document["experiments"]} == {True}


FORMULAS = [
    "=1+1",
    "   =1+1",
    "\t=1+1",
    "\r=1",
    "\n=1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "＝1+1",
    "－2+3",
    "＋1",
    "＠A1",
    "'=1+1",
    '"=1+1',
    "\u200b=1+1",
    "\ufeff=1",
    "\u00a0=1",
    "\u3000＝1",
    "-cmd|' /C calc'!A0",
    '=HYPERLINK("http://evil","x")',
    "|calc",
    "-0.5e",
    "--5",
    "\u202e=1+1",
    "\x1b[31m=1+1",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_is_disarmed(text: str) -> None:
    """The cell begins with an apostrophe, whatever hides before the sign."""
    (cell,) = next(csv.reader(io.StringIO(csv_cell(text, Redactor()))))
    assert cell.startswith("'")


@pytest.mark.parametrize("number", [-0.5, -3, 0.1 + 0.2, 1e-9, -1e300])
def test_a_number_stays_a_number(number: float) -> None:
    """Negative figures are not mistaken for formulas and lose nothing."""
    assert float(csv_cell(number)) == number
    assert "'" not in csv_cell(number)


@pytest.mark.parametrize("text", ["-0.5", "+3", "-1e5"])
def test_a_number_in_text_stays_as_it_is(text: str) -> None:
    """A setting whose value is "-0.5" is data."""
    assert csv_cell(text) == f'"{text}"'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), None])
def test_what_is_no_number_is_not_observed(value: float | None) -> None:
    """Neither NaN nor infinity ever reaches a reader."""
    assert csv_cell(value) == '"NOT_OBSERVED"'


@given(st.lists(st.text(), min_size=3, max_size=3))
@settings(deadline=None, max_examples=300)
def test_any_text_comes_back_in_its_own_cell(texts: list[str]) -> None:
    """Quotes, commas and line ends never move a cell, and no cell begins as a formula."""
    columns = ("a", "b", "c")
    text = csv_text(columns, [dict(zip(columns, texts, strict=True))], Redactor())
    (_, row) = list(csv.reader(io.StringIO(text)))
    assert len(row) == 3
    assert [cell for cell in row if cell[:1] in ("=", "@", "\t", "\r", "＝", "＠")] == []


def test_a_long_row_has_every_column() -> None:
    """The header and the rows have the same columns."""
    assert len(set(COLUMNS)) == len(COLUMNS)
