"""Single values: what an unquoted word of a file means, and how a value is named and echoed in a message.

Only spellings that every YAML version and every reader takes for the same value are accepted. `no`, `012`, `1:30`
and dates are refused, not guessed: quoted, they are text.
"""

from __future__ import annotations

import re

Scalar = bool | int | float | str | None


def kind_of(value: object) -> str:
    """What a person calls this kind of value."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def shown(value: object) -> str:
    """A value as it may be echoed in a message: short, on one line, no control characters."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str():
            return ascii(value) if not value.isprintable() else repr(value[:60] + ("…" if len(value) > 60 else ""))
        case _:
            return kind_of(value)


_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_REAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
    ".inf": float("inf"),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
_SWITCH = re.compile(r"(?i:y|yes|n|no|on|off|true|false|null)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_ODD_NUMBER = re.compile(
    r"[-+]?(0[0-9_]+|0[xob][0-9a-fA-F_]+|[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?|[0-9][0-9_]*_[0-9_.]*"
    r"|[0-9]*\.[0-9]*([eE][-+]?[0-9]+)?|[0-9]+([eE][-+]?[0-9]+)?|(?i:\.inf|\.nan))"
)


def resolve(text: str) -> Scalar:
    """The value of an unquoted scalar. ValueError where YAML versions, or people, disagree about it."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > 18:
            raise ValueError(f"number with {len(text)} digits; quote it if it is a text")
        return int(text)
    if _REAL.fullmatch(text):
        return _finite(text)
    if _SWITCH.fullmatch(text):
        raise ValueError(f"{shown(text)} is read differently by YAML versions; write true or false, or quote it")
    if _DATE.fullmatch(text):
        raise ValueError(f"{shown(text)} looks like a date; quote it if it is a text")
    if any(c.isdigit() or c == "." for c in text) and _ODD_NUMBER.fullmatch(text):
        raise ValueError(f"{shown(text)} is read differently by YAML versions; write a plain number, or quote it")
    return text


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{shown(text)} is too large for a number; quote it if it is a text")
    return number
