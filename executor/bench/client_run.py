"""What a bench client is told, and the command that tells it: the border between a decision and a process.

Values of a card reach a client as argv items or as Python literals, never through a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.errors import InputError

# AISBench passes its own paths through a shell, so a blank or a quote in them breaks the run it starts.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+@:=-]*")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class ClientLoad:
    """One formal load. Paths are absolute paths on the client's host; `result_dir` is unique to the
    attempt.
    """

    experiment_id: str
    requests: int
    concurrency: int
    rate_per_s: float | None  # None: as fast as the concurrency allows
    seed: int
    output_tokens: int
    tokenizer_path: str
    served_model: str  # "" asks the server
    router_host: str
    router_port: int
    dataset_file: str | None  # None: the client's own synthetic prompts of `input_tokens`
    result_dir: str
    input_tokens: int | None = None
    program: tuple[str, ...] = ()  # how this client starts on its host; () for its usual command
    options: tuple[str, ...] = ()  # further flags that this installation was seen to support

    def __post_init__(self) -> None:
        if not _PLAIN_NAME.fullmatch(self.experiment_id):
            raise InputError("client load", 0, 0, f"experiment id {self.experiment_id!r}: use letters, digits, _.-")
        for path in (self.tokenizer_path, self.result_dir, self.dataset_file or "/"):
            if not _PLAIN_PATH.fullmatch(path) or ".." in path.split("/"):
                raise InputError("client load", 0, 0, f"path {path!r}: absolute, without blanks, quotes or ..")
        if min(self.requests, self.concurrency, self.output_tokens, self.router_port) < 1:
            raise InputError("client load", 0, 0, "requests, concurrency, output tokens and port start at 1")


@dataclass(frozen=True, kw_only=True)
class ClientRun:
    """One client process, complete: nothing of it is decided on the host."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    files_to_upload: Mapping[str, bytes]  # by absolute path
    raw_files: tuple[str, ...]  # glob patterns below the result directory; the reader needs all of them
    stdout: str | None = None  # where the console is kept, below the collected folder, when it is evidence
