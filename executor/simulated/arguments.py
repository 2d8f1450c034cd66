"""The command line of the simulated server: the options of a real release, read by argparse as the real one does.

`surface/server_options.json` lists names, defaults, types and choices of release 0.5.23; older releases differ by the
few options below.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_OPTIONS = Path(__file__).parent / "surface" / "server_options.json"

Version = tuple[int, ...]

# Options that came, went or were renamed within 0.5.6 … 0.5.23.
_SINCE: dict[str, Version] = {"--prefill-max-requests": (0, 5, 7), "--attn-dp-size": (0, 5, 20)}
_OLD_NAMES: tuple[tuple[str, str, Version], ...] = (
    ("--cuda-graph-max-bs", "cuda_graph_max_bs_decode", (0, 5, 18)),
    ("--cuda-graph-bs", "cuda_graph_bs_decode", (0, 5, 18)),
    ("--prefill-round-robin-balance", "prefill_round_robin_balance", (0, 5, 19)),
)


def parse_version(text: str) -> Version:
    """`0.5.12.post1` → (0, 5, 12); what is no number ends the version."""
    numbers: list[int] = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def build_parser(version: str) -> argparse.ArgumentParser:
    """The parser of release `version`; abbreviations are allowed, as there."""
    parser = argparse.ArgumentParser(prog="launch_server.py")
    release = parse_version(version)
    known: set[str] = set()
    for option in json.loads(_OPTIONS.read_text(encoding="utf-8")):
        if all(release >= _SINCE.get(name, ()) for name in option["names"]):
            known.update(option["names"])
            _add(parser, option)
    _add_old_names(parser, release)
    return parser


def _add_old_names(parser: argparse.ArgumentParser, release: Version) -> None:
    for name, dest, last in _OLD_NAMES:
        if release > last:
            continue
        if dest == "prefill_round_robin_balance":
            parser.add_argument(name, dest=dest, action="store_true")
        else:
            parser.add_argument(name, dest=dest, type=int, nargs=None if name.endswith("max-bs") else "+")


def _add(parser: argparse.ArgumentParser, option: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"dest": option["dest"], "default": option["default"]}
    match option["kind"]:
        case "true":
            settings["action"] = "store_true"
        case "bool":
            settings["action"] = argparse.BooleanOptionalAction
            option["names"] = [name for name in option["names"] if not name.startswith("--no-")]
        case _:
            settings |= {"type": _TYPES[option.get("type", "str")], "choices": option.get("choices")}
            settings["nargs"] = option.get("nargs")
    parser.add_argument(*option["names"], **settings)


def _human_readable_int(text: str) -> int:
    suffixes = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    if text and text[-1] in suffixes:
        return int(float(text[:-1]) * suffixes[text[-1]])
    return int(text)


_TYPES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _human_readable_int,
    "float": float,
    "json": json.loads,
}


def parse(argv: Sequence[str], version: str) -> dict[str, Any]:
    """The options as the release would read them; leaves with argparse's own message and exit code 2."""
    parsed = vars(build_parser(version).parse_args(list(argv)))
    if parsed.get("model_path") is None:
        build_parser(version).error("the following arguments are required: --model-path/--model")
    return parsed
