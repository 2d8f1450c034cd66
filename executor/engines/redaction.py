"""Log text made fit to be shown, stored and sent on: no addresses, accounts, paths, keys or request text.

Log text is untrusted. What leaves here is one short line without control characters; it is evidence, never input.
"""

from __future__ import annotations

import re

LIMIT = 200
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]+")
_REPLACEMENTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>\])}]+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?i)\b((?:api[_-]?key|token|secret|password|passwd|authorization)\S{0,3}[=: ]+)\S+"), r"\1<secret>"),
    (re.compile(r"\b(?:sk|ghp|gho|hf)[-_][A-Za-z0-9_-]{8,}"), "<secret>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*"), "<account>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::[\d_]+)?\b"), "<address>"),
    (re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,}[0-9a-fA-F]{1,4}\b|\[::[^\]]*\]"), "<address>"),
    (re.compile(r"(?<![\w.])~?(?:/[\w.@+%-]+){2,}/?"), "<path>"),
    (re.compile(r"(?<!\w)'[^']{41,}'|(?<!\w)\"[^\"]{41,}\""), "<text>"),
    (re.compile(r"\b(?=[0-9a-fA-F]*[a-fA-F])(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{16,}\b|\b\d{16,}\b"), "<id>"),
)


def redact_line(text: str) -> str:
    """One line of at most 200 characters, with private parts named instead of shown."""
    line = _CONTROL.sub(" ", _ANSI.sub("", text[: 20 * LIMIT])).strip()
    for pattern, replacement in _REPLACEMENTS:
        line = pattern.sub(replacement, line)
    return line if len(line) <= LIMIT else line[: LIMIT - 1] + "…"
