"""Why a launch or a run failed, from all files of one incident. Pure; names a cause, decides no route.

The root is often in another file than the last error, and clocks of files differ by hours: files are weighed by how
near to the root their wording stands, never by time. No sighting is `unrecognised`, which is a proper answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from executor.engines.failure_kinds import (
    CONFIGURATION_CAUSED,
    OUT_OF_MEMORY,
    PATTERNS,
    Distance,
    FailureKind,
    Source,
)
from executor.engines.redaction import redact_line

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(
    r"(?:\[\d+\] )?\[\d{4}-\d\d-\d\d[ -]\d\d:\d\d:\d\d(?:[.:]\d+)?(?: [A-Z_]+\d+)*\] "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ - [A-Z]+ - "
    r"|\[rank\d+\]: ?"
)
_RANKS = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?((?: [A-Z_]+\d+)+)\]")
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)|Exception)(?:: (?P<message>.*))?")
_COMPONENT = r"(?:Scheduler|TpModelWorkerClient|DetokenizerManager|TokenizerManager|DataParallelController)"
_HIT = re.compile(_COMPONENT + r" hit an exception: ")
_QUIET = ("Decode batch", "Prefill batch", "INFO: ")
_TRACEBACK = "Traceback (most recent call last):"
_READY = "The server is fired up and ready to roll!"
_MEMORY = re.compile(
    r"(?P<total>[\d.]+) GiB total capacity; .*?"
    r"(?P<free>[\d.]+) (?P<unit>[MG])iB free; (?P<reserved>[\d.]+) GiB reserved"
)
_FOREIGN_SHARE = 0.4  # of the device held by neither the free list nor our allocator: somebody else has it
_MAX_LINE = 4096
_ARGUMENT_CODE = ("/server_args.py", "/arg_groups/")
_ARGUMENT_ERRORS = frozenset({"AssertionError", "ValueError", "NotImplementedError"})
# Raised by the process that notices another one's end.
_AFTERMATH = re.compile(
    r"(?:EOFError|BrokenPipeError|ConnectionResetError|KeyboardInterrupt|SystemExit|asyncio\.CancelledError)\b"
    r"|RuntimeError: Initialization failed\. Please see the error messages above"
    r"|RuntimeError: Rank \d+ scheduler (?:is dead|died)|AssertionError: res="
    r"|\w+: (?:Server process exited with code|Failed to start \w+ node|retry\(\) exceed)"
)


@dataclass(frozen=True, kw_only=True)
class IncidentFile:
    """One file of an incident: who wrote it and what."""

    name: str
    source: Source
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The one cause of an incident. `evidence` is a redacted line; `occurrences` counts it over ranks and files."""

    kind: FailureKind
    configuration_caused: bool
    evidence: str
    file: str | None
    occurrences: int = 0
    ranks: int = 0


@dataclass(frozen=True, kw_only=True)
class _Sighting:
    kind: FailureKind | None
    distance: Distance
    line: str
    file: str
    rank: str | None


def classify_failure(files: Sequence[IncidentFile], signals: Mapping[str, int] | None = None) -> Cause:
    """`signals`: by file name, the signal that ended its process, where the host's supervisor knows it."""
    sightings = [sighting for file in _by_source(files) for sighting in _sightings(file)]
    sightings += [
        _Sighting(
            kind=FailureKind.KILLED_BY_SIGNAL,
            distance=Distance.ABORT,
            line=f"ended by signal {signal}",
            file=name,
            rank=None,
        )
        for name, signal in (signals or {}).items()
    ]
    named = [sighting for sighting in sightings if sighting.kind is not None]
    if not named:
        return _unrecognised(sightings)
    return _cause(min(named, key=lambda sighting: sighting.distance), named)


def source_of(name: str) -> Source:
    """The usual writer of a file, by its name and, for a client, its folder."""
    base = name.rpartition("/")[2].lower()
    if "router" in base or "gateway" in base:
        return Source.ROUTER
    if any(word in name.lower() for word in ("bench", "client")):
        return Source.CLIENT
    if any(word in base for word in ("dmesg", "kern", "supervisor", "messages")):
        return Source.HOST
    return Source.SERVER


def _cause(first: _Sighting, named: Sequence[_Sighting]) -> Cause:
    assert first.kind is not None  # noqa: S101 — `named` holds nothing else
    same = [sighting for sighting in named if sighting.kind is first.kind]
    return Cause(
        kind=first.kind,
        configuration_caused=first.kind in CONFIGURATION_CAUSED,
        evidence=redact_line(first.line),
        file=first.file,
        occurrences=len(same),
        ranks=len({(sighting.file, sighting.rank) for sighting in same}),
    )


def _unrecognised(symptoms: Sequence[_Sighting]) -> Cause:
    first = symptoms[0] if symptoms else None
    return Cause(
        kind=FailureKind.UNRECOGNISED,
        configuration_caused=False,
        evidence=redact_line(first.line) if first else "",
        file=first.file if first else None,
        occurrences=len(symptoms),
    )


def _by_source(files: Iterable[IncidentFile]) -> list[IncidentFile]:
    """Servers first: of two sightings at one distance, the nearer program's counts."""
    return sorted(files, key=lambda file: list(Source).index(file.source))


@dataclass
class _Reading:
    """Where in a file the scan stands."""

    is_ready: bool = False
    in_component: bool = False  # the traceback was announced by a component of the server
    in_traceback: bool = False
    in_argument_code: bool = False
    rank: str | None = None


def _sightings(file: IncidentFile) -> Iterator[_Sighting]:
    reading = _Reading()
    for raw in file.lines:
        line = raw.rstrip("\r\n").rpartition("\r")[2][:_MAX_LINE]
        text = _ANSI.sub("", line) if "\x1b" in line else line
        found = _RANKS.match(text)
        message = _PREFIX.sub("", text, count=1) if _PREFIX.match(text) else text
        reading.rank = found[1] if found else reading.rank
        if _advance(reading, message):
            continue
        sighting = _sight(file, reading, message)
        if sighting is not None:
            yield sighting


def _advance(reading: _Reading, message: str) -> bool:
    """Move the scan over a line that tells only where we are; False if the line has to be looked at."""
    if message == _READY:
        reading.is_ready = True
        return True
    announced = _HIT.match(message)
    if announced is not None or message.endswith(_TRACEBACK):
        reading.in_component = announced is not None or (reading.in_component and reading.in_traceback)
        reading.in_traceback, reading.in_argument_code = True, False
        return message.endswith(_TRACEBACK)
    if message.startswith('  File "'):
        reading.in_argument_code = any(code in message for code in _ARGUMENT_CODE)
        return True
    return message.startswith(_QUIET) or not message or (message.startswith("    ") and reading.in_traceback)


def _sight(file: IncidentFile, reading: _Reading, message: str) -> _Sighting | None:
    exception = _EXCEPTION.fullmatch(message)
    if _AFTERMATH.match(message):
        return None
    kind, distance = _match(file.source, reading, message)
    if kind is None and exception is not None and file.source is Source.SERVER and reading.in_traceback:
        kind, distance = _exception(exception["type"], reading)
    if exception is not None:
        reading.in_traceback = False
    if distance is None:
        return None
    return _Sighting(kind=kind, distance=distance, line=message, file=file.name, rank=reading.rank)


def _match(source: Source, reading: _Reading, message: str) -> tuple[FailureKind | None, Distance | None]:
    if source is Source.SERVER and OUT_OF_MEMORY.match(message):
        return _out_of_memory(reading, message), Distance.ROOT
    for pattern in PATTERNS:
        if source in pattern.sources and pattern.wording.match(message):
            return _in_phase(pattern.kind, pattern.distance, reading)
    return None, None


def _in_phase(kind: FailureKind | None, distance: Distance, reading: _Reading) -> tuple[FailureKind | None, Distance]:
    """Communication that breaks after a server was ready is what the others see of a dead peer."""
    if kind is FailureKind.HCCL_INIT and reading.is_ready:
        return FailureKind.PEER_MISSING, Distance.CONSEQUENCE
    return kind, distance


def _out_of_memory(reading: _Reading, message: str) -> FailureKind:
    found = _MEMORY.search(message)
    if found is not None:
        free = float(found["free"]) / (1024 if found["unit"] == "M" else 1)
        total = float(found["total"])
        if total - free - float(found["reserved"]) > _FOREIGN_SHARE * total:
            return FailureKind.DEVICE_BUSY
    return FailureKind.OOM_IN_RUN if reading.is_ready else FailureKind.OOM_AT_LOAD


def _exception(name: str, reading: _Reading) -> tuple[FailureKind, Distance]:
    bare = name.rpartition(".")[2]
    if not reading.is_ready and bare in _ARGUMENT_ERRORS and (bare == "AssertionError" or reading.in_argument_code):
        return FailureKind.ASSERTION_ON_ARGUMENTS, Distance.ROOT
    if reading.in_component:
        return FailureKind.SCHEDULER_EXCEPTION, Distance.ABORT
    if not reading.is_ready:
        return FailureKind.STARTUP_EXCEPTION, Distance.CONSEQUENCE
    return FailureKind.SCHEDULER_EXCEPTION, Distance.CONSEQUENCE
