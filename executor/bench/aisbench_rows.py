"""The rows of `<abbr>_details.jsonl` as columns, in one pass at about the speed of the JSON parser itself.

Batches of lines go through C-level maps; only a batch that does not fit the usual shape is read again line by line,
to tell an unusual row from a damaged one. A damaged row makes the run incomplete; nothing is guessed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from executor.bench.json_lines import parse_json_line
from executor.bench.problem import ResultUnreadable
from experiments.requests import MISSING, Bools, Ints, short_error

_BATCH_BYTES = 256 << 10  # small enough to stay in the processor's cache: larger batches take half as long again
_FIELDS: Final = (
    "success",
    "error_info",
    "time_points",
    "input_tokens",
    "output_tokens",
    "uuid",
    "prediction",
    "db_name",
)
# Only what a failed request never had may be absent; a row without the others is not a record.
_ABSENT: Final = {"error_info": "", "prediction": None, "db_name": "", "time_points": None}
_pick: Callable[[dict[str, Any]], tuple[Any, ...]] = itemgetter(*_FIELDS)
_reference: Callable[[dict[str, Any]], int] = itemgetter("__db_ref__")


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

    def extend(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Raises TypeError, AttributeError or OverflowError for a value of a type that AISBench never writes."""
        success, error, points, inputs, outputs, uuid, prediction, database = zip(*rows, strict=True)
        first = len(self.uuid)
        if any(error):
            self.errors.update({first + i: short_error(str(text)) for i, text in enumerate(error) if text})
        self._success.extend(success)
        self._refs.extend(_references(points))
        self._inputs.extend(inputs if None not in inputs else [n or 0 for n in inputs])
        self._outputs.extend(outputs if None not in outputs else [n or 0 for n in outputs])
        self._replaced.extend([MISSING if text is None else text.count("\ufffd") for text in prediction])
        self._database.extend(self._database_codes(database))
        self.uuid += map(str, uuid)

    def _database_codes(self, names: Sequence[str]) -> Iterable[int]:
        distinct = set(names)
        self.database_names += sorted(distinct - {"", *self.database_names})
        code = {name: i for i, name in enumerate(self.database_names)} | {"": MISSING}
        return [code[names[0]]] * len(names) if len(distinct) == 1 else [code[name] for name in names]


def read_rows(path: Path) -> DetailRows:
    """Every row of the file. Raises ResultUnreadable naming the line that is damaged or cut off."""
    rows = DetailRows()
    line_number = 1
    try:
        with path.open("rb") as file:
            while lines := file.readlines(_BATCH_BYTES):
                _extend(rows, path.name, _pick_all(path.name, line_number, lines))
                line_number += len(lines)
    except OSError as error:
        raise ResultUnreadable(path.name, f"cannot be read: {error.strerror}") from None
    if not len(rows):
        raise ResultUnreadable(path.name, "holds no request record")
    return rows


def _extend(rows: DetailRows, file: str, picked: list[tuple[Any, ...]]) -> None:
    try:
        if picked:
            rows.extend(picked)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        place = f"{file}: record {len(rows) + 1 + _first_refused(picked)}"
        raise ResultUnreadable(place, f"is not an AISBench record ({short_error(str(error))})") from None


def _first_refused(picked: list[tuple[Any, ...]]) -> int:
    """Which row of a refused batch is to blame."""
    for index, row in enumerate(picked):
        try:
            DetailRows().extend([row])
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
            return index
    return 0


def _pick_all(file: str, line_number: int, lines: list[bytes]) -> list[tuple[Any, ...]]:
    try:
        return list(map(_pick, map(orjson.loads, lines)))
    except (ValueError, KeyError, TypeError):
        return _pick_slowly(file, line_number, lines)


def _pick_slowly(file: str, line_number: int, lines: list[bytes]) -> list[tuple[Any, ...]]:
    picked = []
    for number, line in enumerate(lines, start=line_number):
        row = parse_json_line(file, number, line)
        if row is None:
            continue
        missing = [name for name in _FIELDS if name not in row and name not in _ABSENT]
        if missing:
            raise ResultUnreadable(f"{file}:{number}:{missing[0]}", "the field is missing from this row")
        picked.append(_pick(_ABSENT | row))
    return picked


def _reported(tokens: array[int]) -> Ints:
    """Token counts by the server's usage; 0 and null mean that it reported none."""
    column = np.frombuffer(tokens, dtype=np.int64)
    return np.where(column == 0, MISSING, column)


def _references(points: Sequence[Any]) -> list[int]:
    try:
        return list(map(_reference, points))
    except (TypeError, KeyError):
        return [_reference(p) if p else MISSING for p in points]
