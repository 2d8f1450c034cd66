from __future__ import annotations

import csv
import math
import shutil
from pathlib import Path

import pytest

from executor.bench.aisbench_figures import printed_stage, read_printed, table_rows
from executor.bench.aisbench_records import AISBenchRun
from executor.bench.client_reading import Printed
from executor.bench.console import (
    console_figures,
    parse_aisbench_blocks,
    parse_progress,
    parse_serving_blocks,
    plain_lines,
)
from experiments.validity import check_retokenized
from tests.executor.bench.client_files import FIELD, SAMPLES, field_expectations, sample

CONSOLES = field_expectations("bench_console")
AISBENCH = field_expectations("aisbench")
AISBENCH_NAMES = {
    "e2el_avg_ms": "E2EL/Average",
    "ttft_avg_ms": "TTFT/Average",
    "ttft_p99_ms": "TTFT/P99",
    "tpot_avg_ms": "TPOT/Average",
    "tpot_p99_ms": "TPOT/P99",
    "itl_avg_ms": "ITL/Average",
    "n": "TTFT/N",
    "total_requests": "Total Requests",
    "failed": "Failed Requests",
    "success": "Success Requests",
    "concurrency": "Concurrency",
    "max_concurrency": "Max Concurrency",
    "request_throughput": "Request Throughput",
    "output_throughput": "Output Token Throughput",
    "input_throughput": "Input Token Throughput",
    "total_throughput": "Total Token Throughput",
    "prefill_throughput": "Prefill Token Throughput",
    "total_input_tokens": "Total Input Tokens",
    "total_output_tokens": "Total Generated Tokens",
}


def _text(name: str) -> str:
    return sample(FIELD / name).read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("name", sorted(CONSOLES))
def test_field_consoles_read_as_their_index_says(name: str) -> None:
    """Prefixes, colours, progress bars, trimmed tables, two runs in one log, and logs without any result."""
    blocks = parse_serving_blocks(_text(name))
    expected = CONSOLES[name]["expected"]
    assert len(blocks) == len(expected)
    for block, wanted in zip(blocks, expected, strict=True):
        wrong = {n: (v, block.summary.get(n)) for n, v in wanted.items() if block.summary.get(n) != v}
        assert wrong == {}


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        ("01_a3_pd_dsr1_w4a8_healthy", [0]),
        ("02_a3_pd_qwen235b_healthy_one_short", [1]),
        ("11_a3_router_log_22_of_1792", [1770]),
        ("10_a3_two_runs_first_cold", [0, 0]),
        ("24_hand_trimmed_14_labels", [None]),
    ],
)
def test_failed_requests_are_planned_less_completed(name: str, failed: list[int | None]) -> None:
    """The table has no line for them; where the plan is not in the log, nothing is known."""
    assert failed == [b.failed for b in parse_serving_blocks(_text(f"bench_console/{name}.txt"))]


def test_two_runs_in_one_log_are_two_results() -> None:
    """The gate that missed by 0.3 % (50.17 against 50) was the second; the first took 51.22."""
    blocks = parse_serving_blocks(_text("bench_console/13_a3_gate_missed_by_0p3pct.txt"))
    assert [b.summary["mean_tpot_ms"] for b in blocks] == [51.22, 50.17]


@pytest.mark.parametrize(
    ("name", "usual", "passed"),
    [
        ("03_a3_pd_qwen235b_degraded", 0.9995, False),
        ("02_a3_pd_qwen235b_healthy_one_short", 0.9995, True),
        ("22_npu_perf_testing_doc", 0.5676, True),
        ("25_nemotron_retokenized_half", 0.5086, True),
    ],
)
def test_broken_output_is_seen_only_against_the_workloads_own_history(name: str, usual: float, passed: bool) -> None:
    """44 % slower with a ratio of 0.898 and no error anywhere is invalid; half is normal for random tokens."""
    (block,) = parse_serving_blocks(_text(f"bench_console/{name}.txt"))
    generated, again = (block.summary[f"total_output_tokens{s}"] for s in ("", "_retokenized"))
    assert isinstance(generated, int)
    assert isinstance(again, int)
    assert check_retokenized(again / generated, usual).passed is passed


def test_a_log_without_a_result_has_no_figures() -> None:
    """None, never zeros."""
    assert console_figures(_text("bench_console/05_a3_truncated_after_warmup.txt"), "bench_serving") is None


def test_a_redrawn_line_shows_what_stood_there_last() -> None:
    """A progress bar ends in carriage returns and colours; the result may follow on the same line."""
    text = "\x1b[32m 10%|█ |\r 90%|█████ |\rMean TPOT (ms):      9.25\x1b[0m\r\nnext"
    assert list(plain_lines(text)) == ["Mean TPOT (ms):      9.25", "next"]


def test_statistics_of_nothing_are_not_measured() -> None:
    """With no completed request 0.00 says that nothing was measured."""
    text = (
        "============ Serving Benchmark Result ============\n"
        "Successful requests:                     0\n"
        "Benchmark duration (s):                  12.40\n"
        "Mean TTFT (ms):                          0.00\n"
        "Mean TPOT (ms):                          nan\n"
        "Accept length:                           0.00\n"
        "==================================================\n"
    )
    (block,) = parse_serving_blocks(text)
    assert {**block.summary} == {
        "completed": 0,
        "duration": 12.4,
        "mean_ttft_ms": None,
        "mean_tpot_ms": None,
        "accept_length": None,
    }


@pytest.mark.parametrize("name", ["b0523_native", "b058_oai", "rust_native", "b0523_fail"])
def test_consoles_of_real_clients_parse(name: str) -> None:
    """The Python and the Rust client print one table; the rust one without a list of its arguments."""
    (block,) = parse_serving_blocks(sample(SAMPLES / "sglang_mock" / f"{name}.log").read_text())
    assert {name for name, value in block.summary.items() if value is None} <= {"max_concurrency"}  # "not set"
    assert len(block.summary) >= 25


def _aisbench(name: str, scratch: Path) -> Printed:
    """One sample: a console, or the pair of files that two of the samples are together."""
    path = sample(FIELD / name)
    if path.suffix == ".txt":
        (block,) = parse_aisbench_blocks(path.read_text())
        return block.printed
    shutil.copy(path.parent / "09_common_metrics.json", scratch / "load.json")
    shutil.copy(path.parent / "10_per_request.csv", scratch / "load.csv")
    (printed,) = read_printed(AISBenchRun(directory=scratch, abbr="load"))
    return printed


@pytest.mark.parametrize("name", [n for n in sorted(AISBENCH) if n.split("/")[1][:2] in ("01", "02", "03", "09", "10")])
def test_field_aisbench_results_read_as_their_index_says(name: str, tmp_path: Path) -> None:
    """Units inside cells, two dialects of the log, and a stage that may be either."""
    wanted, printed = AISBENCH[name]["expected"], _aisbench(name, tmp_path)
    for key, figure in AISBENCH_NAMES.items():
        if key in wanted:
            assert printed.figures[figure].value == wanted[key], key
    if "duration_s" in wanted:
        assert math.isclose(printed.figures["Benchmark Duration"].value, wanted["duration_s"] * 1000)
    if "stage" in wanted:
        assert printed.stage == wanted["stage"]
    if "consistent" in wanted:
        assert bool(printed.inconsistent) is not wanted["consistent"]


def test_made_up_tables_are_flagged_and_real_ones_are_not(tmp_path: Path) -> None:
    """A mean below the minimum and a P99 below the mean are in the documentation of the tool itself."""
    old = _aisbench("aisbench/02_console_stable_stage_old.txt", tmp_path)
    new = _aisbench("aisbench/01_console_total_stage.txt", tmp_path)
    assert list(new.inconsistent) == []
    assert any(text.startswith("TTFT: Average 50.332 outside") for text in old.inconsistent)


def test_statistics_of_an_empty_run_are_no_figures() -> None:
    """AISBench prints 0.0 ms for a run without success; N = 0 wins."""
    with sample(FIELD / "aisbench" / "12_empty_data_zeros.csv").open(newline="") as file:
        table = table_rows(csv.reader(file))
    printed = printed_stage("total", {}, table["total"])
    assert {n: f.value for n, f in printed.figures.items()} == {"E2EL/N": 0.0, "TTFT/N": 0.0, "TPOT/N": 0.0}


def test_identical_figures_under_another_task_are_a_copy() -> None:
    """Two tasks with the same numbers to the last digit confirm nothing."""
    (one,) = parse_aisbench_blocks(_text("aisbench/02_console_stable_stage_old.txt"))
    (two,) = parse_aisbench_blocks(_text("aisbench/03_console_multiturn_doc.txt"))
    assert one.task != two.task
    assert {n: f.value for n, f in one.printed.figures.items()} == {n: f.value for n, f in two.printed.figures.items()}


def test_the_task_board_counts_failures_while_a_run_goes_on() -> None:
    """The last redraw counts; there is no other count of failures during a run."""
    text = _text("aisbench/08_progress_board.txt")
    assert parse_progress(text) == {"post": 4, "recv": 3, "finish": 3, "fail": 0}
    assert parse_progress(text + "\n{'POST': 9, 'FAIL': 2}") == {"post": 9, "fail": 2}
    assert parse_progress("{'POST': __import__('os')}") is None
    assert parse_progress("nothing") is None


def test_labels_of_a_fork_are_read_under_the_same_names() -> None:
    """It counts failures itself, separates thousands, and calls the end-to-end latency by another name."""
    text = (
        "============ Serving Benchmark Result ============\n"
        "Successful requests:                     1,024     \n"
        "Failed requests:                         3         \n"
        "Maximum request concurrency:             64        \n"
        "Total Token throughput (tok/s):          22,916.30 \n"
        "Mean E2EL (ms):                          1,233.74  \n"
        "==================================================\n"
    )
    (block,) = parse_serving_blocks(text)
    assert {**block.summary} == {
        "completed": 1024,
        "failed": 3,
        "max_concurrency": 64,
        "total_throughput": 22916.3,
        "mean_e2e_latency_ms": 1233.74,
    }
    assert block.failed == 3


@pytest.mark.parametrize(
    ("cell", "milliseconds"),
    [
        ("12300.2 ms", 12300.2),
        ("12.3002 s", 12300.2),
        ("12300200 us", 12300.2),
        ("12300.2", 12300.2),
        ("7 req/s", None),
    ],
)
def test_times_are_milliseconds_whatever_unit_stands_in_the_cell(cell: str, milliseconds: float | None) -> None:
    """A unit that is no time is no time."""
    printed = printed_stage("total", {"Benchmark Duration": cell}, {"E2EL": {"Average": cell, "N": "8"}})
    for name in ("Benchmark Duration", "E2EL/Average"):
        figure = printed.figures.get(name)
        assert (figure is None) == (milliseconds is None)
        if figure is not None and milliseconds is not None:
            assert math.isclose(figure.value, milliseconds)
