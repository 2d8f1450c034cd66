"""What a short profile of a server says, from its traces: conclusions only. The traces do not leave the host.

Usage: python3 summarise_profile.py FOLDER [--wait SECONDS] [--remove]

Reads chrome traces (`*.json.gz` of torch, `trace_view.json` of torch_npu) below FOLDER and writes one JSON object:
{"traces": 2, "read": 2, "basis": "device", "span_s": …, "events": …, "idle": 0.1, "families": {"attention": 0.4, …},
"top": [{"name": …, "family": …, "share": …, "calls": …}]}, or {"error": …}. Families are shares of the time in which
operators ran, each by its own time without what it called; idle is the share of the span in which none ran.
Python 3.8, standard library only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

MAX_TRACES = 4  # ranks do the same; a few stand for all
MAX_BYTES = 1 << 30  # of one trace, unpacked
TOP = 5
SETTLED_S = 2.0
DEVICE_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}
DEVICE_PROCESSES = {"Ascend Hardware"}
# The first that fits names the family.
FAMILIES = [
    (
        "communication",
        r"hccl|nccl|gloo|c10d|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|allto|broadcast|dispatch|combine|p2p"
        r"|notify|_send|_recv",
    ),
    ("moe", r"moe|expert|grouped_?mat_?mul|\bgmm|gating|topk_softmax|finalize_?routing|init_?routing"),
    ("attention", r"attention|attn|\bfia\b|flash|mla|paged|rope|rotary|kv_?cache|sdpa"),
    ("sampling", r"sampl|argmax|multinomial|top_?k|top_?p|logits|softmax"),
    ("matmul", r"mat_?mul|gemm|gemv|linear|addmm|\bmm\b|bmm"),
]
_FAMILIES = [(name, re.compile(words, re.IGNORECASE)) for name, words in FAMILIES]


def family_of(name: str) -> str:
    return next((family for family, words in _FAMILIES if words.search(name)), "other")


def shorten(name: str) -> str:
    """The class of a kernel: no template arguments, no counters, nothing that is not part of a name."""
    bare = re.sub(r"<.*", "", name)
    bare = re.sub(r"[^\w:.]+", " ", bare).strip()
    return re.sub(r"(?:_\d+|_0x[0-9a-f]+)+$", "", bare)[:60] or "unnamed"


def find_traces(folder: pathlib.Path) -> list[pathlib.Path]:
    found = [*folder.rglob("*.json.gz"), *folder.rglob("trace_view.json"), *folder.rglob("*.pt.trace.json")]
    return sorted(set(found))


def await_traces(folder: pathlib.Path, seconds: float) -> list[pathlib.Path]:
    """The traces once their sizes stand still; a server writes them after it stopped profiling."""
    deadline, since = time.monotonic() + seconds, time.monotonic()
    before: list[tuple[str, int]] = []
    while True:
        found = find_traces(folder)
        sizes = [(str(path), path.stat().st_size) for path in found]
        if sizes != before:
            before, since = sizes, time.monotonic()
        if (found and time.monotonic() - since >= min(SETTLED_S, seconds)) or time.monotonic() >= deadline:
            return found
        threading.Event().wait(0.2)


def read_trace(path: pathlib.Path) -> list[dict[str, Any]]:
    with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else packed as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(path.name + " is too large")
    body = json.loads(data)
    events = body.get("traceEvents", []) if isinstance(body, dict) else body
    return [event for event in events if isinstance(event, dict)]


def pick_events(events: Sequence[dict[str, Any]]) -> tuple[str, dict[Any, list[tuple[float, float, str]]]]:
    """Complete events by stream: of the device where there is one, else the operators of the processor."""
    processes = {
        event.get("pid"): (event.get("args") or {}).get("name")
        for event in events
        if event.get("ph") == "M" and event.get("name") == "process_name"
    }

    def is_device(event: dict[str, Any]) -> bool:
        return event.get("cat") in DEVICE_CATEGORIES or processes.get(event.get("pid")) in DEVICE_PROCESSES

    device = by_stream(filter(is_device, events))
    return ("device", device) if device else ("processor", by_stream(e for e in events if e.get("cat") == "cpu_op"))


def by_stream(events: Iterable[dict[str, Any]]) -> dict[Any, list[tuple[float, float, str]]]:
    streams: dict[Any, list[tuple[float, float, str]]] = {}
    for event in events:
        if event.get("ph") != "X":
            continue
        start, length = float(event.get("ts", 0)), float(event.get("dur", 0))
        key = (str(event.get("pid")), str(event.get("tid")))
        streams.setdefault(key, []).append((start, start + length, str(event.get("name", ""))))
    return {key: sorted(found, key=lambda e: (e[0], -e[1])) for key, found in streams.items()}


def own_times(events: Sequence[tuple[float, float, str]]) -> Iterator[tuple[str, float]]:
    """The time of each event without the events inside it. `events` of one stream, in order of their starts."""
    stack: list[list[Any]] = []  # name, end, own time
    for start, end, name in events:
        while stack and stack[-1][1] <= start:
            done = stack.pop()
            yield done[0], done[2]
        if stack:
            stack[-1][2] -= min(end, stack[-1][1]) - start
        stack.append([name, end, end - start])
    for done in reversed(stack):
        yield done[0], done[2]


def busy_time(events: Iterable[tuple[float, float, str]]) -> float:
    """The length of the union of the events."""
    total, reached = 0.0, float("-inf")
    for start, end, _ in sorted(events):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def summarise(traces: Sequence[pathlib.Path]) -> dict[str, Any]:
    """Over several traces: times are added, the span of each counts once."""
    own: dict[str, list[float]] = {}  # class of kernels → time, calls
    span = busy = 0.0
    count, basis = 0, set()
    for path in traces[:MAX_TRACES]:
        name, streams = pick_events(read_trace(path))
        everything = [event for events in streams.values() for event in events]
        if not everything:
            continue
        basis.add(name)
        count += len(everything)
        span += max(end for _, end, _ in everything) - min(start for start, _, _ in everything)
        busy += busy_time(everything)
        for events in streams.values():
            for kernel, seconds in own_times(events):
                entry = own.setdefault(shorten(kernel), [0.0, 0])
                entry[0] += max(0.0, seconds)
                entry[1] += 1
    if not count or span <= 0:
        return {"error": "the traces hold no operators"}
    return {
        "traces": len(traces),
        "read": min(len(traces), MAX_TRACES),
        "basis": "+".join(sorted(basis)),
        "span_s": round(span / 1e6, 6),
        "events": count,
        "idle": round(max(0.0, 1 - busy / span), 4),
        **shares(own),
    }


def shares(own: dict[str, list[float]]) -> dict[str, Any]:
    total = sum(seconds for seconds, _ in own.values()) or 1.0
    families: dict[str, float] = {}
    for name, (seconds, _) in own.items():
        families[family_of(name)] = families.get(family_of(name), 0.0) + seconds / total
    ordered = sorted(own.items(), key=lambda item: (-item[1][0], item[0]))[:TOP]
    top = [
        {"name": name, "family": family_of(name), "share": round(seconds / total, 4), "calls": int(calls)}
        for name, (seconds, calls) in ordered
    ]
    return {"families": {name: round(share, 4) for name, share in sorted(families.items())}, "top": top}


def answer(words: Sequence[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--remove", action="store_true")
    options = parser.parse_args(words)
    try:
        traces = await_traces(options.folder, options.wait)
        if not traces:
            return {"error": "the server left no trace"}
        return summarise(traces)
    except (OSError, ValueError, EOFError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        if options.remove and os.path.isdir(str(options.folder)):
            shutil.rmtree(str(options.folder), ignore_errors=True)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(sys.argv[1:])) + "\n")
