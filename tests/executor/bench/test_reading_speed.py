from __future__ import annotations

from pathlib import Path

from executor.bench.aisbench_records import find_run, read_records
from executor.bench.bench_records import read_bench_records, select_record
from executor.bench.bench_serving_details import read_table
from tests.bench.reading import measure_aisbench, measure_bench_serving, write_record, write_run


def test_the_speed_figures_are_of_the_files_they_name() -> None:
    """Each size is written, read back whole and measured against one bare pass over the same file."""
    figures = {**measure_aisbench((300,)), **measure_bench_serving((1_200,))}
    assert list(figures) == ["300", "1200"]
    assert all(each["ratio"] > 0 and each["peak_rss_mb"] > 0 for each in figures.values())


def test_the_measured_file_is_a_real_layout(tmp_path: Path) -> None:
    """What the figure is about is what AISBench writes: records joined with their chunk times."""
    write_run(tmp_path, 700)
    table = read_records(find_run(tmp_path)).table
    assert (700, 700, {16}) == (len(table), table.n_succeeded, set(table.chunk_counts.tolist()))


def test_the_measured_record_is_read_whole(tmp_path: Path) -> None:
    """And what bench_serving writes with `--output-details`."""
    write_record(tmp_path, 700)
    table = read_table(select_record(read_bench_records(tmp_path / "result.jsonl"), None), "result.jsonl")
    assert (700, 700, {16}) == (len(table), table.n_succeeded, set(table.chunk_counts.tolist()))
