"""Names and values of server flags: one spelling per flag, and how a value becomes words of an argument list.

Guards: no value can become a flag, a second argument or a shell word; what cannot be rendered is refused.
"""

from __future__ import annotations

import re

from executor.engines.release import Release
from experiments.errors import InputError
from experiments.serving_config import Kind, Role, Value

_SOURCE = "serving configuration"
_FLAG_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_VALUE = 4096

# Second spellings that argparse accepts, by option alias or by unambiguous prefix.
ALIASES = {
    "attention-data-parallel-size": "attn-dp-size",
    "context-len": "context-length",
    "data-parallel-size": "dp-size",
    "dp": "dp-size",
    "ep": "ep-size",
    "expert-parallel-size": "ep-size",
    "model": "model-path",
    "moe-dense-tp": "moe-dense-tp-size",
    "nccl-init-addr": "dist-init-addr",
    "pipeline-parallel-size": "pp-size",
    "pp": "pp-size",
    "tensor-parallel-size": "tp-size",
    "tp": "tp-size",
    "tokenizer": "tokenizer-path",
}

# Flags that take one or more words; every other value stays one word however many blanks it holds.
LIST_FLAGS = frozenset(
    {
        "bucket-e2e-request-latency",
        "bucket-inter-token-latency",
        "bucket-time-to-first-token",
        "cuda-graph-bs",
        "cuda-graph-bs-decode",
        "cuda-graph-bs-prefill",
        "debug-tensor-dump-layers",
        "decode",
        "gc-threshold",
        "generation-tokens-buckets",
        "lora-paths",
        "lora-target-modules",
        "numa-node",
        "prefill",
        "prompt-tokens-buckets",
    }
)

# Renamed in the release given: before it the first name holds, from it on the second.
RENAMED: dict[str, tuple[str, Release]] = {
    "cuda-graph-bs": ("cuda-graph-bs-decode", Release(0, 5, 20)),
    "cuda-graph-max-bs": ("cuda-graph-max-bs-decode", Release(0, 5, 20)),
}
REMOVED: dict[str, tuple[Release, str]] = {
    "prefill-round-robin-balance": (Release(0, 5, 20), "use load-balance-method on the decode side"),
    "enable-ep-moe": (Release(0, 5, 20), "use ep-size"),
    "enable-deepep-moe": (Release(0, 5, 20), "use moe-a2a-backend deepep"),
}
IGNORED: dict[str, tuple[Release, str]] = {
    "prefill-round-robin-balance": (Release(0, 5, 8), "it is read and does nothing"),
}
INTRODUCED: dict[str, Release] = {
    "prefill-max-requests": Release(0, 5, 7),
    "cuda-graph-bs-decode": Release(0, 5, 15),
    "cuda-graph-max-bs-decode": Release(0, 5, 15),
    "attn-dp-size": Release(0, 5, 20),
}


def normalise_flag(name: str) -> str:
    """`--max_running_requests`, `max-running-requests` → `max-running-requests`; aliases to the full name."""
    bare = name.strip().lstrip("-").replace("_", "-").lower()
    return ALIASES.get(bare, bare)


def render_flag(role: Role, name: str, value: Value) -> tuple[str, ...]:
    """The words of one flag: none if it is absent. True is a bare flag; False and None mean absent."""
    flag = normalise_flag(name)
    if not _FLAG_NAME.fullmatch(flag):
        raise InputError(_SOURCE, 0, 0, f"{role}.{Kind.FLAG}.{name}: not a flag name")
    match value:
        case None | False:
            return ()
        case True:
            return (f"--{flag}",)
        case _:
            text = render_value(f"{role}.{Kind.FLAG}.{name}", value)
    words = tuple(text.split()) if flag in LIST_FLAGS else (text,)
    _refuse_hidden_flag(f"{role}.{Kind.FLAG}.{name}", words)
    return (f"--{flag}", *words)


def render_env(role: Role, name: str, value: Value) -> str | None:
    """The text of one environment variable; `None` if it is absent. True and False are 1 and 0."""
    path = f"{role}.{Kind.ENV}.{name}"
    if not _ENV_NAME.fullmatch(name):
        raise InputError(_SOURCE, 0, 0, f"{path}: not the name of an environment variable")
    match value:
        case None:
            return None
        case bool():
            return "1" if value else "0"
        case _:
            return render_value(path, value)


def render_value(path: str, value: Value) -> str:
    """One value as text. Raises `InputError` for control characters and for more than 4096 characters."""
    text = value if isinstance(value, str) else str(value)
    if _UNSAFE.search(text):
        raise InputError(_SOURCE, 0, 0, f"{path}: the value holds a control character")
    if len(text) > _MAX_VALUE:
        raise InputError(_SOURCE, 0, 0, f"{path}: the value is longer than {_MAX_VALUE} characters")
    if not text.strip():
        raise InputError(_SOURCE, 0, 0, f"{path}: the value is empty; remove the setting to unset it")
    return text


def _refuse_hidden_flag(path: str, words: tuple[str, ...]) -> None:
    hidden = next((word for word in words if word.startswith("-") and not _NUMBER.fullmatch(word)), None)
    if hidden is not None:
        raise InputError(_SOURCE, 0, 0, f"{path}: the value {hidden[:40]!r} would be read as a flag")
