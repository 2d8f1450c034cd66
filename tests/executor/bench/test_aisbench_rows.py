"""Blocks that are decoded at once and lines that are looked at one by one give the same rows, or one named line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executor.bench.aisbench_rows import DetailRows, read_rows
from executor.bench.problem import ResultUnreadable
from experiments.requests import MISSING
from tests.executor.bench.client_files import detail_row

MANY = 2_000  # more rows than one block holds


def _lines(count: int, **changes: Any) -> list[bytes]:
    return [json.dumps(detail_row(i, 8, **changes)).encode() + b"\n" for i in range(count)]


def _read(folder: Path, lines: list[bytes]) -> DetailRows:
    path = folder / "load_details.jsonl"
    path.write_bytes(b"".join(lines))
    return read_rows(path)


def _columns(rows: DetailRows) -> tuple[object, ...]:
    numbers = (
        rows.success,
        rows.refs,
        rows.database,
        rows.input_tokens,
        rows.output_tokens,
        rows.replacement_characters,
    )
    return (rows.uuid, rows.errors, rows.database_names, *(column.tolist() for column in numbers))


@pytest.mark.parametrize(
    "unusual",
    [
        pytest.param(lambda line: b"\n" + line, id="blank_line"),
        pytest.param(lambda line: line.replace(b'"extra_perf_data": {}', b'"extra_perf_data": NaN'), id="bare_nan"),
        pytest.param(lambda line: line.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(lambda line: line.replace(b'"success": true', b'"success": 1'), id="number_for_truth"),
    ],
)
def test_a_line_of_another_shape_changes_no_row(tmp_path: Path, unusual: Callable[[bytes], bytes]) -> None:
    """Wherever it stands, the columns are those of the usual file."""
    usual = _lines(MANY)
    lines = [unusual(line) if i in (0, 700, MANY - 1) else line for i, line in enumerate(usual)]
    assert lines != usual
    assert _columns(_read(tmp_path, lines)) == _columns(_read(tmp_path, usual))


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        pytest.param(lambda line: line[:90] + b"\n", ":1501", id="cut"),
        pytest.param(lambda line: line.replace(b'"input"', b'"\xff\xfe"'), ":1501", id="not_utf8_in_an_unused_field"),
        pytest.param(lambda line: b"[1, 2]\n", ":1501", id="no_object"),
        pytest.param(lambda line: line.replace(b'"uuid"', b'"uid"'), ":1501:uuid", id="no_uuid"),
        pytest.param(lambda line: line.replace(b'"__db_ref__"', b'"ref"'), ":1501:time_points", id="no_reference"),
        pytest.param(
            lambda line: line.replace(b'"success": true', b'"success": "yes"'), ": record 1501", id="no_truth"
        ),
        pytest.param(
            lambda line: line.replace(b'"output_tokens": 8', b'"output_tokens": 8.5'), ": record 1501", id="half"
        ),
        pytest.param(lambda line: b"[" * 5_000 + b"]" * 5_000 + b"\n", ":1501", id="deep"),
    ],
)
def test_a_damaged_line_is_named_by_its_number(tmp_path: Path, damage: Callable[[bytes], bytes], place: str) -> None:
    """Far behind the first block, and although the rows before it were not counted as lines."""
    lines = _lines(MANY)
    lines[1500] = damage(lines[1500])
    with pytest.raises(ResultUnreadable) as refused:
        _read(tmp_path, lines)
    assert str(refused.value).startswith(f"evidence_incomplete: load_details.jsonl{place}: ")


def test_replacement_characters_are_counted_however_they_are_written(tmp_path: Path) -> None:
    """As bytes, as an escape, and not at all where the text was not kept."""
    answers = ["a\ufffdb\ufffd", "plain", None]
    rows = [detail_row(i, 8, prediction=text) for i, text in enumerate(answers)]
    written = [json.dumps(rows[0], ensure_ascii=False), *(json.dumps(row) for row in rows)]
    found = _read(tmp_path, [line.encode() + b"\n" for line in written])
    assert found.replacement_characters.tolist() == [2, 2, 0, MISSING]


def test_a_failed_request_may_lack_what_it_never_had(tmp_path: Path) -> None:
    """No time points, no answer, no database; its error is kept."""
    failed = {
        key: value for key, value in detail_row(1, 8).items() if key not in ("time_points", "prediction", "db_name")
    }
    failed |= {"success": False, "error_info": "connection reset", "input_tokens": None, "output_tokens": 0}
    found = _read(tmp_path, [*_lines(1), json.dumps(failed).encode() + b"\n"])
    assert found.errors == {1: "connection reset"}
    assert (found.refs.tolist()[1], found.database.tolist()[1]) == (MISSING, MISSING)
    assert (found.input_tokens.tolist()[1], found.output_tokens.tolist()[1]) == (MISSING, MISSING)
