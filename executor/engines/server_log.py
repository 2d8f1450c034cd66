"""Server log lines as records: batches, effective sizes, start-up, across the releases 0.5.4 … 0.5.23.

Read by key, never by position: names, order and line ends changed often. Unknown keys are kept as text, a
line that is none of ours is `None`, never an error. Stamps are the host's unzoned clock.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_HEAD = re.compile(r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)(?P<ranks>(?: [A-Z_]+\d+)*)\] (?P<message>.*)")
_BATCH = re.compile(r"(?P<kind>Prefill|Decode) batch(?: \[\d+\])?, (?P<pairs>.*?),?\s*")
_RANK = re.compile(r"([A-Z_]+)(\d+)")
_SIZES = re.compile(r"max_total_num_tokens=\d+, .*")
_PAIR = re.compile(r"(\w+)=(-?[\d.]+)")
_RETRACTION = re.compile(r"KV cache pool is full\. Retract requests\. #retracted_reqs: (\d+)")
_POOL = re.compile(r"KV Cache is allocated\..*?#tokens: (\d+)")
_READY = "The server is fired up and ready to roll!"
_ARGUMENTS = "server_args="
_MAX_LINE = 1 << 20
_ADJUSTMENTS = (" is adjusted ", " is disabled because ", " is forced ", "is disabled for decode server")


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """When and by which ranks a line was written. `at` counts seconds of the host's unzoned clock."""

    at: float
    ranks: Mapping[str, int]

    @property
    def dp_rank(self) -> int:
        return self.ranks.get("DP", 0)


@dataclass(frozen=True, kw_only=True)
class PrefillBatch:
    """One prefill batch of one DP rank. `new_tokens` is rounded up to pages by releases before 0.5.20."""

    stamp: Stamp
    new_sequences: int
    new_tokens: int
    cached_tokens: int
    running: int | None
    waiting: int | None
    pending_tokens: int | None
    bootstrap: int | None
    inflight: int | None
    token_usage: float | None
    graph: bool | None
    input_tok_s: float | None
    fields: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class DecodeBatch:
    """The state of one DP rank at a decode step; written every 40 of its own steps."""

    stamp: Stamp
    running: int
    tokens: int | None
    token_usage: float | None
    waiting: int | None
    prealloc: int | None
    transfer: int | None
    retracted: int | None
    accept_length: float | None
    accept_rate: float | None
    graph: bool | None
    gen_tok_s: float | None
    fields: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EffectiveSizes:
    """The sizes that one DP rank really runs with, after the server's own adjustments."""

    stamp: Stamp
    max_total_tokens: int
    chunked_prefill_size: int | None
    max_prefill_tokens: int | None
    max_running_requests: int | None
    context_length: int | None
    available_gb: float | None


@dataclass(frozen=True, kw_only=True)
class KvPool:
    """The KV pool of one rank, in tokens."""

    stamp: Stamp
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ServerArguments:
    """The resolved arguments that the server prints once. Values that are no literals are kept as text."""

    stamp: Stamp
    values: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """A sentence in which the server says that it changed a setting by itself."""

    stamp: Stamp
    text: str


@dataclass(frozen=True, kw_only=True)
class Retraction:
    """Requests thrown out of a full KV pool; they start again later."""

    stamp: Stamp
    requests: int


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The server says it is ready; it may still fail on its first real request."""

    stamp: Stamp


LogRecord = PrefillBatch | DecodeBatch | EffectiveSizes | KvPool | ServerArguments | Adjustment | Retraction | Ready


def parse_server_log(lines: Iterable[str]) -> Iterator[LogRecord]:
    """The records of a log, in file order. Lines of other programs are passed over."""
    for line in lines:
        record = parse_line(line)
        if record is not None:
            yield record


def parse_line(line: str) -> LogRecord | None:
    """One line. What a progress bar left in front of a carriage return is dropped."""
    text = line.rstrip("\r\n").rpartition("\r")[2][:_MAX_LINE]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    head = _HEAD.fullmatch(text)
    if head is None:
        return None
    stamp = _stamp(head["at"], head["ranks"])
    return None if stamp is None else _record(stamp, head["message"])


def parse_arguments(text: str) -> dict[str, object] | None:
    """The printed arguments: a dict repr (newer) or `ServerArgs(a=1, …)` (older); `None` if neither."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    match tree:
        case ast.Call(keywords=keywords):
            return {keyword.arg: _literal(keyword.value) for keyword in keywords if keyword.arg}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {str(_literal(key)): _literal(value) for key, value in pairs if key is not None}
        case _:
            return None


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _stamp(at: str, ranks: str) -> Stamp | None:
    try:
        seconds = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return Stamp(at=seconds, ranks={name: int(number) for name, number in _RANK.findall(ranks)})


def _record(stamp: Stamp, message: str) -> LogRecord | None:
    if " batch" in message:
        return _batch(stamp, message)
    if message.startswith(_ARGUMENTS):
        values = parse_arguments(message[len(_ARGUMENTS) :])
        return None if values is None else ServerArguments(stamp=stamp, values=values)
    if _SIZES.fullmatch(message):
        return _sizes(stamp, message)
    if (pool := _POOL.match(message)) is not None:
        return KvPool(stamp=stamp, tokens=int(pool[1]))
    if message == _READY:
        return Ready(stamp=stamp)
    if (retraction := _RETRACTION.match(message)) is not None:
        return Retraction(stamp=stamp, requests=int(retraction[1]))
    if any(words in message for words in _ADJUSTMENTS):
        return Adjustment(stamp=stamp, text=message[:300])
    return None


def _batch(stamp: Stamp, message: str) -> PrefillBatch | DecodeBatch | None:
    found = _BATCH.fullmatch(message)
    if found is None:
        return None
    fields = _pairs(found["pairs"])
    return _prefill(stamp, fields) if found["kind"] == "Prefill" else _decode(stamp, fields)


def _pairs(text: str) -> dict[str, str]:
    """`#new-seq: 1, token usage: 0.1` by key; the last `: ` parts a key from its value."""
    pairs = (part.rpartition(": ") for part in text.split(", "))
    return {key.strip(): value.strip().rstrip(",") for key, _, value in pairs if key}


def _prefill(stamp: Stamp, fields: Mapping[str, str]) -> PrefillBatch | None:
    new_sequences, new_tokens = _integer(fields, "#new-seq"), _integer(fields, "#new-token")
    if new_sequences is None or new_tokens is None:
        return None
    return PrefillBatch(
        stamp=stamp,
        new_sequences=new_sequences,
        new_tokens=new_tokens,
        cached_tokens=_integer(fields, "#cached-token") or 0,
        running=_integer(fields, "#running-req"),
        waiting=_integer(fields, "#queue-req"),
        pending_tokens=_integer(fields, "#pending-token"),
        bootstrap=_integer(fields, "#bootstrap-req", "#prealloc-req"),
        inflight=_integer(fields, "#inflight-req"),
        token_usage=_usage(fields),
        graph=_graph(fields),
        input_tok_s=_number(fields, "input throughput (token/s)"),
        fields=fields,
    )


def _decode(stamp: Stamp, fields: Mapping[str, str]) -> DecodeBatch | None:
    running = _integer(fields, "#running-req")
    if running is None:
        return None
    return DecodeBatch(
        stamp=stamp,
        running=running,
        tokens=_integer(fields, "#token", "#full token"),
        token_usage=_usage(fields),
        waiting=_integer(fields, "#queue-req"),
        prealloc=_integer(fields, "#prealloc-req"),
        transfer=_integer(fields, "#transfer-req"),
        retracted=_integer(fields, "#retracted-req"),
        accept_length=_number(fields, "accept len"),
        accept_rate=_number(fields, "accept rate"),
        graph=_graph(fields),
        gen_tok_s=_number(fields, "gen throughput (token/s)"),
        fields=fields,
    )


def _sizes(stamp: Stamp, message: str) -> EffectiveSizes:
    values = dict(_PAIR.findall(message))
    return EffectiveSizes(
        stamp=stamp,
        max_total_tokens=int(values["max_total_num_tokens"]),
        chunked_prefill_size=_integer(values, "chunked_prefill_size"),
        max_prefill_tokens=_integer(values, "max_prefill_tokens"),
        max_running_requests=_integer(values, "max_running_requests"),
        context_length=_integer(values, "context_len"),
        available_gb=_number(values, "available_gpu_mem", "available_cpu_mem", "available_npu_mem"),
    )


def _usage(fields: Mapping[str, str]) -> float | None:
    """KV pool usage; models with a second pool print it as the full one, and their state pool is not it."""
    return _number(fields, "token usage", "full token usage")


def _graph(fields: Mapping[str, str]) -> bool | None:
    # Releases up to 0.5.8 write "cpu graph" on an NPU as well: the label says nothing about the device.
    text = next((value for key, value in fields.items() if key.endswith(" graph")), None)
    return None if text not in {"True", "False"} else text == "True"


def _integer(fields: Mapping[str, str], *names: str) -> int | None:
    number = _number(fields, *names)
    return None if number is None else int(number)


def _number(fields: Mapping[str, str], *names: str) -> float | None:
    text = next((fields[name] for name in names if name in fields), None)
    try:
        number = None if text is None else float(text)
    except ValueError:
        return None
    return number if number is not None and number - number == 0 else None  # inf and NaN are no figures
