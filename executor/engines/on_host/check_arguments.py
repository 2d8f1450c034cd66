"""Would the *installed* server accept these arguments? Asks its own argument parser; starts nothing.

Usage: python3 check_arguments.py ARGUMENT…, the words that would follow `-m sglang.launch_server`.

Writes one JSON object: {"release": …, "accepted": true, "deprecated": ["--x"]} or
{"release": …, "accepted": false, "error": "unrecognized arguments: --x"}; "accepted": null if the parser cannot be
asked. Python 3.8, standard library and the installation only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


class Refused(Exception):
    """The parser said no; the message is its own."""


class AskingParser(argparse.ArgumentParser):
    """Says no without ending the process."""

    def error(self, message: str) -> NoReturn:
        raise Refused(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise Refused(message or f"the parser ends with {status}")


def deprecated_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Given flags whose action only warns; the server would start without their effect."""
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    return sorted(
        flag
        for action in parser._actions
        if "deprecated" in type(action).__name__.lower()
        for flag in action.option_strings
        if flag in given
    )


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
    return {"release": release, "accepted": True, "deprecated": deprecated_flags(parser, words)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(sys.argv[1:])) + "\n")
