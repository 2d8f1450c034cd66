"""Log lines as the real server of a release prints them. Text only; the caller decides when and where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from executor.simulated.arguments import Version, parse_version
from executor.simulated.model.admission import page_ceil


@dataclass(frozen=True, kw_only=True)
class LogStyle:
    """What of the format depends on the release and on the server."""

    version: str
    mode: str  # "null", "prefill", "decode"
    dp: int
    tp: int
    ep: int
    dp_attention: bool
    page: int
    pool_tokens: int
    width: int
    log_requests: bool = False

    @property
    def release(self) -> Version:
        return parse_version(self.version)

    @property
    def graph_label(self) -> str:
        return "npu graph" if self.release >= (0, 5, 10) else "cpu graph"

    @property
    def tail(self) -> str:
        return "" if self.release >= (0, 5, 10) else ", "


def stamp(seconds: float) -> str:
    """`[2026-11-30 05:31:05` without the closing bracket, local time being UTC."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("[%Y-%m-%d %H:%M:%S")


def rank_prefix(style: LogStyle, rank: int) -> str:
    """` DP3 TP3 EP3`: each part only where that size is above one."""
    per_rank = max(1, style.tp // style.dp) if style.dp_attention else style.tp
    first = rank * per_rank if style.dp_attention else 0
    parts = [(style.dp, "DP", rank), (style.tp, "TP", first), (style.ep, "EP", first)]
    return "".join(f" {name}{number}" for size, name, number in parts if size > 1)


def prefill_line(style: LogStyle, row: Sequence[Any], at: float, seconds: float) -> str:
    """One `Prefill batch` line. `row` is a PrefillBatch; `seconds` is the time since the rank's previous line."""
    _, rank, sequences, new, cached, running, queued, pending, bootstrap, inflight, used = row[:11]
    release = style.release
    shown = new if release >= (0, 5, 20) else page_ceil(new, style.page)
    fields = [
        f"#new-seq: {sequences}",
        f"#new-token: {shown}",
        f"#cached-token: {cached}",
        f"token usage: {used / style.pool_tokens:.2f}",
        f"#running-req: {running}",
        f"#queue-req: {queued}",
    ]
    if release >= (0, 5, 13):
        fields.append(f"#pending-token: {pending}")
    if style.mode == "prefill":
        label = "#bootstrap-req" if release >= (0, 5, 13) else "#prealloc-req"
        fields += [f"{label}: {bootstrap}", f"#inflight-req: {inflight}"]
        fields += ["#optimistic-req: 0"] if release >= (0, 5, 16) else []
    fields.append(f"{style.graph_label}: False")
    if style.mode == "prefill" or release >= (0, 5, 10):
        fields.append(f"input throughput (token/s): {new / max(seconds, 1e-3):.2f}")
    return f"{stamp(at)}{rank_prefix(style, rank)}] Prefill batch, {', '.join(fields)}{style.tail}"


def decode_line(style: LogStyle, row: Sequence[Any], at: float) -> str:
    """One `Decode batch` line. `row` is a DecodeSample."""
    _, rank, running, tokens, accept, prealloc, transfer, queued, retracted, throughput, graph, reserved = row[:12]
    fields = [
        f"#running-req: {running}",
        f"#token: {page_ceil(int(tokens), style.page)}",
        f"token usage: {tokens / style.pool_tokens:.2f}",
    ]
    if style.width > 1:
        fields += [f"accept len: {accept:.2f}", f"accept rate: {accept / style.width:.2f}"]
    if style.mode == "decode":
        fields += [
            f"pre-allocated usage: {max(0, reserved - tokens) / style.pool_tokens:.2f}",
            f"#prealloc-req: {prealloc}",
            f"#transfer-req: {transfer}",
            f"#retracted-req: {retracted}",
        ]
    fields += [
        f"{style.graph_label}: {bool(graph)}",
        f"gen throughput (token/s): {throughput:.2f}",
        f"#queue-req: {queued}",
    ]
    return f"{stamp(at)}{rank_prefix(style, rank)}] Decode batch, {', '.join(fields)}{style.tail}"


def retraction_line(style: LogStyle, row: Sequence[Any], at: float) -> str:
    """The warning of one retraction. `row` is a Retraction."""
    _, rank, tokens = row
    return (
        f"{stamp(at)}{rank_prefix(style, rank)}] KV cache pool is full. Retract requests. #retracted_reqs: 1, "
        f"#new_tokens_gained: {tokens}, #new_token_ratio: 0.7000 -> 1.0000"
    )


def run_lines(style: LogStyle, run: Mapping[str, Any], start: float) -> str:
    """All batch lines and warnings of a run that began at wall time `start`, in time order."""
    previous: dict[int, float] = {}
    lines: list[tuple[float, str]] = []
    for row in run.get("prefill_batches", ()):
        at, rank = float(row[0]), int(row[1])
        lines.append((at, prefill_line(style, row, start + at, at - previous.get(rank, at - 1.0))))
        previous[rank] = at
    for row in run.get("decode_samples", ()):
        lines.append((float(row[0]), decode_line(style, row, start + float(row[0]))))
    for row in run.get("retractions", ()):
        lines.append((float(row[0]), retraction_line(style, row, start + float(row[0]))))
    lines.sort(key=lambda line: line[0])
    return "\n".join(text for _, text in lines)
