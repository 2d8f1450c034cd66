"""From traces to conclusions: the on-host summary, and the reading of what it says."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.on_host.summarise_profile import answer, busy_time, family_of, own_times, shorten
from executor.engines.profile import parse_profile
from executor.simulated.profile_trace import write_trace
from experiments.profile import ServerProfile
from experiments.serving_config import Role

LAB = Path(__file__).parent / "lab_samples"


def event(name: str, start: float, length: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length, **more}


def kernel(name: str, start: float, length: float, stream: int = 7) -> dict[str, Any]:
    return event(name, start, length, cat="kernel", tid=stream)


def trace(folder: Path, events: Sequence[dict[str, Any]], name: str = "1-TP-0.trace.json.gz") -> Path:
    path = folder / name
    data = json.dumps({"traceEvents": list(events)}).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def said(folder: Path, *words: str) -> dict[str, Any]:
    return answer([str(folder), *words])


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("aclnnFusedInferAttentionScoreV3_FIA", "attention"),
        ("void flash::flash_fwd_kernel<...>", "attention"),
        ("MlaPreprocess", "attention"),
        ("aclnnGroupedMatmulV4_GroupedMatmul_GroupedMatmul", "moe"),
        ("fused_moe_kernel", "moe"),
        ("MoeDistributeDispatchV2", "communication"),
        ("hcom_allReduce__123_0", "communication"),
        ("ncclDevKernel_AllGather_RING_LL", "communication"),
        ("aclnnArgMax_ArgMaxV2_ArgMaxV2", "sampling"),
        ("top_k_top_p_sampling_from_probs", "sampling"),
        ("aclnnMatmul_MatMulV3Common_MatMulV3", "matmul"),
        ("aten::linear", "matmul"),
        ("aten::add_", "other"),
    ],
)
def test_a_kernel_belongs_to_one_family(name: str, family: str) -> None:
    """Expert exchange is communication, expert arithmetic is MoE."""
    assert family_of(name) == family


def test_the_device_counts_where_there_is_one(tmp_path: Path) -> None:
    """Operators of the processor only start kernels; idle is what no stream filled."""
    events = [
        event("aten::linear", 0, 100, cat="cpu_op"),
        kernel("flash_attn", 0, 40),
        kernel("moe_gemm", 50, 40),
        kernel("nccl_allreduce", 60, 20, stream=8),
    ]
    trace(tmp_path, events)
    found = said(tmp_path)
    assert (found["basis"], found["events"], found["idle"]) == ("device", 3, round(10 / 90, 4))
    assert found["families"] == {"attention": 0.4, "communication": 0.2, "moe": 0.4}
    assert found["top"][0] == {"name": "flash_attn", "family": "attention", "share": 0.4, "calls": 1}


def test_a_trace_without_a_device_counts_each_operators_own_time(tmp_path: Path) -> None:
    """What an operator calls is not counted twice."""
    events = [
        event("aten::scaled_dot_product_attention", 0, 100, cat="cpu_op"),
        event("aten::bmm", 10, 60, cat="cpu_op"),
        event("python_function", 0, 500, cat="python_function"),
    ]
    trace(tmp_path, events)
    found = said(tmp_path)
    assert (found["basis"], found["idle"]) == ("processor", 0.0)
    assert found["families"] == {"attention": 0.4, "matmul": 0.6}


def test_a_trace_of_the_real_profiler_is_read(tmp_path: Path) -> None:
    """Three steps of attention, a linear layer and sampling, as torch 2.13 of the lab's engine profiles them."""
    shutil.copy(LAB / "torch_cpu.trace.json.gz", tmp_path)
    profile = parse_profile(json.dumps(said(tmp_path)), Role.DECODE, 3)
    assert isinstance(profile, ServerProfile)
    assert (profile.basis, profile.events) == ("processor", 144)
    assert profile.families == {"attention": 0.619, "matmul": 0.3049, "other": 0.0413, "sampling": 0.0347}
    assert [(kernel.name, kernel.calls) for kernel in profile.top[:2]] == [
        ("aten::_scaled_dot_product_flash_attention_for_cpu", 3),
        ("aten::mm", 3),
    ]


def test_the_other_vendors_trace_is_read_by_its_process(tmp_path: Path) -> None:
    """torch_npu writes `trace_view.json`, unpacked and without categories."""
    folder = tmp_path / "x_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    named = {"ph": "M", "name": "process_name", "pid": 31, "args": {"name": "Ascend Hardware"}}
    events = [named, event("GroupedMatmul", 0, 30, pid=31), event("AscendCL@launch", 0, 90, pid=2)]
    (folder / "trace_view.json").write_text(json.dumps(events))
    found = said(tmp_path)
    assert (found["basis"], found["families"], found["traces"]) == ("device", {"moe": 1.0}, 1)


def test_a_few_ranks_stand_for_all_and_the_traces_are_removed(tmp_path: Path) -> None:
    """Six traces, four read; nothing is left of them."""
    folder = tmp_path / "profile"
    for rank in range(6):
        write_trace(folder, "decode", steps=2, rank=rank)
    found = said(folder, "--remove")
    assert (found["traces"], found["read"]) == (6, 4)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the server left no trace"),
        (b"not gzip", "BadGzipFile"),
        (gzip.compress(b'{"traceEvents": ['), "JSONDecodeError"),
        (gzip.compress(b'{"traceEvents": []}'), "the traces hold no operators"),
    ],
    ids=["none", "not gzip", "cut off", "empty"],  # gzip writes the time into its bytes
)
def test_an_unusable_trace_is_an_answer(tmp_path: Path, content: bytes | None, message: str) -> None:
    """It says why there are no conclusions, and ends well."""
    if content is not None:
        (tmp_path / "1.trace.json.gz").write_bytes(content)
    assert message in said(tmp_path)["error"]


def test_the_class_of_a_kernel_has_no_arguments_and_no_counters() -> None:
    """A name is shown to people: it is short and holds nothing but a name."""
    assert shorten("void at::native::vectorized_kernel<4, Foo<float>>(int)") == "void at::native::vectorized_kernel"
    assert shorten("MatMulV3_12_7") == "MatMulV3"
    assert shorten("<script>alert(1)</script>") == "unnamed"
    assert len(shorten("x" * 500)) == 60


def test_conclusions_are_read_from_the_last_line(tmp_path: Path) -> None:
    """What the interpreter printed before it is passed over."""
    write_trace(tmp_path, "prefill", steps=3)
    profile = parse_profile("a warning\n" + json.dumps(said(tmp_path)) + "\n", Role.PREFILL, 3)
    assert isinstance(profile, ServerProfile)
    assert abs(sum(profile.families.values()) - 1.0) < 0.001
    assert str(profile).startswith("prefill (device): attention 40%, moe 35%")


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "the summary gave no answer"),
        ("Killed", "the summary gave no answer"),
        ('{"error": "OSError: /a/b/c is gone"}', "OSError: <path> is gone"),
        ('{"traces": 1}', "the summary is not one: basis: Field required"),
    ],
)
def test_no_conclusion_has_its_reason(output: str, why: str) -> None:
    """Untrusted words become one redacted sentence."""
    assert parse_profile(output, Role.DECODE, 5) == why


spans = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 30)), min_size=1, max_size=30)


@settings(deadline=None)
@given(spans)
def test_own_times_of_nested_events_add_up_to_the_busy_time(found: list[tuple[int, int]]) -> None:
    """Events of one stream nest: no instant is counted twice, none is lost."""
    ends: list[float] = []
    events = []
    for start, length in sorted(found, key=lambda e: (e[0], -e[1])):
        ends = [end for end in ends if end > start]
        end = min([start + length, *ends])
        ends.append(end)
        events.append((float(start), float(end), "x"))
    events.sort(key=lambda e: (e[0], -e[1]))
    assert sum(own for _, own in own_times(events)) == pytest.approx(busy_time(events))
