"""A bash script as simple commands of words. Reads; runs nothing and expands nothing but variables set in the script.

Understands quotes, continuation lines, comments, here-documents, `$( )`, `${ }` and redirections. Where a construct
cannot be understood the word keeps its text; only an unterminated quote is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.errors import InputError

_OPERATORS = (";;", "&&", "||", ";", "&", "|", "(", ")", "\n")
_BLANK = " \t"
_CLOSERS = {"(": ")", "{": "}"}


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A run of text of one word. Text in single quotes is never expanded; unquoted text may split."""

    text: str
    quote: str = ""  # "", "'" or '"'


@dataclass(frozen=True, kw_only=True)
class Word:
    """One word as written."""

    pieces: tuple[Piece, ...]
    line: int

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def is_quoted(self) -> bool:
        return any(piece.quote for piece in self.pieces)


@dataclass(frozen=True, kw_only=True)
class SimpleCommand:
    """Words up to an operator. `operator` is what ended the command."""

    words: tuple[Word, ...]
    operator: str
    line: int


def parse_shell(text: str, file: str) -> tuple[SimpleCommand, ...]:
    """All simple commands in order. `InputError` for a quote or bracket that never ends."""
    return tuple(_Scanner(text.replace("\r\n", "\n"), file).commands())


class _Scanner:
    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._at, self._line = 0, 1
        self._here_documents: list[str] = []

    def commands(self) -> list[SimpleCommand]:
        found: list[SimpleCommand] = []
        words: list[Word] = []
        while self._at < len(self._text):
            operator = self._operator()
            if operator is None:
                self._collect(words)
                continue
            if words or operator in (")", ";;"):
                line = words[0].line if words else self._line
                found.append(SimpleCommand(words=tuple(words), operator=operator, line=line))
                words = []
            self._skip(operator)
        if words:
            found.append(SimpleCommand(words=tuple(words), operator="\n", line=words[0].line))
        return found

    def _operator(self) -> str | None:
        return next((operator for operator in _OPERATORS if self._text.startswith(operator, self._at)), None)

    def _skip(self, operator: str) -> None:
        self._at += len(operator)
        if operator == "\n":
            self._line += 1
            self._skip_here_documents()

    def _collect(self, words: list[Word]) -> None:
        """One blank, comment, redirection or word at the present place."""
        character = self._text[self._at]
        if character in _BLANK:
            self._at += 1
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
            self._line += 1
        elif character == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif character in "<>":
            self._redirection()
        else:
            word = self._word()
            if not (word.text.isdigit() and self._text[self._at : self._at + 1] in ("<", ">")):
                words.append(word)

    def _redirection(self) -> None:
        """`>file`, `2>&1`, `<<EOF`: where a command writes is not its arguments."""
        is_here = self._text.startswith("<<", self._at) and not self._text.startswith("<<<", self._at)
        while self._at < len(self._text) and self._text[self._at] in "<>&-|":
            self._at += 1
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if self._at < len(self._text) and self._operator() is None:
            target = self._word().text
            if is_here:
                self._here_documents.append(target)

    def _skip_here_documents(self) -> None:
        for terminator in self._here_documents:
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line, self._at = self._text[self._at : end], end + 1
                self._line += 1
                if line.strip() == terminator:
                    break
        self._here_documents = []

    def _word(self) -> Word:
        line, pieces = self._line, [self._piece()]
        while self._at < len(self._text) and not self._ends_word():
            pieces.append(self._piece())
        return Word(pieces=tuple(pieces), line=line)

    def _ends_word(self) -> bool:
        character = self._text[self._at]
        return character in _BLANK or character in "<>" or self._operator() is not None

    def _piece(self) -> Piece:
        character = self._text[self._at]
        if character in "'\"":
            return self._quoted(character)
        if character == "\\":
            return self._escaped()
        if character == "$" and self._text[self._at + 1 : self._at + 2] in _CLOSERS:
            return Piece(text=self._bracketed())
        if character == "`":
            end = self._find("`", self._at + 1)
            return Piece(text=self._take(end + 1 - self._at))
        return Piece(text=self._plain())

    def _plain(self) -> str:
        start = self._at
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] not in "'\"\\$`" and not self._ends_word():
            self._at += 1
        return self._text[start : self._at]

    def _escaped(self) -> Piece:
        text = self._take(2)[1:]
        return Piece(text="" if text == "\n" else text, quote="'")

    def _quoted(self, quote: str) -> Piece:
        start = self._at + 1
        end = self._find(quote, start)
        self._take(end + 1 - self._at)
        text = self._text[start:end]
        if quote == '"':
            text = text.replace("\\\n", "").replace('\\"', '"').replace("\\\\", "\\")
        return Piece(text=text, quote=quote)

    def _bracketed(self) -> str:
        """`$(…)`, `$((…))` or `${…}` up to its own closing bracket."""
        opening = self._text[self._at + 1]
        closing, depth, place = _CLOSERS[opening], 0, self._at + 1
        while place < len(self._text):
            depth += {opening: 1, closing: -1}.get(self._text[place], 0)
            if depth == 0:
                return self._take(place + 1 - self._at)
            place += 1
        raise InputError(self._file, self._line, 0, f"${opening} is never closed with {closing}")

    def _find(self, quote: str, start: int) -> int:
        place = start
        while place < len(self._text) and self._text[place] != quote:
            place += 2 if quote == '"' and self._text[place] == "\\" else 1
        if place >= len(self._text):
            raise InputError(self._file, self._line, 0, f"a quote {quote} is never closed")
        return place

    def _take(self, length: int) -> str:
        taken = self._text[self._at : self._at + length]
        self._at += length
        self._line += taken.count("\n")
        return taken
