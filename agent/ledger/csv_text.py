"""CSV that a spreadsheet reads as data: no cell of it is ever a formula. Numbers in full precision."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from agent.ledger.rows import Cell, Row, shown
from experiments.trial import NOT_OBSERVED

# What spreadsheets take for the start of a formula, in half and full width, after anything that they skip.
_FORMULA = re.compile(r"[\s'\"`\u00a0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]*[=+\-@＝＋－＠|%]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def csv_text(columns: Sequence[str], rows: Iterable[Row], redact: Callable[[str], str]) -> str:
    """The whole file, with `\\n` as line end. Text is always quoted, numbers never are."""
    lines = [",".join(columns)]
    lines += [",".join(csv_cell(row[column], redact) for column in columns) for row in rows]
    return "\n".join(lines) + "\n"


def csv_cell(cell: Cell, redact: Callable[[str], str] = str) -> str:
    match shown(cell):
        case bool() as flag:
            return "true" if flag else "false"
        case int() as number:
            return str(number)
        case float() as number:
            return repr(number) if math.isfinite(number) else f'"{NOT_OBSERVED}"'
        case text:
            return _quoted(str(text), redact)


def _quoted(text: str, redact: Callable[[str], str]) -> str:
    # A cell begins as a formula either before or after the characters that do not show are gone.
    risky = _FORMULA.match(text) is not None
    text = redact(text)
    risky = (risky or _FORMULA.match(text) is not None) and _NUMBER.fullmatch(text) is None
    return '"' + ("'" if risky else "") + text.replace('"', '""') + '"'
