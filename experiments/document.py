"""A YAML file that a person wrote, read without trust: text in, plain data and the place of every part out.

Only a small, unambiguous YAML is accepted: one document, no anchors, aliases, tags, merge or duplicate keys,
and nothing that YAML 1.1 and 1.2 read differently. The caps hold before and while parsing, so that a hostile
file is refused in well under a second. Every refusal is an `InputError` with file, line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from experiments.errors import InputError
from experiments.scalar import Scalar, kind_of, resolve, shown

MAX_BYTES = 1024 * 1024
MAX_CHARS = 256 * 1024  # read before the first cap below can act; the scanner takes 0.3 s for it
MAX_DEPTH = 20
MAX_NODES = 10_000
MAX_TEXT = 4096

Loc = tuple[str | int, ...]
Plain = Scalar | list["Plain"] | dict[str, "Plain"]


class Place(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


START = Place(1, 1)


@dataclass(frozen=True, kw_only=True)
class Document:
    """Plain data, and where each key and each value of it stands."""

    file: str
    data: Plain
    keys: Mapping[Loc, Place]
    values: Mapping[Loc, Place]

    def place_of_key(self, loc: Loc) -> Place:
        """Where the deepest existing part of `loc` is named: its key, or its list item."""
        loc = self.existing(loc)
        return self.keys.get(loc) or self.values.get(loc, START)

    def place_of_value(self, loc: Loc) -> Place:
        return self.values.get(self.existing(loc), START)

    def existing(self, loc: Loc) -> Loc:
        """The part of `loc` that the file has; parts that a validator put in between are skipped."""
        known: Loc = ()
        for part in loc:
            if (*known, part) in self.values:
                known = (*known, part)
        return known

    def error(self, place: Place, message: str) -> InputError:
        return InputError(self.file, place.line, place.column, message)


def parse_document(text: str | bytes, file: str) -> Document:
    """Read one YAML document whose top is a mapping."""
    decoded = _decode(text, file)
    _refuse_characters(decoded, file)
    composer = _Composer(file)
    try:
        events = YAML(typ="safe", pure=True).parse(decoded)
        document = composer.compose(iter(events))
    except MarkedYAMLError as error:
        raise _syntax_error(error, file) from None
    except (ValueError, OverflowError):
        # chr() of the scanner refuses the number of an escape; the last event is the best place there is.
        raise InputError(file, *composer.last, "an escape near here names no character") from None
    except YAMLError as error:
        raise InputError(file, *composer.last, f"not readable as YAML: {_on_one_line(error)}") from None
    if not isinstance(document.data, dict):
        raise InputError(
            file, *document.place_of_value(()), f"expected keys at the top, found {kind_of(document.data)}"
        )
    return document


# --- bytes to text ------------------------------------------------------------------------------------------


def _decode(text: str | bytes, file: str) -> str:
    size = len(text)
    if size > MAX_BYTES:
        raise InputError(file, 1, 1, f"file is larger than 1 MiB ({size:,} bytes read); a file like this has a few KB")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    if text.startswith((b"\xff\xfe", b"\xfe\xff")) or text[1:2] == b"\0" or text[:1] == b"\0":
        raise InputError(file, 1, 1, "file is UTF-16 or binary, not UTF-8 text; save it as UTF-8")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode("utf-8", "replace")
        place = _place_at(before, len(before))
        raise InputError(
            file,
            place.line,
            place.column,
            f"byte 0x{text[error.start]:02x} is not UTF-8 text; save the file as UTF-8",
        ) from None


# Control characters, line separators that editors do not show, and marks that reorder text on screen.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_TAB_INDENT = re.compile(r"^[ ]*\t", re.MULTILINE)


def _refuse_characters(text: str, file: str) -> None:
    if found := _FORBIDDEN.search(text):
        place = _place_at(text, found.start())
        raise InputError(file, *place, f"control character U+{ord(found[0]):04X} in the file; remove it")
    if len(text) > MAX_CHARS:
        raise InputError(file, *_place_at(text, MAX_CHARS), f"file is longer than {MAX_CHARS:,} characters")
    if found := _TAB_INDENT.search(text):
        raise InputError(file, *_place_at(text, found.end() - 1), "tab in the indentation; YAML indents with spaces")


def _place_at(text: str, index: int) -> Place:
    before = text[:index].replace("\r\n", "\n").replace("\r", "\n")
    return Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


# --- events to data -----------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Seen:
    """What the composer has met so far."""

    nodes: int = 0
    keys: dict[Loc, Place] = field(default_factory=dict)
    values: dict[Loc, Place] = field(default_factory=dict)


class _Composer:
    """Turns parser events into plain data. The caps are checked per event, before the scanner goes on."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.last = START
        self.seen = _Seen()
        self.events: Iterator[Event] = iter(())

    def compose(self, events: Iterator[Event]) -> Document:
        self.events = events
        self._next()  # stream start
        first = self._next()
        if isinstance(first, StreamEndEvent):
            raise self._error(first, "file is empty")
        data = self._value(self._next(), ())
        self._next()  # document end
        after = self._next()
        if isinstance(after, DocumentStartEvent):
            raise self._error(after, "a second document starts here; one file holds one document")
        return Document(file=self.file, data=data, keys=self.seen.keys, values=self.seen.values)

    def _next(self) -> Event:
        event = next(self.events)
        self.last = _place(event)
        return event

    def _value(self, event: Event, loc: Loc) -> Plain:
        self._admit(event, loc)
        self.seen.values[loc] = _place(event)
        match event:
            case MappingStartEvent():
                return self._mapping(loc)
            case SequenceStartEvent():
                return self._sequence(loc)
            case ScalarEvent():
                return self._scalar(event)
            case _:
                raise self._error(event, f"expected a value, found {type(event).__name__}")

    def _mapping(self, loc: Loc) -> dict[str, Plain]:
        result: dict[str, Plain] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._key(event, loc)
            here = (*loc, key)
            if key in result:
                raise self._error(event, f"duplicate key {shown(key)}, first given in line {self.seen.keys[here].line}")
            self.seen.keys[here] = _place(event)
            result[key] = self._value(self._next(), here)
            if result[key] is None:
                raise self._error(event, f"{shown(key)} has no value; give one or remove the line")
        return result

    def _key(self, event: Event, loc: Loc) -> str:
        self._admit(event, loc)
        if not isinstance(event, ScalarEvent):
            raise self._error(event, "a key must be plain text, not a list or a mapping")
        key = str(event.value)
        if key == "<<":
            raise self._error(event, "merge keys (<<) are not accepted; write the values out")
        if not key or len(key) > 200 or not key.isprintable():
            raise self._error(event, "a key must be 1 to 200 printable characters")
        return key

    def _sequence(self, loc: Loc) -> list[Plain]:
        result: list[Plain] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            result.append(self._value(event, (*loc, len(result))))
        return result

    def _scalar(self, event: ScalarEvent) -> Scalar:
        text = str(event.value)
        if len(text) > MAX_TEXT:
            raise self._error(event, f"text is longer than {MAX_TEXT} characters")
        if found := _FORBIDDEN.search(text):
            raise self._error(event, f"control character U+{ord(found[0]):04X} in a text; remove it")
        if event.style is not None and event.style != "":
            return text
        try:
            return resolve(text)
        except ValueError as error:
            raise self._error(event, str(error)) from None

    def _admit(self, event: Event, loc: Loc) -> None:
        self.seen.nodes += 1
        if self.seen.nodes > MAX_NODES:
            raise self._error(event, f"more than {MAX_NODES:,} values in one file")
        if len(loc) > MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            raise self._error(event, "aliases (*name) are not accepted; write the value out")
        if isinstance(event, NodeEvent) and event.anchor is not None:
            raise self._error(event, "anchors (&name) are not accepted; write the value out")
        if getattr(event, "ctag", None) is not None:
            raise self._error(event, "tags (!name) are not accepted; write plain values")

    def _error(self, event: Event, message: str) -> InputError:
        return InputError(self.file, *_place(event), message)


def _place(event: Event) -> Place:
    mark = event.start_mark
    return Place(mark.line + 1, mark.column + 1) if mark is not None else START


# --- syntax errors ------------------------------------------------------------------------------------------

# What the scanner says, what a person understands, and whether the place is where the open part began.
_PLAIN_WORDS = (
    ("mapping values are not allowed here", "a ':' that does not belong here; quote the text, or indent it", False),
    ("could not find expected ':'", "a key without ':'", False),
    ("expected <block end>", "the indentation does not fit the lines above", False),
    ("expected ',' or '}'", "'{' is not closed, or a ',' is missing", True),
    ("expected ',' or ']'", "'[' is not closed, or a ',' is missing", True),
    ("found unexpected end of stream", "a quote is not closed", True),
    ("expected a comment or a line break", "text behind a closed quote; is a quote above not closed?", False),
)


def _syntax_error(error: MarkedYAMLError, file: str) -> InputError:
    problem = _on_one_line(error.problem or error.context or "")
    for pattern, words, at_start in _PLAIN_WORDS:
        if pattern in problem:
            return InputError(file, *_mark(error, at_start=at_start), words)
    return InputError(file, *_mark(error, at_start=False), f"not readable as YAML: {problem}")


def _mark(error: MarkedYAMLError, *, at_start: bool) -> Place:
    marks = (error.context_mark, error.problem_mark) if at_start else (error.problem_mark, error.context_mark)
    mark = next((m for m in marks if m is not None), None)
    return Place(mark.line + 1, mark.column + 1) if mark is not None else START


def _on_one_line(text: object) -> str:
    return " ".join(str(text).split())[:200]
