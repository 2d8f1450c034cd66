"""Takes private details and control characters out of every text that a ledger page shows.

Known values (host names, accounts, keys) go by value and in their usual encodings; everything else by pattern. It is
applied where text is written, so that no page can forget it. What is left is one printable line.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote

MAX_TEXT = 2000
SHORTEST_KNOWN = 4  # a shorter value would blank out ordinary words
# Words of the trade that a pool may use as names of its hosts: without them no page could be read.
VOCABULARY = frozenset({"prefill", "decode", "router", "client", "both", "mixed", "sglang", "vllm", "localhost"})
MAX_KEPT = 100_000  # texts that are remembered, so that a long study does not fill the memory

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Controls, zero-width and bidirectional characters, line separators, surrogates, tags: nothing that a reader sees.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]+"
)
_LINE_BREAK = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")

_TOP_LEVEL = (
    "com|net|org|io|cn|ai|dev|cloud|local|localdomain|internal|intranet|lan|corp|home|arpa|svc|edu|gov|de|uk|jp"
)
_GROUP = r"[0-9a-fA-F]{1,4}"
# By the mark that takes its place; at one position the first that fits wins. Each begins at the start of a word: a
# search from every place of a long word would be quadratic.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("secret", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|$)"),
    ("url", r"(?<![a-zA-Z0-9+.-])[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s\"'<>]+"),
    ("secret", r"(?i:(?<!\w)(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"),
    (
        "secret",
        r"(?i:(?<![a-z0-9_-])[a-z0-9_-]*(?:api[_-]?key|access[_-]?key|private[_-]?key|passw(?:or)?d|secret|token"
        r"|credential)[\"']?\s*[=:]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;\"']+)",
    ),
    ("secret", r"(?<!\w)(?:sk|pk|hf|ghp|gho|glpat|xox[abp])[-_][A-Za-z0-9_-]{12,}"),
    ("secret", r"(?<!\w)(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)"),
    ("secret", r"(?<!\w)eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"),
    ("account", r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"),
    ("address", r"(?<![0-9A-Za-z.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5})?(?![0-9A-Za-z]|\.[0-9])"),
    ("address", rf"(?<![0-9A-Za-z:])(?:{_GROUP}:){{3,7}}{_GROUP}(?![0-9A-Za-z:])"),
    ("address", rf"(?<![0-9A-Za-z:])(?:{_GROUP}:){{1,7}}(?::{_GROUP}){{1,6}}(?![0-9A-Za-z:])"),
    ("address", rf"(?<![0-9A-Za-z:])(?:{_GROUP}:){{1,7}}:(?![0-9A-Za-z:])"),
    ("host", rf"(?i:(?<![\w.-])(?:[a-z0-9-]+\.)+(?:{_TOP_LEVEL})(?::[0-9]{{1,5}})?(?![\w-]|\.\w))"),
    ("path", r"(?i:(?<!\w)[a-z]:\\[^\s\"'<>|]+)"),
    # A path keeps its last part: which file it was matters to the reader, where it lies does not.
    ("path", r"(?<![\w.:/<-])(?:~|/[\w.@+-]+)(?:/[\w.@+-]+)*(?=/[\w.@+-])"),
    ("path", r"(?<![\w.:/<-])/(?:home|root|Users|data\d*|mnt|opt|var|etc|tmp)\b/?"),
)
# ASCII: a Chinese sentence has no blank before an address, and its characters are letters too.
_PRIVATE = re.compile(
    "|".join(f"(?P<{mark}_{i}>{pattern})" for i, (mark, pattern) in enumerate(_PATTERNS)), re.DOTALL | re.ASCII
)
# Every pattern above needs one of these somewhere. Most texts have none and are done after one search.
_SUSPICIOUS = re.compile(
    r"[@/\\:=]|\.[A-Za-z]|[0-9]\.[0-9]{1,3}\.[0-9]|(?i:bearer|basic)\s|-----BEGIN|AKIA|ASIA|eyJ"
    r"|(?:sk|pk|hf|ghp|gho|glpat|xox[abp])[-_]",
    re.ASCII,
)


class Redactor:
    """Makes text fit for a page. `private` are values to take out wherever they stand."""

    def __init__(self, private: Iterable[str] = ()) -> None:
        known = {v for v in private if len(v) >= SHORTEST_KNOWN and v.lower() not in VOCABULARY}
        forms = [rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])" for form in _longest_first(known)]
        forms += map(re.escape, _longest_first({form for value in known for form in _encodings(value)}))
        self._known = re.compile("|".join(forms), re.IGNORECASE) if forms else None
        self._cache: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """One printable line without private details, of at most `MAX_TEXT` characters."""
        found = self._cache.get(text)
        if found is None:
            if len(self._cache) > MAX_KEPT:
                self._cache.clear()
            found = self._cache[text] = self._redact(text)
        return found

    def _redact(self, text: str) -> str:
        line = visible_line(text)
        if self._known is not None:
            line = self._known.sub("‹private›", line)
        if _SUSPICIOUS.search(line) is not None:
            line = _PRIVATE.sub(_mark, line)
        return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def _mark(found: re.Match[str]) -> str:
    """‹address› for whatever the pattern `address_8` found."""
    return f"‹{(found.lastgroup or 'private_').split('_')[0]}›"


def visible_line(text: str) -> str:
    """The text as one line, without terminal sequences and characters that do not show."""
    if text.isascii() and text.isprintable():
        return text[: MAX_TEXT * 4].strip()
    text = _ANSI.sub("", text[: MAX_TEXT * 4])
    return _INVISIBLE.sub("", _LINE_BREAK.sub(" ", text)).strip()


def _longest_first(forms: Iterable[str]) -> list[str]:
    """A folder before the folder that it is in."""
    return sorted(forms, key=lambda form: (-len(form), form))


def _encodings(value: str) -> set[str]:
    """The value percent-encoded where that differs, in hex, and in base64 at each of the three alignments."""
    raw = value.encode()
    forms = {raw.hex()} | ({quote(value, safe="")} - {value})
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * shift + raw).decode().rstrip("=")
            # The first and last characters mix with the neighbours of the value.
            inner = text[(0, 2, 3)[shift] : len(text) - 1]
            if len(inner) >= 2 * SHORTEST_KNOWN:
                forms.add(inner)
    return forms
