"""The safe reading of YAML: hostile and odd files are refused quickly, with their place."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.document import MAX_CHARS, Place, parse_document
from experiments.errors import InputError
from experiments.goal import parse_goal
from experiments.scalar import resolve, shown
from tests.experiments.goal_text import GOAL


def message_of(text: str | bytes) -> str:
    with pytest.raises(InputError) as refused:
        parse_document(text, "f.yaml")
    return str(refused.value)


def read(parse: Callable[[], object]) -> object:
    """What was read, or the refusal; any other exception fails the test."""
    try:
        return parse()
    except InputError as error:
        return error


BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 9)}]\n" for i in range(9))

REFUSED = {
    "empty": (b"", "1:1: file is empty"),
    "comment_only": (b"# nothing\n", "2:1: file is empty"),
    "null": (b"null\n", "1:1: expected keys at the top, found nothing"),
    "list_at_top": (b"- 1\n", "1:1: expected keys at the top, found a list"),
    "word_at_top": (b"hello\n", "1:1: expected keys at the top, found text"),
    "two_documents": (b"a: 1\n---\na: 2\n", "2:1: a second document starts here; one file holds one document"),
    "five_megabytes": (
        b"a: 1\n" + b"#" * 5_000_000,
        "1:1: file is larger than 1 MiB (5,000,005 bytes read); a file like this has a few KB",
    ),
    "many_characters": (b"a: 1\n" * 60_000, "52429:5: file is longer than 262,144 characters"),
    "alias_bomb": (BOMB.encode(), "1:5: anchors (&name) are not accepted; write the value out"),
    "alias": (b"a: *b\n", "1:4: aliases (*name) are not accepted; write the value out"),
    "tag": (b"a: !!python/object:os.system x\n", "1:4: tags (!name) are not accepted; write plain values"),
    "short_tag": (b"a: !x y\n", "1:4: tags (!name) are not accepted; write plain values"),
    "bare_tag": (b"a: ! y\n", "1:4: tags (!name) are not accepted; write plain values"),
    "tag_on_list": (b"a: !!set [1]\n", "1:4: tags (!name) are not accepted; write plain values"),
    "merge_key": (b"a: {<<: {b: 1}}\n", "1:5: merge keys (<<) are not accepted; write the values out"),
    "deep_lists": (b"a: " + b"[" * 5000, "1:24: nested deeper than 20 levels"),
    "deep_mappings": (
        "".join(" " * i + "a:\n" for i in range(200)).encode(),
        "22:22: nested deeper than 20 levels",
    ),
    "many_values": (b"a: [" + b"1, " * 20_000 + b"1]\n", "1:29996: more than 10,000 values in one file"),
    "long_text": (b"a: " + b"x" * 5000, "1:4: text is longer than 4096 characters"),
    "duplicate_key": (b"a: 1\nb: 2\na: 3\n", "3:1: duplicate key 'a', first given in line 1"),
    "same_key_quoted": (b"a: 1\n'a': 3\n", "2:1: duplicate key 'a', first given in line 1"),
    "list_as_key": (b"? [a]\n: 1\n", "1:3: a key must be plain text, not a list or a mapping"),
    "empty_key": (b"'': 1\n", "1:1: a key must be 1 to 200 printable characters"),
    "no_value": (b"a: 1\nb:\n", "2:1: 'b' has no value; give one or remove the line"),
    "tab": (b"a:\n\tb: 1\n", "2:1: tab in the indentation; YAML indents with spaces"),
    "nul": (b"a: 1\nb: x\0y\n", "2:5: control character U+0000 in the file; remove it"),
    "escaped_nul": (b'a: "x\\0y"\n', "1:4: control character U+0000 in a text; remove it"),
    "reordering_mark": ("a: x\u202ey\n".encode(), "1:5: control character U+202E in the file; remove it"),
    "line_separator": ("a: x\u2028b: 2\n".encode(), "1:5: control character U+2028 in the file; remove it"),
    "surrogate": (b'a: "\\ud800"\n', "1:4: control character U+D800 in a text; remove it"),
    "no_such_character": (b'a: "\\U99999999"\n', "1:1: an escape near here names no character"),
    "binary": (bytes(range(128, 256)), "1:1: byte 0x80 is not UTF-8 text; save the file as UTF-8"),
    "latin_1": ("a: 1\nb: caf\xe9\n".encode("latin-1"), "2:7: byte 0xe9 is not UTF-8 text; save the file as UTF-8"),
    "utf_16": ("a: 1\n".encode("utf-16"), "1:1: file is UTF-16 or binary, not UTF-8 text; save it as UTF-8"),
    "utf_16_be": ("a: 1\n".encode("utf-16-be"), "1:1: file is UTF-16 or binary, not UTF-8 text; save it as UTF-8"),
    "unclosed_brace": (b"a: 1\nb: {c: 1\nd: 2\n", "2:4: '{' is not closed, or a ',' is missing"),
    "unclosed_bracket": (b"a: [1, 2\nb: 3\n", "1:4: '[' is not closed, or a ',' is missing"),
    "unclosed_quote": (b'a: "x\nb: 1\n', "1:4: a quote is not closed"),
    "colon_in_text": (b"a: b: c\n", "1:5: a ':' that does not belong here; quote the text, or indent it"),
    "indentation": (b"a:\n  b: 1\n c: 2\n", "3:2: the indentation does not fit the lines above"),
    "key_without_colon": (b"a: 1\nb\nc: 2\n", "3:1: a key without ':'"),
    "yes": (b"a: yes\n", "1:4: 'yes' is read differently by YAML versions; write true or false, or quote it"),
    "octal": (b"a: 012\n", "1:4: '012' is read differently by YAML versions; write a plain number, or quote it"),
    "minutes": (b"a: 1:30\n", "1:4: '1:30' is read differently by YAML versions; write a plain number, or quote it"),
    "date": (b"a: 2026-08-01\n", "1:4: '2026-08-01' looks like a date; quote it if it is a text"),
    "too_large": (b"a: 1e999\n", "1:4: '1e999' is too large for a number; quote it if it is a text"),
    "many_digits": (b"a: " + b"9" * 400, "1:4: number with 400 digits; quote it if it is a text"),
}


@pytest.mark.parametrize(("raw", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_file_names_its_place(raw: bytes, message: str) -> None:
    """Each hostile or odd file is refused with one exact line, and never slowly."""
    before = time.process_time()
    assert message_of(raw) == f"f.yaml:{message}"
    assert time.process_time() - before < 1


SLOW = {
    "comments": "#\n" * (MAX_CHARS // 2 - 5) + "a: 1",
    "folded_lines": "a: " + "x\n  " * (MAX_CHARS // 4 - 2),
    "words": "x " * (MAX_CHARS // 2 - 5),
    "escapes": 'a: "' + "\\x41" * (MAX_CHARS // 4 - 5) + '"',
    "block_text": "a: |\n" + "  x\n" * (MAX_CHARS // 4 - 5),
    "brackets": "a: " + "[" * (MAX_CHARS - 5),
    "bare_words_in_braces": "a: {\n" + "b\n" * (MAX_CHARS // 2 - 9),
    "long_tag": "a: !" + "x" * (MAX_CHARS - 9),
    "question_marks": "? " * (MAX_CHARS // 2 - 1),
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW.keys())
def test_largest_files_end_within_a_second(text: str) -> None:
    """Files at the size limit, made of what the scanner finds hardest, end in time."""
    before = time.process_time()
    with contextlib.suppress(InputError):
        parse_document(text, "f.yaml")
    assert time.process_time() - before < 1


def test_largest_file_takes_little_memory() -> None:
    """A file at the size limit that is all one text is refused within 50 MB."""
    tracemalloc.start()
    try:
        message = message_of(SLOW["folded_lines"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message.endswith("text is longer than 4096 characters")
    assert peak < 50_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("", None),
        ("0.5.12", "0.5.12"),
        ("10.0.0.1", "10.0.0.1"),
        ("tpot_mean < 20 ms", "tpot_mean < 20 ms"),
        ("c0ffee", "c0ffee"),
        ("none", "none"),
        ("nothing", "nothing"),
        ("...", "..."),
        ("-", "-"),
        ("p0", "p0"),
    ],
)
def test_plain_words_have_one_meaning(text: str, expected: object) -> None:
    """Numbers, switches and texts are told apart as any reader would."""
    value = resolve(text)
    assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize(
    "text",
    ["y", "N", "on", "Off", "True", "NULL", "00", "0x1F", "0o7", "0b1", "1_000", "+5", ".5", "5.", "1:30:00",
     "12:59", "2026-1-2 10:00", ".Inf", ".NAN", "+.inf", "1e5000"],
)  # fmt: skip
def test_words_that_readers_disagree_about_are_refused(text: str) -> None:
    """What YAML 1.1 and 1.2, or two people, read differently is not guessed."""
    with pytest.raises(ValueError, match=r"quote it"):
        resolve(text)


def test_quoted_words_are_text() -> None:
    """A quoted word is text, whatever it looks like."""
    data = parse_document("a: 'no'\nb: \"012\"\nc: '2026-08-01'\nd: '1'\n", "f.yaml").data
    assert data == {"a": "no", "b": "012", "c": "2026-08-01", "d": "1"}


def test_keys_are_text() -> None:
    """A key is text, even where it looks like a switch or a number."""
    assert parse_document("on: 1\n1: 2\n", "f.yaml").data == {"on": 1, "1": 2}


def test_places_are_those_of_the_editor() -> None:
    """Line and column count from 1; a mark for byte order and CRLF endings do not shift them."""
    document = parse_document(b"\xef\xbb\xbfa: 1\r\nb: {c: [p, q]}\r\n", "f.yaml")
    assert document.place_of_key(("b", "c")) == Place(2, 5)
    assert document.place_of_value(("b", "c", 1)) == Place(2, 12)
    assert document.place_of_value(("b", "absent")) == Place(2, 4)


def test_echoed_values_stay_on_one_short_line() -> None:
    """A value in a message is short and cannot move the cursor or break the line."""
    assert shown("x" * 500) == repr("x" * 60 + "…")
    assert "\n" not in shown("a\nb")
    assert shown("\x1b[31mred") == "'\\x1b[31mred'"


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
@example(b"\xef\xbb\xbf")
@example(b"a: \xf4\x90\x80\x80")
def test_any_bytes_read_or_are_refused(raw: bytes) -> None:
    """Whatever the bytes are, the outcome is data or an InputError that names the file."""
    outcome = read(lambda: parse_document(raw, "f.yaml").data)
    if isinstance(outcome, InputError):
        assert str(outcome).startswith("f.yaml:")
    else:
        assert isinstance(outcome, dict)


INDICATORS = "{}[]:,-?!&*#|>%@`'\"\\ \n\t0aé\u2028\x85~<=."


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_edit_of_a_goal_reads_or_is_refused(data: st.DataObject) -> None:
    """A goal with characters inserted, removed or doubled anywhere reads, or is refused with a place in it."""
    text = GOAL
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        insert = data.draw(st.text(alphabet=INDICATORS, max_size=6) | st.just(text[at : at + 40]))
        text = text[:at] + insert + text[at + length :]
    outcome = read(lambda: parse_goal(text, "goal.yaml"))
    if isinstance(outcome, InputError):
        assert 1 <= outcome.line <= text.count("\n") + 2
        assert outcome.column >= 1
        assert "\n" not in str(outcome)
