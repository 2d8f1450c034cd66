"""The rows of `<abbr>_details.jsonl` as columns, in one pass that is quicker than a plain JSON parser's.

Blocks of lines are decoded straight into the few fields that are used; only a block that does not fit the usual shape
is read again line by line, to tell an unusual row from a damaged one. A damaged row makes the run incomplete; nothing
is guessed.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from executor.bench.json_lines import parse_json_line
from executor.bench.problem import ResultUnreadable
from experiments.requests import MISSING, Bools, Ints, short_error

_BLOCK_BYTES = 256 << 10  # many rows at once; more gains nothing, and above a megabyte loses
_REFUSED: Final = (TypeError, ValueError, AttributeError, KeyError, OverflowError)


# Neither is tracked by the garbage collector: they hold no cycles, and a million of them would keep it busy.
class _Reference(msgspec.Struct, gc=False):
    """Where the chunk times of a request are stored: a row of the database."""

    row: int = msgspec.field(name="__db_ref__")


class _Row(msgspec.Struct, gc=False):
    """What is used of a row. Only what a failed request never had may be absent."""

    success: bool
    input_tokens: int | None
    output_tokens: int | None
    uuid: str
    error_info: str = ""
    prediction: str | None = None
    db_name: str = ""
    time_points: _Reference | None = None


_decode: Final = msgspec.json.Decoder(_Row).decode_lines
_REQUIRED: Final = tuple(field.name for field in msgspec.structs.fields(_Row) if field.required)


class DetailRows:
    """The columns of a details file, growing. `database` indexes `database_names`; MISSING for a row without one."""

    def __init__(self) -> None:
        self.uuid: list[str] = []
        self.errors: dict[int, str] = {}
        self.database_names: list[str] = []
        self._success = array("b")
        self._refs, self._inputs, self._outputs, self._replaced, self._database = (array("q") for _ in range(5))

    def __len__(self) -> int:
        return len(self.uuid)

    @property
    def success(self) -> Bools:
        return np.frombuffer(self._success, dtype=np.int8).astype(np.bool_)

    @property
    def refs(self) -> Ints:
        return np.frombuffer(self._refs, dtype=np.int64)

    @property
    def database(self) -> Ints:
        return np.frombuffer(self._database, dtype=np.int64)

    @property
    def input_tokens(self) -> Ints:
        return _reported(self._inputs)

    @property
    def output_tokens(self) -> Ints:
        return _reported(self._outputs)

    @property
    def replacement_characters(self) -> Ints:
        return np.frombuffer(self._replaced, dtype=np.int64)

    def extend(self, rows: Sequence[_Row]) -> None:
        """Raises TypeError, AttributeError or OverflowError for a value of a type that AISBench never writes."""
        first = len(self.uuid)
        errors = [row.error_info for row in rows]
        if any(errors):
            self.errors.update({first + i: short_error(str(text)) for i, text in enumerate(errors) if text})
        points = [row.time_points for row in rows]
        self._success.extend([row.success for row in rows])
        self._refs.extend([MISSING if at is None else at.row for at in points])
        self._inputs.extend([0 if row.input_tokens is None else row.input_tokens for row in rows])
        self._outputs.extend([0 if row.output_tokens is None else row.output_tokens for row in rows])
        texts = [row.prediction for row in rows]
        self._replaced.extend([MISSING if text is None else text.count("\ufffd") for text in texts])
        self._database.extend(self._database_codes([row.db_name for row in rows]))
        self.uuid += [row.uuid for row in rows]

    def _database_codes(self, names: Sequence[str]) -> Iterable[int]:
        distinct = set(names)
        self.database_names += sorted(distinct - {"", *self.database_names})
        code = {name: i for i, name in enumerate(self.database_names)} | {"": MISSING}
        return [code[names[0]]] * len(names) if len(distinct) == 1 else [code[name] for name in names]


def read_rows(path: Path) -> DetailRows:
    """Every row of the file. Raises ResultUnreadable naming the line that is damaged or cut off."""
    rows = DetailRows()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                block += file.readline()
                _extend(rows, path.name, _decode_usual(block) or _decode_each(path, file.tell() - len(block), block))
    except OSError as error:
        raise ResultUnreadable(path.name, f"cannot be read: {error.strerror}") from None
    if not len(rows):
        raise ResultUnreadable(path.name, "holds no request record")
    return rows


def _extend(rows: DetailRows, file: str, found: list[_Row]) -> None:
    try:
        rows.extend(found)
    except _REFUSED as error:
        place = f"{file}: record {len(rows) + 1 + _first_refused(found)}"
        raise ResultUnreadable(place, f"is not an AISBench record ({short_error(str(error))})") from None


def _first_refused(rows: list[_Row]) -> int:
    """Which row of a refused block is to blame."""
    for index, row in enumerate(rows):
        try:
            DetailRows().extend([row])
        except _REFUSED:
            return index
    return 0


def _decode_usual(block: bytes) -> list[_Row] | None:
    """The rows of a block, or None if it has to be looked at line by line."""
    try:
        if not block.isascii():
            block.decode("utf-8")  # the decoder skips the text of fields that are not used
        return _decode(block)
    except (ValueError, RecursionError):
        return None


def _decode_each(path: Path, offset: int, block: bytes) -> list[_Row]:
    try:
        return _decode_lines(path.name, 1, block)
    except ResultUnreadable:  # reading ends here, so the lines before this block are counted now, and only now
        return _decode_lines(path.name, _line_number(path, offset), block)


def _decode_lines(file: str, first: int, block: bytes) -> list[_Row]:
    rows = []
    for number, line in enumerate(io.BytesIO(block), start=first):
        row = parse_json_line(file, number, line)
        if row is None:
            continue
        missing = [name for name in _REQUIRED if name not in row]
        if missing:
            raise ResultUnreadable(f"{file}:{number}:{missing[0]}", "the field is missing from this row")
        rows.append(_unusual(file, number, row))
    return rows


def _line_number(path: Path, offset: int) -> int:
    with path.open("rb") as file:
        return 1 + sum(file.read(min(_BLOCK_BYTES, offset - at)).count(b"\n") for at in range(0, offset, _BLOCK_BYTES))


def _unusual(file: str, number: int, row: dict[str, Any]) -> _Row:
    """A row as it stands; other values of the wrong type are refused where they are used."""
    at = row.get("time_points")
    try:
        points = _Reference(at["__db_ref__"]) if at else None
    except (TypeError, KeyError):
        raise ResultUnreadable(f"{file}:{number}:time_points", "holds no reference to a database row") from None
    fields = {name: row[name] for name in _Row.__struct_fields__ if name in row}
    return _Row(**fields | {"uuid": str(row["uuid"]), "time_points": points})


def _reported(tokens: array[int]) -> Ints:
    """Token counts by the server's usage; 0 and null mean that it reported none."""
    column = np.frombuffer(tokens, dtype=np.int64)
    return np.where(column == 0, MISSING, column)
