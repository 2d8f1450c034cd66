"""An existing bash launch script as a serving configuration, with a report of everything that is set twice.

The script is read, never run. Exports reach the commands that follow them in the same branch or below it; later
flags win over earlier ones, as argparse has it. What only a shell or the pool can know is reported, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from executor.engines.shell_words import SimpleCommand, Word, parse_shell
from experiments.errors import InputError

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_FLAG = re.compile(r"--?[A-Za-z][\w-]*(?:=.*)?", re.DOTALL)
_MODULE_PROGRAMS = ("python", "python3")
_WRAPPERS = frozenset({"nohup", "exec", "env", "sudo", "time", "setsid", "stdbuf"})
_OPENERS = frozenset({"if", "case", "{", "for", "while", "until", "select"})
_MIDDLES = frozenset({"then", "do", "else", "elif", "!"})
_CLOSERS = frozenset({"fi", "esac", "}", "done"})
_HEADED = frozenset({"for", "case", "select"})  # what follows on the line is no command
_MAX_SCRIPT = 1 << 20


class FindingKind(StrEnum):
    """What an import has to say about one setting."""

    FLAG_REPEATED = "flag_repeated"  # given again with the same value
    FLAG_OVERRIDDEN = "flag_overridden"  # given again with another value; the later wins
    ENV_REPEATED = "env_repeated"
    ENV_OVERRIDDEN = "env_overridden"
    ALIAS = "alias"  # written under a short or underscored name
    PLACED_BY_POOL = "placed_by_pool"  # the pool file decides it; left out
    UNRESOLVED = "unresolved"  # holds a variable that the script does not set; left out
    SOURCED = "sourced"  # another script is read here; its settings are not known
    OTHER_PROGRAM = "other_program"  # not a server or router of SGLang; left out
    SECOND_COMMAND = "second_command"  # a role is launched twice; the first is taken


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One remark, at a line of the script."""

    kind: FindingKind
    subject: str
    line: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One exported variable. `branch` is the path of conditional blocks around it."""

    name: str
    value: str
    line: int
    branch: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FlagUse:
    """One flag as written, with its words; no words mean a bare flag."""

    name: str
    words: tuple[str, ...]
    line: int

    @property
    def value(self) -> str | bool:
        return " ".join(self.words) if self.words else True


@dataclass(frozen=True, kw_only=True)
class ScriptCommand:
    """One program start, with its flags in order and the environment that it would get."""

    program: str
    flags: tuple[FlagUse, ...]
    env: tuple[Assignment, ...]  # in order; a later one of the same name wins
    line: int

    def effective_flags(self) -> dict[str, str | bool]:
        """By name as written, the last value of each."""
        return {use.name: use.value for use in self.flags}

    def repeated_flags(self) -> tuple[str, ...]:
        """Names that are given more than once, in order of their first use."""
        names = [use.name for use in self.flags]
        return tuple(name for name in dict.fromkeys(names) if names.count(name) > 1)

    def effective_env(self) -> dict[str, str]:
        return {assignment.name: assignment.value for assignment in self.env}


@dataclass(frozen=True, kw_only=True)
class LaunchScript:
    """Everything a script exports and starts."""

    assignments: tuple[Assignment, ...]
    commands: tuple[ScriptCommand, ...]
    sourced: tuple[tuple[str, int], ...]


def parse_launch_script(text: str, file: str = "launch script") -> LaunchScript:
    """Raises `InputError` for a script that is too large or has a quote without an end."""
    if len(text) > _MAX_SCRIPT:
        raise InputError(file, 0, 0, f"larger than {_MAX_SCRIPT} bytes; a launch script is a few kilobytes")
    walk = _Walk()
    for command in parse_shell(text, file):
        walk.visit(command)
    return LaunchScript(assignments=tuple(walk.exported), commands=tuple(walk.commands), sourced=tuple(walk.sourced))


class _Walk:
    """The state of one reading, from the first command to the last."""

    def __init__(self) -> None:
        self.exported: list[Assignment] = []
        self.commands: list[ScriptCommand] = []
        self.sourced: list[tuple[str, int]] = []
        self._variables: dict[str, str] = {}
        self._branch: list[int] = []
        self._openers: list[str] = []
        self._branches = 0

    def visit(self, command: SimpleCommand) -> None:
        words = self._structure(list(command.words), command.operator)
        inline: list[Assignment] = []
        while words and (found := _ASSIGNMENT.fullmatch(words[0].text)) and words[0].pieces[0].quote == "":
            inline.append(self._assignment(words.pop(0), found))
        if not words:
            self._variables.update({assignment.name: assignment.value for assignment in inline})
            self._refresh(inline)
            return
        self._statement(words, inline)

    def _refresh(self, assignments: Sequence[Assignment]) -> None:
        """A plain assignment to a name that was exported before changes the exported value."""
        known = {assignment.name for assignment in self.exported}
        self.exported += [assignment for assignment in assignments if assignment.name in known]

    def _statement(self, words: list[Word], inline: list[Assignment]) -> None:
        match words[0].text:
            case "export" | "declare" | "typeset" | "local" | "readonly":
                self._export(words)
            case "unset":
                names = {word.text for word in words[1:]}
                self.exported = [assignment for assignment in self.exported if assignment.name not in names]
            case "source" | ".":
                self.sourced += [(word.text, word.line) for word in words[1:2]]
            case _:
                self._program(words, inline)

    def _export(self, words: list[Word]) -> None:
        for word in words[1:]:
            found = _ASSIGNMENT.fullmatch(word.text)
            if found is not None:
                assignment = self._assignment(word, found)
                self._variables[assignment.name] = assignment.value
            elif word.text in self._variables:
                assignment = Assignment(
                    name=word.text, value=self._variables[word.text], line=word.line, branch=tuple(self._branch)
                )
            else:
                continue
            if words[0].text == "export" or any(word.text == "-x" for word in words):
                self.exported.append(assignment)

    def _assignment(self, word: Word, found: re.Match[str]) -> Assignment:
        value = " ".join(self._expand(word)) if word.pieces else found[2]
        return Assignment(name=found[1], value=value.partition("=")[2], line=word.line, branch=tuple(self._branch))

    def _structure(self, words: list[Word], operator: str) -> list[Word]:
        """Keep track of conditional blocks and take their keywords off."""
        if operator == ")" and self._openers and self._openers[-1] == "case":
            self._next_branch()  # `pattern)`
            return []
        while words and not words[0].is_quoted and self._keyword(words[0].text):
            keyword, *words = words
            if keyword.text in _HEADED:
                return []
        return words

    def _keyword(self, text: str) -> bool:
        """Whether this word belongs to the structure of the script; moves to the branch that it opens or ends."""
        if text in _CLOSERS:
            self._close()
        elif text in ("else", "elif"):
            self._next_branch()
        elif text in _OPENERS:
            self._open(text)
        return text in _CLOSERS | _OPENERS | _MIDDLES

    def _open(self, keyword: str) -> None:
        self._branches += 1
        self._openers.append(keyword)
        self._branch.append(self._branches)

    def _next_branch(self) -> None:
        self._branches += 1
        if self._branch:
            self._branch[-1] = self._branches

    def _close(self) -> None:
        if self._branch:
            self._branch.pop()
            self._openers.pop()

    def _program(self, words: list[Word], inline: list[Assignment]) -> None:
        expanded = [(text, word.line) for word in words for text in self._expand(word)]
        while expanded and (expanded[0][0] in _WRAPPERS or _ASSIGNMENT.fullmatch(expanded[0][0])):
            text, line = expanded.pop(0)
            found = _ASSIGNMENT.fullmatch(text)
            if found is not None:
                inline.append(Assignment(name=found[1], value=found[2], line=line, branch=tuple(self._branch)))
        length = _program_length([text for text, _ in expanded])
        if length is None:
            return
        here = tuple(self._branch)
        reaching = [entry for entry in self.exported if here[: len(entry.branch)] == entry.branch]
        self.commands.append(
            ScriptCommand(
                program=" ".join(text for text, _ in expanded[:length]),
                flags=tuple(_flags(expanded[length:])),
                env=(*reaching, *inline),
                line=words[0].line,
            )
        )

    def _expand(self, word: Word) -> list[str]:
        """The word with the script's own variables in place; an unquoted variable splits on blanks."""
        texts = [""]
        for piece in word.pieces:
            if piece.quote == "'":
                texts[-1] += piece.text
                continue
            text = _VARIABLE.sub(self._value, piece.text)
            if piece.quote == "" and text != piece.text:
                first, *rest = text.split() or [""]
                texts[-1] += first
                texts += rest
            else:
                texts[-1] += text
        return [text for text in texts if text or word.is_quoted]

    def _value(self, found: re.Match[str]) -> str:
        return self._variables.get(found[1] or found[2], found[0])


def _program_length(words: Sequence[str]) -> int | None:
    """How many words name the program: `python3 -m module`, `vllm serve`, `sglang serve`, `smg launch`."""
    for place, word in enumerate(words):
        base = word.rpartition("/")[2]
        if base.startswith(_MODULE_PROGRAMS) and list(words[place + 1 : place + 2]) == ["-m"]:
            return place + 3
        if base in ("vllm", "sglang", "smg", "sglang-router") and place == 0:
            return 2 if list(words[1:2]) in (["serve"], ["launch"]) else 1
    return None


def _flags(words: Sequence[tuple[str, int]]) -> Iterator[FlagUse]:
    name: str | None = None
    values: list[str] = []
    line = 0
    for text, place in words:
        if _FLAG.fullmatch(text) is None:
            values.append(text)
            continue
        if name is not None:
            yield FlagUse(name=name, words=tuple(values), line=line)
        name, has_value, value = text.partition("=")
        values, line = ([value] if has_value else []), place
    if name is not None:
        yield FlagUse(name=name, words=tuple(values), line=line)
