"""Malformed state files: what editors, half-finished copies, slips of the pen and ill will leave behind."""

from __future__ import annotations

from collections.abc import Iterator

GOOD = """\
mode: run
authorized_until: 2026-12-01T07:00:00+08:00
allow: [hot, restart]
approve: [abcdef0123456789]
only: {card: C90}
reason: "handing over at 7"
by: ops
"""


def _cut_off() -> Iterator[str]:
    """Half-written: the file ends somewhere before the name."""
    end = GOOD.index("by:")
    yield from (GOOD[:length] for length in range(0, end + 4, 11))


def _replaced(old: str, *new: str) -> Iterator[str]:
    yield from (GOOD.replace(old, n) for n in new)


def _wrong_words() -> Iterator[str]:
    yield from _replaced("mode: run", "mode: Run", "mode: RUN", "mode: go", "mode: resume", "mode: yes", "mode: true")
    yield from _replaced("mode: run", "mode: 1", "mode: [run]", "mode: {run: 1}", "mode:", "mode: ''", "mode: run run")
    yield from _replaced("mode: run", "mode:run", "Mode: run", "mode: rսn", "mode: run\u200b", "m\u00a0ode: run")
    yield from _replaced("2026-12-01T07:00:00+08:00", "tomorrow", "2026-12-01", "7:00", "07:00", "1796079600", "never")
    yield from _replaced("2026-12-01T07:00:00+08:00", "2026-12-01T07:00:00", "2026-13-01T07:00:00Z", "null", "true")
    yield from _replaced("2026-12-01T07:00:00+08:00", "2026-12-01T25:00:00Z", "2026-12-01T07:00:00+99:00", "1e9", "-1")
    yield from _replaced(
        "[hot, restart]", "hot", "all", "[cold]", "[hot, hot, hot, hot]", "{hot: true}", "[1]", "[[hot]]"
    )
    yield from _replaced(
        "[abcdef0123456789]", "[abc]", "abcdef0123456789", "[c03]", "[ABCDEF0123456789]", "['*']", "[1.5]"
    )
    yield from _replaced("[abcdef0123456789]", "[abcdef01234567890000000000000000000000000000000000000000000000000001]")
    yield from _replaced("{card: C90}", "C90", "{}", "{card: }", "{cards: C90}", "{card: [C90]}", "[C90]", "{card: 90}")
    yield from _replaced(
        "by: ops", "by:", "by: ''", "by: 7", "by: [ops]", "by: null", "signed: ops", "by: ops\nforce: true"
    )
    yield from _replaced('"handing over at 7"', '"handing over', "7", "[a]", '"a\\u0007b"', "'x" * 2, "a: b", "x" * 501)


def _wrong_structure() -> Iterator[str]:
    yield from (
        "run",
        "- run",
        "mode",
        "null",
        "[]",
        "{}",
        "42",
        '"mode: run"',
        "---",
        "...",
        "\n\n",
        "# mode: run\n",
        " ",
    )
    yield GOOD + GOOD
    yield "---\n" + GOOD + "---\n" + GOOD
    yield GOOD + "mode: pause\n"
    yield GOOD.replace("by: ops\n", "") + "by: ops\nby: root\n"
    yield "by: ops\n" + GOOD.replace("by: ops\n", "")
    yield GOOD.replace("allow", "\tallow")
    yield GOOD.replace("allow", " allow")
    yield GOOD.replace("\n", " ")
    yield "{" * 5000
    yield "[" * 5000 + "]" * 5000
    yield "a: &a [x]\nb: *a\n" + GOOD
    yield "a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\n" + GOOD
    yield GOOD.replace("mode: run", "<<: {mode: run}")
    yield GOOD.replace("mode: run", "mode: !!python/object/apply:os.system [id]")
    yield GOOD.replace("mode: run", "mode: !run run")
    yield GOOD.replace("mode: run", "? mode\n: run\n? [a]\n: b")
    yield "<html><body>mode: run</body></html>"
    yield "<<<<<<< HEAD\n" + GOOD + "=======\n" + GOOD + ">>>>>>> theirs\n"
    yield '{"mode": "run", "by": "ops", "allow": ["hot"'
    yield "x: " + "y" * 60_000 + "\n" + GOOD


def _wrong_bytes() -> Iterator[bytes]:
    good = GOOD.encode()
    yield from (
        GOOD.encode("utf-16"),
        GOOD.encode("utf-16-le"),
        GOOD.encode("utf-32"),
        b"\xff\xfe",
        b"\0",
        b"\0" * 4096,
    )
    yield from (good + b"\0", good + b"\x1b[2J", good.replace(b"ops", b"op\xff"), good.replace(b"run", b"r\xc0\xafn"))
    yield from (
        b"\x1f\x8b\x08\0\0\0",
        b"\x7fELF\x02\x01\x01",
        b"SQLite format 3\0",
        b"%PDF-1.7\n%\xe2\xe3",
        b"PK\x03\x04",
    )
    yield good.replace(b"ops", "o\u202eps".encode())
    yield good + b"\xed\xa0\x80"
    yield good[: len(good) // 2] + b"\0" * (len(good) // 2)  # what a power cut leaves on some file systems


def _all() -> Iterator[bytes]:
    for group in (_cut_off, _wrong_words, _wrong_structure):
        yield from (text.encode() for text in group())
    yield from _wrong_bytes()


MALFORMED = tuple(dict.fromkeys(_all()))
