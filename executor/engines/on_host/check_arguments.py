"""Would the *installed* server accept these arguments? Asks its own argument parser; starts nothing.

Usage: python3 check_arguments.py ARGUMENT…, the words that would follow `-m sglang.launch_server`.

Writes one JSON object: {"release": …, "accepted": true, "deprecated": ["--x"], "ignored": ["--y"]} or
{"release": …, "accepted": false, "error": "unrecognized arguments: --x"}; "accepted": null if the parser cannot be
asked. "source" is what identifies the installation beyond its number: the commit it was built from where that is
known, else a digest over the hashes of its files. Python 3.8, standard library and the installation only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

WARNS_ONLY = "DeprecatedAction"  # the engine's own name for the action of a flag that has become a no-op


class Refused(Exception):
    """The parser said no; the message is its own."""


class AskingParser(argparse.ArgumentParser):
    """Says no without ending the process."""

    def error(self, message: str) -> NoReturn:
        raise Refused(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise Refused(message or f"the parser ends with {status}")


def retired_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> dict[str, list[str]]:
    """Given flags that are retired: those that still do something, and those whose action only warns."""
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    found: dict[str, list[str]] = {"deprecated": [], "ignored": []}
    for action in parser._actions:
        kind = type(action).__name__
        if "deprecated" in kind.lower():
            flags = [flag for flag in action.option_strings if flag in given]
            found["ignored" if kind == WARNS_ONLY else "deprecated"] += flags
    return {name: sorted(flags) for name, flags in found.items()}


def installed_source() -> str | None:
    """`commit:…` of an installation from version control or of a checkout, `files:…` of a wheel."""
    try:
        found = importlib.metadata.distribution("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id") or checkout_commit(str(origin.get("url", "")))
    if commit:
        return "commit:" + str(commit)[:16]
    listed = found.read_text("RECORD")
    return "files:" + hashlib.sha256(listed.encode()).hexdigest()[:16] if listed else None


def checkout_commit(url: str) -> str | None:
    """The commit of the checkout that an editable installation points to."""
    if not url.startswith("file://"):
        return None
    start = pathlib.Path(url[len("file://") :])
    for folder in [start, *start.parents]:
        head = folder / ".git" / "HEAD"
        if head.is_file():
            text = head.read_text(encoding="utf-8").strip()
            name = text[len("ref: ") :] if text.startswith("ref: ") else None
            branch = folder / ".git" / name if name else None
            return branch.read_text(encoding="utf-8").strip() if branch and branch.is_file() else text
    return None


def answer(words: Sequence[str]) -> dict[str, Any]:
    release = None
    try:
        release = getattr(importlib.import_module("sglang.version"), "__version__", None)
        arguments = importlib.import_module("sglang.srt.server_args").ServerArgs
        parser = AskingParser(prog="launch_server.py")
        arguments.add_cli_args(parser)
    except (ImportError, AttributeError, OSError, RuntimeError, TypeError, ValueError) as error:
        return {"release": release, "accepted": None, "error": f"{type(error).__name__}: {error}"}
    try:
        parser.parse_args(list(words))
    except Refused as refusal:
        return {"release": release, "accepted": False, "error": str(refusal)}
    return {"release": release, "source": installed_source(), "accepted": True, **retired_flags(parser, words)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(sys.argv[1:])) + "\n")
