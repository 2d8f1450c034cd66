"""What of a text or a setting may be shown to a model: control characters out, private names withheld, length capped.

Two lines of defence. Settings are shown by shape and by name (an allow-list); free text is searched for what looks
like a host, an account, a path or a key, and for the private words of the pool that the caller names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping

from experiments.serving_config import Role, Value

WITHHELD = "text withheld"
MAX_VALUE = 64

# Settings whose text is one word of the engine's own vocabulary.
_VOCABULARY = re.compile(
    r"(attention|prefill-attention|decode-attention|sampling|grammar|moe-runner|moe-a2a|fp8-gemm-runner|"
    r"disaggregation-transfer|mamba)-backend"
    r"|speculative-(algorithm|attention-mode)|quantization|kv-cache-dtype|dtype|disaggregation-mode|device"
    r"|deepep-mode|load-balance-method|schedule-policy|policy|prefill-policy|decode-policy|radix-eviction-policy"
    r"|ep-dispatch-algorithm|init-expert-location"
)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+\-]*(\.[0-9][A-Za-z0-9_+\-]*)*")
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")

_TOP_LEVEL = (
    "com|net|org|io|cn|ai|dev|cloud|local|localdomain|internal|intranet|lan|corp|home|arpa|svc|edu|gov|de|uk|jp"
)
_PRIVATE_SHAPES = (
    # Each begins at the start of a word: a search from every place of a long word would be quadratic.
    r"(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]*://\S+",  # URL
    r"(?<![\w.+\-])[\w.+\-]+@[\w.\-]+",  # account@host
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)(?::\d+)?",  # IPv4
    r"(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{1,4}(?![\w:])",  # IPv6, MAC
    rf"(?<![\w.\-])(?:[a-z0-9](?:[a-z0-9\-]*[a-z0-9])?\.)+(?:{_TOP_LEVEL})(?![\w\-])(?::\d+)?",  # host.domain
    r"(?<![\w/])(?:~|\.{1,2})?/[^\s\"'`,;:()\[\]{}<>|]+",  # path
    r"(?<!\w)[a-z]:\\[^\s\"']+",  # Windows path
    r"(?<!\w)(?:sk|pk|ghp|gho|hf|xox[abp]|glpat|AKIA)[-_]?[A-Za-z0-9_\-]{12,}",  # keys of known makes
    r"(?<!\w)bearer\s+\S+",
    r"(?<!\w)(?:token|password|passwd|secret|api[_-]?key)\s*[:=]\s*[^\s,;]+",
    r"(?<!\w)(?=\S*\d)[A-Za-z0-9+/_\-]{32,}={0,2}(?!\w)",  # long opaque words
)
# ASCII: a Chinese sentence has no blank before an address, and its characters are letters too.
_PRIVATE = re.compile("|".join(_PRIVATE_SHAPES), re.IGNORECASE | re.ASCII)
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL)
_CUT = " ..."


class Redactor:
    """`private` are words that never leave: hosts, accounts and folders of the pool."""

    def __init__(self, private: Collection[str] = ()) -> None:
        words = {_plain(word) for word in private if len(_plain(word)) > 1}
        # A host that is called by its role gives nothing away, and every sentence needs the word.
        self._words = dict.fromkeys(words - set(Role), f"[{WITHHELD}]")
        self._private = _any_of(self._words)

    def knowing(self, replacements: Mapping[str, str]) -> Redactor:
        """A redactor that also replaces these texts, each by what stands for it in the prompt."""
        more = Redactor()
        more._words = self._words | {_plain(w): shown for w, shown in replacements.items() if len(_plain(w)) > 1}
        more._private = _any_of(more._words)
        return more

    def text(self, text: str, limit: int) -> str:
        """One line of printable text, with private parts withheld, at most `limit` characters."""
        line = clean_line(text[: 8 * limit])
        if self._private is not None:
            line = self._private.sub(self._stand_in, line)
        line = _PRIVATE.sub(f"[{WITHHELD}]", line)
        return cut(line, limit)

    def _stand_in(self, found: re.Match[str]) -> str:
        return self._words.get(found[0].lower(), f"[{WITHHELD}]")

    def is_shown(self, value: Value) -> bool:
        """Whether a value of a knob may be shown as it is: numbers, and short words that name no host or path."""
        if not isinstance(value, str):
            return True
        shaped = len(value) <= MAX_VALUE and _WORD.fullmatch(value) and not _ADDRESS.fullmatch(value)
        return bool(shaped) and self.text(value, MAX_VALUE) == value

    def setting(self, path: str, value: Value) -> Value:
        """A setting of the incumbent that no knob turns."""
        name = path.split(".", 2)[-1]
        if not isinstance(value, str) or (_VOCABULARY.fullmatch(name) and self.is_shown(value)):
            return value
        return WITHHELD


def _any_of(words: Collection[str]) -> re.Pattern[str] | None:
    """Whole words only, the longest first: a folder before the folder that it is in."""
    parts = [rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])" for word in sorted(words, key=len, reverse=True)]
    return re.compile("|".join(parts), re.IGNORECASE) if parts else None


def _plain(word: str) -> str:
    return clean_line(word).lower()


def clean_line(text: str) -> str:
    """Compatibility forms folded; escapes, controls, bidi marks and zero-width characters out; blanks to one."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    text = unicodedata.normalize("NFKC", _ESCAPE.sub("", text))
    kept = "".join(" " if ch.isspace() else ch for ch in text if ch.isspace() or not _is_hidden(ch))
    return " ".join(kept.split())


def cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - len(_CUT)].rstrip() + _CUT


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn")
