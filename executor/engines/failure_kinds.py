"""Kinds of failures, how near to the root each stands, and the anchored patterns that name them.

A pattern matches the beginning of a message (stamp, rank and colour taken off), never text somewhere in a line: log
lines quote requests. Which source may say what is part of the pattern. Wording was collected from servers of
0.5.4 … 0.5.23, CANN 8.x, torch_npu 2.x, memfabric 1.x and router 0.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class FailureKind(StrEnum):
    """What made a launch or a run fail."""

    OOM_AT_LOAD = "oom_at_load"
    OOM_IN_RUN = "oom_in_run"
    ARGUMENT_REJECTED = "argument_rejected"
    ASSERTION_ON_ARGUMENTS = "assertion_on_arguments"
    PORT_IN_USE = "port_in_use"
    DEVICE_BUSY = "device_busy"
    DEVICE_ERROR = "device_error"
    PEER_MISSING = "peer_missing"
    HCCL_INIT = "hccl_init"
    GRAPH_CAPTURE = "graph_capture"
    KV_TRANSFER = "kv_transfer"
    SCHEDULER_EXCEPTION = "scheduler_exception"
    STARTUP_EXCEPTION = "startup_exception"
    KILLED_BY_SIGNAL = "killed_by_signal"
    HEALTH_TIMEOUT = "health_timeout"
    CLIENT_ERROR = "client_error"
    NO_DECODE_WORKERS = "no_decode_workers"
    UNRECOGNISED = "unrecognised"


CONFIGURATION_CAUSED = frozenset(
    {
        FailureKind.OOM_AT_LOAD,
        FailureKind.OOM_IN_RUN,
        FailureKind.ARGUMENT_REJECTED,
        FailureKind.ASSERTION_ON_ARGUMENTS,
    }
)


class Distance(IntEnum):
    """From the root of a failure. The nearest sighting over all files of an incident wins."""

    ROOT = 0  # explains itself
    ABORT = 1  # a process ended by it; a root in any file explains more
    CONSEQUENCE = 2  # a peer or an observer of a process that ended
    SYMPTOM = 3  # noise that follows many failures; names nothing


class Source(StrEnum):
    """Which program wrote a file."""

    SERVER = "server"
    ROUTER = "router"
    CLIENT = "client"
    HOST = "host"  # kernel log, job supervisor


_ANYONE = frozenset(Source)
_SERVER = frozenset({Source.SERVER})
_OBSERVERS = frozenset({Source.ROUTER, Source.CLIENT})


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One wording. `kind` None: a symptom that names nothing."""

    kind: FailureKind | None
    distance: Distance
    wording: re.Pattern[str]
    sources: frozenset[Source] = field(default=_ANYONE)


def _pattern(
    kind: FailureKind | None, distance: Distance, wording: str, sources: frozenset[Source] = _ANYONE
) -> Pattern:
    return Pattern(kind=kind, distance=distance, wording=re.compile(wording), sources=sources)


_ERROR = r"(?:(?:[\w.]+(?:Error|Exception)|Exception): )?"
OUT_OF_MEMORY = re.compile(
    _ERROR + r"(?:"
    r"(?:torch_npu\.memory: \[ERROR\] \[\d+\] )?(?:NPU|CUDA|HIP|XPU|MPS) out of memory\b"
    r"|(?:Prefill|Decode) out of memory\b"
    r"|alloc_req_slots runs out of memory"
    r"|Not enough memory\. Please try to increase --mem-fraction-static"
    r"|Loading weights? failed.*out of memory"
    r"|Capture (?:cuda|npu) graph failed: .*out of memory"
    r"|.{0,80}\bMemory_Allocation_Failure\(EL0004\)"
    r"|EL0004: "
    r"|.{0,120}DefaultCPUAllocator: can't allocate memory"
    r"|std::bad_alloc"
    r")|(?:torch\.(?:cuda\.)?)?OutOfMemoryError: |MemoryError\b"
)

PATTERNS: tuple[Pattern, ...] = (
    # The command line, before anything else is printed (argparse).
    _pattern(
        FailureKind.ARGUMENT_REJECTED,
        Distance.ROOT,
        r"(?:[\w.-]+: )?error: (?:unrecognized arguments?: |ambiguous option: |argument -{1,2}[\w/, -]+: "
        r"|the following arguments are required: |unexpected argument |invalid value )",
        frozenset({Source.SERVER, Source.ROUTER}),
    ),
    # Ports. Python and uvicorn, torch, zmq, SGLang, Rust, HCCL.
    _pattern(
        FailureKind.PORT_IN_USE,
        Distance.ROOT,
        r"(?:ERROR: +)?\[Errno 98\]|" + _ERROR + r"(?:\[Errno 98\] .*|.*: )?[Aa]ddress already in use",
    ),
    _pattern(FailureKind.PORT_IN_USE, Distance.ROOT, _ERROR + r"(?:Port(?: \d+)? is already in use)"),
    _pattern(
        FailureKind.PORT_IN_USE,
        Distance.ROOT,
        _ERROR + r"(?:The server socket has failed to listen|.*EADDRINUSE|.*errno: 98\b)",
    ),
    _pattern(FailureKind.PORT_IN_USE, Distance.ROOT, _ERROR + r"\w+ at \d+ is not available(?: in |\b)"),
    _pattern(
        FailureKind.PORT_IN_USE,
        Distance.ROOT,
        r"\[ERROR\] HCCL\(.*listen on ip\[.*\] and specific port\[\d+\] fail",
        _SERVER,
    ),
    # A graph that could not be captured; for want of memory it is an OOM, which is looked for first.
    _pattern(
        FailureKind.GRAPH_CAPTURE,
        Distance.ROOT,
        _ERROR + r"Capture (?:cuda|npu|cpu) graph failed: ",
        _SERVER,
    ),
    # The device is not ours, or not well.
    _pattern(FailureKind.DEVICE_BUSY, Distance.ROOT, r".{0,80}\bResource_Busy\(EL0005\)|EL0005: ", _SERVER),
    _pattern(FailureKind.DEVICE_BUSY, Distance.ROOT, _ERROR + r".{0,120}(?:[Dd]evice is busy|resources are busy)"),
    _pattern(
        FailureKind.DEVICE_ERROR,
        Distance.ABORT,
        _ERROR + r".{0,160}(?:error code(?: is|:) ?(?:507\d{3}|107\d{3})|aivec error|aicore exception)",
        _SERVER,
    ),
    _pattern(
        FailureKind.DEVICE_ERROR, Distance.ABORT, r"(?:EZ9999|E[ZE]\d{4}: Inner Error|\[ERROR\].* ERR00100 )", _SERVER
    ),
    # The job was ended from outside.
    _pattern(
        FailureKind.KILLED_BY_SIGNAL,
        Distance.ROOT,
        r".{0,60}(?:Out of memory: Killed process \d+|oom-kill:)",
        frozenset({Source.HOST}),
    ),
    _pattern(
        FailureKind.KILLED_BY_SIGNAL,
        Distance.ABORT,
        r"(?:Killed$|.*: line \d+: +\d+ Killed|Subprocess .* crashed with exit code -\d+"
        r"|.{0,120}(?:killed by signal|died with <Signals\.SIG)"
        r"|Fatal Python error: (?:Segmentation fault|Bus error|Aborted))",
    ),
    # Others that should be there and are not.
    _pattern(
        FailureKind.PEER_MISSING,
        Distance.ABORT,
        r"\[Gloo\] Rank \d+ is NOT connected to: |" + _ERROR + r"(?:\[c10d\] )?The client socket has timed out"
        r"|(?:\[E\d+ .*)?\[c10d\] The client socket has (?:timed out|failed)|.*DistNetworkError"
        r"|" + _ERROR + r"(?:Gloo )?[Cc]onnectFullMesh failed",
        _SERVER,
    ),
    _pattern(
        FailureKind.HCCL_INIT,
        Distance.ABORT,
        r"(?:\[rank\d+\]: )?(?:E[IJ]\d{4}: |" + _ERROR + r".{0,160}HCCL function error: |.*DIST call hccl api failed"
        r"|" + _ERROR + r".*[Hh]cclCommInitRootInfo|.*Communication_Error_\w+\(E[IJ]\d{4}\))",
        _SERVER,
    ),
    # What the others see of it.
    _pattern(
        FailureKind.KV_TRANSFER,
        Distance.CONSEQUENCE,
        r"(?:Prefill|Decode) (?:transfer|bootstrap|handshake) failed for request|Prefill bootstrap failed"
        r"|" + _ERROR + r"(?:KVTransferError|Context corruption detected)|KVTransferError\("
        r"|(?:\d{4}-\d\d-\d\d [\d:.]+ )?ERROR \[\d+-\d+\]\[(?:SMEM|HYBM|ADAPTER) "
        r"|Some requests (?:timed out when bootstrapping|fail to receive KV Cache)",
        _SERVER,
    ),
    _pattern(
        FailureKind.NO_DECODE_WORKERS,
        Distance.CONSEQUENCE,
        r".{0,400}(?:No available (?:decode|prefill) workers|\bdecode_server_error\b)",
        _OBSERVERS,
    ),
    _pattern(
        FailureKind.HEALTH_TIMEOUT,
        Distance.CONSEQUENCE,
        r"(?:ERROR: +)?Health check failed\. Server couldn't get a response from detokenizer"
        r"|.*watchdog timeout \(self\.watchdog_timeout"
        r"|Initialization failed\. warmup error:"
        r"|" + _ERROR + r"(?:Server failed to start within the timeout period|Failed to wait for all nodes"
        r"|Server \S+ failed to start in \d+s|Server .* is not ready\. Exiting)"
        r"|Timeout: Not all nodes are ready after \d+ seconds",
    ),
    _pattern(
        FailureKind.CLIENT_ERROR,
        Distance.CONSEQUENCE,
        _ERROR + r"Warmup failed\b|output\.error=|.{0,80}aiohttp\.client_exceptions\.",
        frozenset({Source.CLIENT}),
    ),
    # Noise: many failures end in these lines, and so do some good runs.
    _pattern(None, Distance.SYMPTOM, r"\[ERROR\] TBE Subprocess\["),
    _pattern(None, Distance.SYMPTOM, r"\[ERROR\] .*ERR99999 UNKNOWN appli"),
    _pattern(None, Distance.SYMPTOM, r"(?:Received sigquit from a child|SIGQUIT received)", _SERVER),
)
