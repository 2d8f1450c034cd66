"""Questions to the installed engine on its host, and what its answers mean. Pure: the programs run elsewhere.

Two questions: does the installed parser accept the command line, and how many prefill batches does the installed
admission code form before and after a change. An answer shows that a mechanism can be reached, never a speed-up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from executor.engines.redaction import redact_line
from executor.engines.release import Release, parse_release
from executor.engines.role_settings import DEFAULT_MAX_PREFILL_TOKENS, NPU_PAGE, RoleSettings
from executor.engines.violation import Workload
from experiments.serving_config import Role, ServingConfig

ADMISSION_PROGRAM = "count_prefill_batches.py"
ARGUMENT_PROGRAM = "check_arguments.py"
_MAX_ANSWER = 1 << 20


class Reach(StrEnum):
    """Whether the installed scheduler does with the change what the card expects of it."""

    REACHABLE = "reachable"  # another number of batches
    NOT_REACHABLE = "not_reachable"  # the same batches: the change does nothing here
    UNKNOWN = "unknown"  # this build could not be asked


@dataclass(frozen=True, kw_only=True)
class AdmissionCount:
    """Batches that one DP rank forms for its share of the load; tokens per request in the first of them."""

    batches: int
    tokens: int
    first: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class AdmissionVerdict:
    """The comparison before and after, with a sentence for the card's page."""

    reach: Reach
    release: str | None
    before: AdmissionCount | None
    after: AdmissionCount | None
    message: str


@dataclass(frozen=True, kw_only=True)
class ArgumentVerdict:
    """What the installed parser says. `accepted` None: it could not be asked."""

    accepted: bool | None
    release: Release | None
    deprecated: tuple[str, ...]  # accepted under a name that will go
    ignored: tuple[str, ...]  # accepted, and without any effect
    source: str | None  # identity of the installation: `commit:…` or `files:…`
    message: str


def compile_admission_question(
    before: ServingConfig, after: ServingConfig, role: Role, workload: Workload, requests: int
) -> str | None:
    """The argument of the admission program; `None` where prompt or chunk are not known."""
    views = [RoleSettings.of(config, role) for config in (before, after)]
    if workload.prompt_tokens is None or any(view.chunk is None for view in views):
        return None
    share = max(1, requests // views[0].dp)
    question = {
        "requests": share,
        "prompt_tokens": workload.prompt_tokens,
        "cached_tokens": workload.cached_tokens,
        "variants": [_variant(view) for view in views],
    }
    return json.dumps(question, sort_keys=True)


def _variant(view: RoleSettings) -> dict[str, object]:
    return {
        "cap": view.integer("prefill-max-requests"),
        "chunk": view.chunk,
        "page": view.page or NPU_PAGE,
        "max_prefill_tokens": view.integer("max-prefill-tokens") or DEFAULT_MAX_PREFILL_TOKENS,
        "radix_cache": view.has_radix_cache,
    }


def judge_admission(answer: str) -> AdmissionVerdict:
    """Read the program's answer. Anything but two conserved counts is `unknown`, with its reason."""
    document = _document(answer)
    release = _text(document.get("release"))
    counts = _counts(document.get("counts"))
    if len(counts) != 2:
        reason = _text(document.get("error")) or "the answer holds no two counts"
        message = f"this build ({release or 'release unknown'}) could not be asked: {redact_line(reason)}"
        return AdmissionVerdict(reach=Reach.UNKNOWN, release=release, before=None, after=None, message=message)
    before, after = counts
    reach = Reach.NOT_REACHABLE if before.batches == after.batches else Reach.REACHABLE
    return AdmissionVerdict(
        reach=reach, release=release, before=before, after=after, message=_sentence(reach, release, before, after)
    )


def _sentence(reach: Reach, release: str | None, before: AdmissionCount, after: AdmissionCount) -> str:
    figures = f"{before.batches} → {after.batches} prefill batches per rank for {before.tokens} tokens"
    where = f"installed scheduler {release or 'of unknown release'}"
    if reach is Reach.NOT_REACHABLE:
        return f"mechanism not reachable in this build: {figures} ({where})"
    return f"mechanism reachable: {figures} ({where}); this says nothing about speed"


def judge_arguments(answer: str) -> ArgumentVerdict:
    """Read the parser's answer. A retired flag may be accepted and have no effect, so it is named apart."""
    document = _document(answer)
    accepted = document.get("accepted")
    deprecated, ignored = (_names(document.get(key)) for key in ("deprecated", "ignored"))
    error = _text(document.get("error"))
    message = f"{', '.join(deprecated)}: deprecated in this build" if deprecated else ""
    return ArgumentVerdict(
        accepted=accepted if isinstance(accepted, bool) else None,
        release=parse_release(_text(document.get("release"))),
        deprecated=deprecated,
        ignored=ignored,
        source=_text(document.get("source")),
        message=redact_line(error) if error else message,
    )


def _document(answer: str) -> Mapping[str, object]:
    """The last line that is a JSON object; what imports print before it is passed over."""
    for line in reversed(answer[-_MAX_ANSWER:].splitlines()):
        if line.startswith("{"):
            try:
                document = json.loads(line)
            except ValueError:
                continue
            return document if isinstance(document, dict) else {}
    return {}


def _counts(entries: object) -> tuple[AdmissionCount, ...]:
    found = []
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case {"batches": int() as batches, "tokens": int() as tokens, "first": list() as first}:
                shown = tuple(tuple(batch) for batch in first if isinstance(batch, list))
                found.append(AdmissionCount(batches=batches, tokens=tokens, first=shown))
    return tuple(found)


def _names(listed: object) -> tuple[str, ...]:
    return tuple(str(flag) for flag in listed) if isinstance(listed, list) else ()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
