"""Causes of failed launches and runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.failure import Cause, IncidentFile, classify_failure, source_of
from executor.engines.failure_kinds import FailureKind, Source
from tests.executor.engines.field_samples import FIELD, REAL, field_text

STAMP = "[2026-03-30 06:05:22 DP3 TP6 EP6]"
READY = "[2026-03-30 05:59:00] The server is fired up and ready to roll!"
OOM = (
    "RuntimeError: NPU out of memory. Tried to allocate 3.47 GiB (NPU 0; 60.97 GiB total capacity; 58.92 GiB already "
    "allocated; 58.92 GiB current active; 1.66 GiB free; 58.95 GiB reserved in total by PyTorch) If reserved memory"
)


def scheduler_traceback(last: str, rank: int = 0, file: str = "/x/sglang/srt/managers/scheduler.py") -> list[str]:
    return [
        f"[2026-03-30 06:05:22 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{file}", line 3130, in run_scheduler_process',
        "    scheduler = Scheduler(",
        "                ^^^^^^^^^^",
        last,
        "",
    ]


def server(*lines: str, name: str = "decode.log") -> IncidentFile:
    return IncidentFile(name=name, source=Source.SERVER, lines=lines)


def kind_of(*lines: str, source: Source = Source.SERVER) -> FailureKind:
    return classify_failure([IncidentFile(name="x.log", source=source, lines=lines)]).kind


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["launch_server.py: error: unrecognized arguments: --enable-reasoning"], FailureKind.ARGUMENT_REJECTED),
        (
            [
                "usage: launch_server.py [-h]",
                "launch_server.py: error: ambiguous option: --cuda-graph-bs could match --cuda-graph-bs-decode",
            ],
            FailureKind.ARGUMENT_REJECTED,
        ),
        (
            ["launch_server.py: error: argument --tp-size: invalid int value: 'sixteen'"],
            FailureKind.ARGUMENT_REJECTED,
        ),
        (
            [
                "Traceback (most recent call last):",
                '  File "/x/sglang/srt/server_args.py", line 800, in __post_init__',
                "ValueError: chunked_prefill_size must be a multiple of page_size",
            ],
            FailureKind.ASSERTION_ON_ARGUMENTS,
        ),
        (scheduler_traceback("AssertionError: capture_bs=[]"), FailureKind.ASSERTION_ON_ARGUMENTS),
        (
            scheduler_traceback("Exception: Capture cuda graph failed: ACL stream synchronize failed, 507035"),
            FailureKind.GRAPH_CAPTURE,
        ),
        (
            scheduler_traceback("Exception: Capture npu graph failed: error code is 507035, aicore exception"),
            FailureKind.GRAPH_CAPTURE,
        ),
        (
            scheduler_traceback("Exception: Capture cuda graph failed: NPU out of memory. Tried to allocate 2.25 GiB"),
            FailureKind.OOM_AT_LOAD,
        ),
        (scheduler_traceback(OOM), FailureKind.OOM_AT_LOAD),
        ([READY, *scheduler_traceback(OOM)], FailureKind.OOM_IN_RUN),
        (
            [
                "[383554] [2026-07-01 09:31:38:047] torch_npu.memory: [ERROR] [383554] NPU out of memory. "
                "Tried to allocate 72.00 MiB"
            ],
            FailureKind.OOM_AT_LOAD,
        ),
        (
            scheduler_traceback("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
            FailureKind.OOM_AT_LOAD,
        ),
        ([READY, f"{STAMP} Decode out of memory. Try to lower your batch size."], FailureKind.OOM_IN_RUN),
        (
            ["ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 80): address already in use"],
            FailureKind.PORT_IN_USE,
        ),
        (["OSError: [Errno 98] Address already in use"], FailureKind.PORT_IN_USE),
        (
            ["RuntimeError: The server socket has failed to listen on any local network address. errno: 98"],
            FailureKind.PORT_IN_USE,
        ),
        (["zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5000')"], FailureKind.PORT_IN_USE),
        (
            ["RuntimeError: aclInit, error code is 507899", "Resource_Busy(EL0005): The resources are busy."],
            FailureKind.DEVICE_BUSY,
        ),
        (
            [
                "[Gloo] Rank 8 is NOT connected to: [1]",
                "TimeoutError: Server failed to start within the timeout period.",
            ],
            FailureKind.PEER_MISSING,
        ),
        (
            [
                "[E331 20:50:12.688 socket.cpp:1011] [c10d] The client socket has timed out after 1800000ms while "
                "trying to connect to (10.1.2.3, 38321)"
            ],
            FailureKind.PEER_MISSING,
        ),
        (
            scheduler_traceback(
                "RuntimeError: create:compiler_depend.ts:89 HCCL function error: HcclCommInitRootInfo(numRanks), "
                "error code is 4"
            ),
            FailureKind.HCCL_INIT,
        ),
        (["[rank1]: EI0006: [PID: 1292363] Getting socket times out."], FailureKind.HCCL_INIT),
        ([READY, "[rank1]: EI0006: [PID: 1292363] Getting socket times out."], FailureKind.PEER_MISSING),
        (
            [READY, *scheduler_traceback("RuntimeError: ACL stream synchronize failed, error code:507035")],
            FailureKind.DEVICE_ERROR,
        ),
        (
            [
                READY,
                f"{STAMP} Prefill transfer failed for request rank=6 req.rid='8f38' with KVTransferError",
            ],
            FailureKind.KV_TRANSFER,
        ),
        ([READY, *scheduler_traceback("KeyError: 'bootstrap_room'")], FailureKind.SCHEDULER_EXCEPTION),
        (["Subprocess scheduler_0 (pid=123) crashed with exit code -9. Triggering"], FailureKind.KILLED_BY_SIGNAL),
        (
            ["run.sh: line 12:  4242 Killed                  python3 -m sglang.x"],
            FailureKind.KILLED_BY_SIGNAL,
        ),
        (
            ["[2026-03-30 06:06:35] ERROR:    Health check failed. Server couldn't get a response from detokenizer"],
            FailureKind.HEALTH_TIMEOUT,
        ),
        (
            ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'sgl_kernel'"],
            FailureKind.STARTUP_EXCEPTION,
        ),
    ],
)
def test_server_wordings_are_named(lines: list[str], kind: FailureKind) -> None:
    """Each kind in its own words, on a server log."""
    assert kind_of(*lines) is kind


@pytest.mark.parametrize(
    ("line", "source", "kind"),
    [
        ("ValueError: Warmup failed - Please make sure benchmark", Source.CLIENT, FailureKind.CLIENT_ERROR),
        (
            "2026-03-29 22:35:39 ERROR smg::routers: No available decode workers (all circuits open or unhealthy)",
            Source.ROUTER,
            FailureKind.NO_DECODE_WORKERS,
        ),
        ("[12345.6] Out of memory: Killed process 4242 (python3)", Source.HOST, FailureKind.KILLED_BY_SIGNAL),
    ],
)
def test_other_sources_have_their_own_wordings(line: str, source: Source, kind: FailureKind) -> None:
    """What a client, router or kernel says counts only from it."""
    assert kind_of(line, source=source) is kind


@pytest.mark.parametrize(
    "line",
    [
        "[ERROR] TBE Subprocess[task_distribute] raise error[], main process disappeared!",
        "[ERROR] 2026-01-18-01:39:06 (PID:859, Device:-1, RankID:-1) ERR99999 UNKNOWN applicaiton exception",
        "[2026-01-04 01:39:23] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        "Waiting for 1 more nodes to be ready...",
        "",
    ],
)
def test_noise_names_nothing(line: str) -> None:
    """The last error of a log is often only the echo of it."""
    assert kind_of(line) is FailureKind.UNRECOGNISED


@pytest.mark.parametrize(
    "quoted",
    [
        "[2026-03-30 06:05:22] Receive: obj=GenerateReqInput(text='RuntimeError: NPU out of memory. Tried to')",
        "[2026-03-30 06:05:22] INFO:  launch_server.py: error: unrecognized arguments: --x",
        "prompt was: AssertionError: capture_bs=[]",
        "Decode batch said NPU out of memory",
    ],
)
def test_a_quoted_wording_is_not_a_sighting(quoted: str) -> None:
    """Request text cannot fake a cause: wordings are anchored to the beginning of a message."""
    assert kind_of(quoted) is FailureKind.UNRECOGNISED


def test_the_root_may_stand_in_another_file_than_the_last_error() -> None:
    """Prefill sees transfers fail and the client sees errors; the decode side ran out of memory, hours 'earlier'."""
    files = [
        IncidentFile(name="bench.log", source=Source.CLIENT, lines=["output.error='Traceback aiohttp'"]),
        server(READY, f"{STAMP} Prefill transfer failed for request rank=6", name="prefill.log"),
        server("[2026-03-29 22:00:00] x", *scheduler_traceback(OOM), name="decode.log"),
    ]
    cause = classify_failure(files)
    assert (cause.kind, cause.file, cause.configuration_caused) == (FailureKind.OOM_AT_LOAD, "decode.log", True)


def test_one_oom_is_seen_once_though_many_ranks_print_it() -> None:
    """Sixteen ranks, one cause, sixteen occurrences."""
    lines = [line for rank in range(16) for line in scheduler_traceback(OOM, rank=rank)]
    cause = classify_failure([server(*lines)])
    assert (cause.kind, cause.occurrences, cause.ranks) == (FailureKind.OOM_AT_LOAD, 16, 16)


def test_memory_held_by_another_process_is_not_the_configurations_fault() -> None:
    """61 GiB in all, 10.65 ours, almost nothing free: somebody else holds the rest."""
    foreign = (
        "RuntimeError: NPU out of memory. Tried to allocate 22.00 MiB (NPU 0; 60.97 GiB total capacity; 10.24 GiB "
        "already allocated; 10.24 GiB current active; 19.52 MiB free; 10.65 GiB reserved in total by PyTorch)"
    )
    cause = classify_failure([server(*scheduler_traceback(foreign))])
    assert (cause.kind, cause.configuration_caused) == (FailureKind.DEVICE_BUSY, False)


def test_a_signal_known_to_the_host_explains_a_silent_log() -> None:
    """A process that was killed writes nothing; its supervisor knows."""
    cause = classify_failure([server(READY)], signals={"decode.log": 9})
    assert (cause.kind, cause.evidence, cause.file) == (
        FailureKind.KILLED_BY_SIGNAL,
        "ended by signal 9",
        "decode.log",
    )


def test_a_signal_does_not_hide_the_exception_that_made_the_parent_kill() -> None:
    """The parent kills its tree after a child failed: the failure is the root."""
    cause = classify_failure([server(*scheduler_traceback("AssertionError: capture_bs=[]"))], signals={"decode.log": 9})
    assert cause.kind is FailureKind.ASSERTION_ON_ARGUMENTS


def test_evidence_is_one_short_redacted_line() -> None:
    """No address, path, account, key or request text leaves."""
    line = (
        "KeyError: user root@gpu-7 at 10.1.2.3:8000 in /home/alice/models/x http://internal.host/a?k=v "
        "api_key=sk-abcdef123456 \x1b[31m" + "'" + "q" * 60 + "' " + "z" * 400
    )
    evidence = classify_failure([server(READY, *scheduler_traceback(line))]).evidence
    assert len(evidence) <= 200
    for private in ("10.1.2.3", "alice", "internal.host", "abcdef", "gpu-7", "qqqq", "\x1b"):
        assert private not in evidence


def cause_of(*names: str) -> Cause:
    return classify_failure(
        [IncidentFile(name=name, source=source_of(name), lines=field_text(name).splitlines()) for name in names]
    )


@pytest.mark.parametrize(
    ("names", "kind", "configuration_caused"),
    [
        (["failure/18_memfabric_smem_transfer_error.log"], FailureKind.KV_TRANSFER, False),
        (["failure/21_capture_bs_empty.log"], FailureKind.ASSERTION_ON_ARGUMENTS, True),
        (["failure/22_harness_start_timeout.log"], FailureKind.HEALTH_TIMEOUT, False),
        (["failure/23_tbe_main_process_disappeared.log"], FailureKind.UNRECOGNISED, False),
        (["failure/24_detokenizer_health_check.log"], FailureKind.HEALTH_TIMEOUT, False),
        (
            [f"incidents/C_decode_capture_bs_empty/{part}-0.log" for part in ("router", "prefill", "decode")],
            FailureKind.ASSERTION_ON_ARGUMENTS,
            True,
        ),
        (
            [f"incidents/D_start_timeout_2p1d/{part}-0.log" for part in ("router", "prefill")],
            FailureKind.PEER_MISSING,
            False,
        ),
        (["incidents/E_healthy_1p1d/decode-0.log"], FailureKind.UNRECOGNISED, False),
        (["incidents/E_healthy_1p1d/prefill-0.log"], FailureKind.UNRECOGNISED, False),
        (["bench_console/07_a3_warmup_payload_error.txt"], FailureKind.CLIENT_ERROR, False),
        (["bench_console/12_a3_rerun_no_decode_workers.txt"], FailureKind.NO_DECODE_WORKERS, False),
        (["bench_console/06_a3_warmup_failed.txt"], FailureKind.UNRECOGNISED, False),
    ],
)
def test_stored_incidents_read_as_their_index_says(
    names: list[str], kind: FailureKind, configuration_caused: bool
) -> None:
    """Real failures of other people, across the files of each incident."""
    cause = cause_of(*names)
    assert (cause.kind, cause.configuration_caused) == (kind, configuration_caused)


@pytest.mark.parametrize("path", sorted(FIELD.glob("server_log/*.log")), ids=lambda path: str(path.name))
def test_healthy_logs_show_no_failure(path: object) -> None:
    """Nothing in a good log reads as a cause."""
    lines = field_text(str(path)).splitlines()
    assert classify_failure([server(*lines)]).kind is FailureKind.UNRECOGNISED


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("real_fatal_scheduler_exception.log", FailureKind.ASSERTION_ON_ARGUMENTS),
        ("real_pd_prefill_crash.server.log", FailureKind.SCHEDULER_EXCEPTION),
        ("real_cpu_pd_decode.server.log", FailureKind.UNRECOGNISED),
    ],
)
def test_real_servers_on_this_machine(name: str, kind: FailureKind) -> None:
    """Logs of real servers that died, and of one that did not."""
    assert classify_failure([server(*field_text(name, REAL).splitlines())]).kind is kind


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(max_size=120), max_size=8))
def test_any_text_has_a_cause_and_a_short_line(lines: list[str]) -> None:
    """Untrusted text never raises and never leaves at length."""
    cause = classify_failure([server(*lines)])
    assert len(cause.evidence) <= 200
