from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from executor.bench import point_databases
from executor.bench.aisbench import read_aisbench
from executor.bench.aisbench_figures import read_printed, recompute
from executor.bench.aisbench_records import AISBenchRun
from executor.bench.client_reading import Printed
from executor.bench.problem import Problem
from executor.bench.reading import find_disagreement, read_measurement
from experiments.measurement import Measurement, WindowKind
from experiments.requests import RequestTable
from experiments.trial import Reason
from experiments.validity import CacheRule, ServerEvidence, Workload
from experiments.windows import NativeRule, Window, native_window, whole_window
from tests.executor.bench.client_files import (
    AISBENCH,
    closed_loop,
    detail_row,
    npy,
    sample,
    write_aisbench,
    write_database,
    write_summary,
)

PLAN = Workload(requests=24, concurrency=4, output_tokens=8)
RUNS = {
    "pypi": "pypi_20260630_total",
    "head": "head_29c363e_stable",
    "fix": "head_29c363e_fixedlen_stable",
    "fail": "head_29c363e_failures_stable",
}
RULE_OF = {"pypi": NativeRule.AISBENCH_2025_12, "head": NativeRule.AISBENCH_2026_08}


def _read(folder: Path, plan: Workload = PLAN, **options: Any) -> Measurement | Problem:
    return read_measurement(folder, "aisbench", plan, 16, simulated=False, **options)


def _differences(table: RequestTable, printed: Printed, rule: NativeRule) -> tuple[int, list[str]]:
    window = whole_window(table) if printed.stage == "total" else native_window(table, 16, rule)
    assert isinstance(window, Window)
    ours = recompute(table, window, 16, printed.stage)
    assert printed.figures.keys() <= ours.keys()
    wrong = [name for name, figure in printed.figures.items() if not figure.agrees(ours[name])]
    return len(printed.figures), wrong


@pytest.mark.parametrize("version", ["pypi", "head"])
@pytest.mark.parametrize("run", list(RUNS))
def test_every_figure_that_real_runs_printed_is_reproduced(run: str, version: str) -> None:
    """Four raw runs, summarised by two releases of AISBench for both stages: all figures, to printed precision."""
    table = read_aisbench(sample(AISBENCH / RUNS[run])).table
    compared = 0
    for summarizer in ("default_perf", "stable_stage"):
        folder = sample(AISBENCH / "resummaries" / f"{run}_by_{version}_{summarizer}")
        abbr = next(folder.glob("*.json")).stem
        for printed in read_printed(AISBenchRun(directory=folder, abbr=abbr)):
            count, wrong = _differences(table, printed, RULE_OF[version])
            assert wrong == []
            compared += count
    assert compared >= 138  # 69 figures a stage, 76 with prefill rows


@pytest.mark.parametrize("run", list(RUNS.values()))
def test_a_stored_run_reads_with_the_console_that_it_printed(run: str) -> None:
    """The terminal, the result files and the records say the same."""
    folder = sample(AISBENCH / run)
    table = read_aisbench(folder).table
    plan = Workload(requests=len(table), concurrency=16, output_tokens=None, allowed_failures=13)
    console = (folder / "console.stdout.txt").read_text()
    measured = _read(folder, plan, rule=NativeRule.AISBENCH_2026_08, console=console)
    assert isinstance(measured, Measurement)
    assert [w.kind for w in measured.windows] == [WindowKind.WHOLE, WindowKind.NATIVE, WindowKind.IN_WINDOW]


def test_the_newest_rule_inflates_the_stored_fixed_length_run() -> None:
    """413.3 tok/s printed, 361.4 tok/s arrived (14 %): both windows are in the measurement."""
    folder = sample(AISBENCH / RUNS["fix"])
    plan = Workload(requests=128, concurrency=16, output_tokens=32)
    measured = _read(folder, plan, rule=NativeRule.AISBENCH_2026_08)
    assert isinstance(measured, Measurement)
    rates = [w.output_tok_s or 0 for w in measured.windows]
    assert [round(rate, 1) for rate in rates] == [358.6, 413.3, 361.4]


def test_a_run_of_the_right_shape_becomes_a_measurement(tmp_path: Path) -> None:
    """Counts, totals and the hash of the raw records come with it; its label says whether it is simulated."""
    write_aisbench(tmp_path)
    measured = read_measurement(tmp_path, "aisbench", PLAN, 16, simulated=True)
    assert isinstance(measured, Measurement)
    assert (
        measured.n_planned,
        measured.n_succeeded,
        measured.n_failed,
        measured.output_tokens,
        measured.simulated,
    ) == (24, 24, 0, 192, True)
    whole = measured.window(WindowKind.WHOLE)
    assert whole is not None
    assert whole.tpot_mean_ms == pytest.approx(50.0)
    assert whole.ttft_mean_s == pytest.approx(0.2)
    assert len(measured.raw_sha256) == 64


def test_records_spread_over_several_workers_come_together(tmp_path: Path) -> None:
    """One database per worker process, ids of each starting at 1, rows in order of completion."""
    traces = closed_loop()
    rows = [
        detail_row(i, 8, db_name=f"w{i % 3}.db", time_points={"__db_ref__": i // 3 + 1}) for i in range(len(traces))
    ]
    directory = write_aisbench(tmp_path, traces, rows=rows)
    (directory / "db_data" / "0badcafe.db").unlink()
    for worker in range(3):
        write_database(directory / "db_data" / f"w{worker}.db", [npy(t) for t in traces[worker::3]])
    measured = _read(tmp_path)
    assert isinstance(measured, Measurement)
    table = read_aisbench(tmp_path).table
    assert [t[0] for t in traces] == table.start_s.tolist()
    assert [c for t in traces for c in t[1:]] == table.chunk_times_s.tolist()


def test_answers_of_different_lengths_keep_their_own_times(tmp_path: Path) -> None:
    """Vectors of many lengths, and of one time point for a request that failed before its first chunk."""
    traces = [[float(i), *(i + 0.1 * k for k in range(1, 2 + i % 5))] for i in range(20)] + [[3.0]]
    rows = [detail_row(i, len(t) - 1) for i, t in enumerate(traces[:-1])]
    rows.append(detail_row(20, 0, success=False, error_info="Internal Server Error"))
    write_aisbench(tmp_path, traces, rows=rows)
    table = read_aisbench(tmp_path).table
    assert [len(t) - 1 for t in traces] == table.chunk_counts.tolist()
    assert dict(table.errors) == {20: "Internal Server Error"}


def test_a_run_that_another_rule_cut_still_agrees(tmp_path: Path) -> None:
    """A stable stage printed by an older release is recognised as such; the windows are cut by the goal's rule."""
    reading = read_aisbench(sample(AISBENCH / RUNS["head"]))
    assert find_disagreement(reading, 16, NativeRule.AISBENCH_2025_11) is None


def _edit_json(directory: Path, name: str, value: object) -> None:
    path = directory / "load.json"
    document = json.loads(path.read_text())
    document[name] = {"total": value}
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Output Token Throughput", "53.4 token/s"),
        ("Success Requests", 23),
        ("Benchmark Duration", "3600.1 ms"),
        ("Total Generated Tokens", 191),
    ],
)
def test_a_printed_figure_that_the_records_deny_is_named(tmp_path: Path, name: str, value: object) -> None:
    """Incomplete evidence, with both values; never a number of either side."""
    _edit_json(write_aisbench(tmp_path), name, value)
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert found.reason is Reason.EVIDENCE_INCOMPLETE
    assert found.field == f"total: {name}"


def test_figures_that_contradict_one_another_are_named(tmp_path: Path) -> None:
    """A mean below the minimum is a made-up table (it happens in documentation)."""
    directory = write_aisbench(tmp_path)
    table = (directory / "load.csv").read_text().replace("TTFT,total,200.0 ms", "TTFT,total,100.0 ms")
    (directory / "load.csv").write_text(table)
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert "TTFT: Average 100 outside" in found.field


def test_zeros_beside_no_sample_are_no_figures(tmp_path: Path) -> None:
    """N = 0 wins over 0.0 ms, which would pass every latency limit."""
    directory = write_aisbench(tmp_path)
    (directory / "load.csv").write_text(
        "Performance Parameters,Stage,Average,Min,Max,N\nTPOT,total,0.0 ms,0.0 ms,0.0 ms,0\n"
    )
    (printed,) = read_printed(AISBenchRun(directory=directory, abbr="load"))
    assert not any(name.startswith("TPOT/") and name != "TPOT/N" for name in printed.figures)


def _changed(index: int, **changes: Any) -> list[dict[str, Any]]:
    rows = [detail_row(i, 8) for i in range(24)]
    rows[index] |= changes
    return rows


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"output_tokens": 7}, Reason.WORKLOAD_VIOLATED, "exact_output_length"),
        ({"output_tokens": 0}, Reason.WORKLOAD_VIOLATED, "exact_output_length"),
        ({"success": False, "error_info": "boom"}, Reason.WORKLOAD_VIOLATED, "success"),
        ({"error_info": "Connection reset"}, Reason.WORKLOAD_VIOLATED, "retried"),
        ({"prediction": "\ufffd" * 11}, Reason.WORKLOAD_VIOLATED, "garbling"),
        ({"time_points": None}, Reason.EVIDENCE_INCOMPLETE, "load_details.jsonl:time_points"),
        ({"time_points": {"__db_ref__": 99}}, Reason.EVIDENCE_INCOMPLETE, "load_details.jsonl:time_points"),
        ({"db_name": "gone.db"}, Reason.EVIDENCE_INCOMPLETE, "db_data/gone.db"),
        ({"db_name": "../../0badcafe.db"}, Reason.EVIDENCE_INCOMPLETE, "load_details.jsonl"),
    ],
)
def test_one_bad_request_voids_the_run_with_its_reason(
    tmp_path: Path, changes: dict[str, Any], reason: Reason, field: str
) -> None:
    """An error inside an HTTP 200 stream, a silent retry, garbage and lost times: each by its own name."""
    write_aisbench(tmp_path, rows=_changed(5, **changes))
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert (reason, field) == (found.reason, found.field)


def test_a_stream_that_fell_silent_voids_the_run(tmp_path: Path) -> None:
    """Forty seconds between two chunks of one answer."""
    traces = closed_loop()
    traces[3] = [*traces[3][:-1], traces[3][-2] + 40.0]
    write_aisbench(tmp_path, traces)
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert (found.reason, found.field) == (Reason.WORKLOAD_VIOLATED, "stream_gap")


def test_a_missing_record_is_incomplete_evidence(tmp_path: Path) -> None:
    """23 rows of 24 planned: the run may have been cut; its mean says nothing."""
    write_aisbench(tmp_path, closed_loop(23))
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert (found.reason, found.field) == (Reason.EVIDENCE_INCOMPLETE, "count")


def test_the_cache_of_a_zero_cache_run_is_proved_by_the_servers(tmp_path: Path) -> None:
    """AISBench records no cached tokens, so without the servers' count there is no proof."""
    write_aisbench(tmp_path)
    plan = Workload(requests=24, concurrency=4, output_tokens=8, cache=CacheRule.ZERO)
    unproved = _read(tmp_path, plan)
    assert isinstance(unproved, Problem)
    assert (unproved.reason, unproved.field) == (Reason.EVIDENCE_INCOMPLETE, "zero_cache")
    assert isinstance(_read(tmp_path, plan, evidence=ServerEvidence(cached_tokens=0)), Measurement)
    reused = _read(tmp_path, plan, evidence=ServerEvidence(cached_tokens=128))
    assert isinstance(reused, Problem)
    assert (reused.reason, reused.field) == (Reason.WORKLOAD_VIOLATED, "zero_cache")


def test_the_servers_accept_length_is_kept_as_told(tmp_path: Path) -> None:
    """It is never derived from proposal acceptance or token counts."""
    write_aisbench(tmp_path)
    told = _read(tmp_path, evidence=ServerEvidence(accept_length=5.7494))
    untold = _read(tmp_path)
    assert isinstance(told, Measurement)
    assert isinstance(untold, Measurement)
    assert (told.accept_length, untold.accept_length) == (5.7494, None)


def test_two_runs_in_one_folder_are_ambiguous(tmp_path: Path) -> None:
    """A second start would otherwise be taken for the first."""
    write_aisbench(tmp_path / "a")
    write_aisbench(tmp_path / "b")
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert "2 runs in one result folder" in found.detail


def test_rows_of_a_killed_run_are_found_where_it_left_them(tmp_path: Path) -> None:
    """Before its end AISBench keeps the database in `tmp/`; a summary it never wrote is what is missing."""
    directory = write_aisbench(tmp_path)
    (directory / "tmp").mkdir()
    (directory / "db_data" / "0badcafe.db").rename(directory / "tmp" / "tmp_0badcafe.db")
    assert isinstance(_read(tmp_path), Measurement)
    (directory / "load.json").unlink()
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert (found.reason, found.field) == (Reason.EVIDENCE_INCOMPLETE, "load.json")


def test_a_database_of_another_program_is_damaged_evidence(tmp_path: Path) -> None:
    """Only one table with ids and vectors is read; nothing in it is unpickled."""
    directory = write_aisbench(tmp_path)
    path = directory / "db_data" / "0badcafe.db"
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE numpy_store (id INTEGER, arr_blob BLOB)")
        database.execute("INSERT INTO numpy_store VALUES (1, ?)", (b"cos\nsystem\n(S'true'\ntR.",))
    database.close()
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert (found.reason, found.field) == (Reason.EVIDENCE_INCOMPLETE, "db_data/0badcafe.db")
    assert "not in .npy format" in found.detail


def test_the_terminal_must_say_what_the_files_say(tmp_path: Path) -> None:
    """A console without a result, and one of another run, are both refused."""
    directory = write_aisbench(tmp_path)
    lines = ["Performance Results of task [trial-1/load]:", "│ Common Metric │ Stage │ Value │"]
    document = json.loads((directory / "load.json").read_text())
    lines += [f"│ {name} │ total │ {cells['total']} │" for name, cells in document.items()]
    console = "\n".join(lines)
    assert isinstance(_read(tmp_path, console=console), Measurement)
    other = _read(
        tmp_path, console=console.replace("│ Total Requests │ total │ 24 │", "│ Total Requests │ total │ 25 │")
    )
    silent = _read(tmp_path, console="Warm-up finished\n")
    assert isinstance(other, Problem)
    assert isinstance(silent, Problem)
    assert (other.field, silent.field) == ("console: Total Requests", "console")


def test_a_run_may_be_as_slow_as_it_likes(tmp_path: Path) -> None:
    """Slowness is a result: twenty times slower passes every gate."""
    traces = [[20.0 * point for point in trace] for trace in closed_loop()]
    write_aisbench(tmp_path, traces)
    measured = _read(tmp_path)
    assert isinstance(measured, Measurement)
    whole = measured.window(WindowKind.WHOLE)
    assert whole is not None
    assert whole.tpot_mean_ms == pytest.approx(1000.0)


def test_summaries_of_an_allowed_failure_agree(tmp_path: Path) -> None:
    """The failed request is in the counts of both sides and in no rate."""
    traces = closed_loop()
    rows = _changed(5, success=False, error_info="boom", output_tokens=0)
    directory = write_aisbench(tmp_path, traces, rows=rows)
    ok = [(t, r) for t, r in zip(traces, rows, strict=True) if r["success"]]
    write_summary(directory, ok, failed=1, slots=4)
    measured = _read(tmp_path, Workload(requests=24, concurrency=4, output_tokens=8, allowed_failures=1))
    assert isinstance(measured, Measurement)
    assert (measured.n_succeeded, measured.n_failed) == (23, 1)


def test_a_large_database_is_decoded_beside_the_rows_to_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of its own gives the columns that reading it here gives."""
    traces = [[float(i), *(i + 0.1 * k for k in range(1, 2 + i % 5))] for i in range(20)]
    rows = [detail_row(i, len(t) - 1) for i, t in enumerate(traces)]
    write_aisbench(tmp_path, traces, rows=rows)
    here = read_aisbench(tmp_path)
    monkeypatch.setattr(point_databases, "WORTH_A_PROCESS_BYTES", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    beside = read_aisbench(tmp_path)
    assert here.raw_sha256 == beside.raw_sha256
    assert here.table.start_s.tolist() == beside.table.start_s.tolist()
    assert here.table.chunk_times_s.tolist() == beside.table.chunk_times_s.tolist()


def test_a_damaged_large_database_tells_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens in the process of its own, the finding names the file."""
    directory = write_aisbench(tmp_path)
    (directory / "db_data" / "0badcafe.db").write_bytes(b"SQLite format 3\x00" + bytes(8_000))
    here = _read(tmp_path)
    monkeypatch.setattr(point_databases, "WORTH_A_PROCESS_BYTES", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert here == _read(tmp_path)
    assert isinstance(here, Problem)
    assert here.field == "db_data/0badcafe.db"


def test_one_token_answers_count_as_zero_in_the_clients_own_mean(tmp_path: Path) -> None:
    """AISBench averages a TPOT of 0 for them; our own mean leaves them out."""
    traces = closed_loop()
    traces[4] = traces[4][:2]
    rows = _changed(4, output_tokens=1)
    write_aisbench(tmp_path, traces, rows=rows)
    measured = _read(tmp_path, Workload(requests=24, concurrency=4, output_tokens=None))
    assert isinstance(measured, Measurement)
    assert measured.windows[0].tpot_mean_ms == pytest.approx(50.0)
    tpot_row = next(tmp_path.rglob("load.csv")).read_text().splitlines()[3]
    assert "TPOT,total,47.9 ms" in tpot_row


def test_inputs_that_the_server_did_not_report_are_not_summed(tmp_path: Path) -> None:
    """0 means not reported; AISBench then counts with a tokenizer of its own, which is no evidence."""
    rows = [detail_row(i, 8, input_tokens=0) for i in range(24)]
    directory = write_aisbench(tmp_path, rows=rows)
    _edit_json(directory, "Total Input Tokens", 2424)
    measured = _read(tmp_path)
    assert isinstance(measured, Measurement)
    assert (measured.input_tokens, measured.output_tokens) == (None, 192)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_times_of_equal_answers_are_checked_as_well(tmp_path: Path, bad: float) -> None:
    """Vectors of one length are read as one matrix; none of its rows may run backwards."""
    traces = closed_loop()
    traces[7][5] = bad
    rows = [detail_row(i, 8) for i in range(24)]
    write_aisbench(tmp_path, traces, rows=rows)
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert found.field == "db_data/0badcafe.db"
    assert "time points" in found.detail
