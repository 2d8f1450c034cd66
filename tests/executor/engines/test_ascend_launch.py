"""Golden command lines of four Ascend configurations: every word and every environment variable, in order.

The settings follow the published best-practice scripts for 910C; each breaks no size rule as it stands.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from executor.engines.launch_script import parse_launch_script
from executor.engines.release import Release
from executor.engines.script_import import import_settings
from executor.engines.sglang_launch import (
    RouterPlacement,
    ServerLaunch,
    ServerPlacement,
    Worker,
    compile_router_launch,
    compile_server_launch,
)
from executor.engines.size_rules import check_sizes
from executor.engines.violation import Severity
from experiments.serving_config import Role, ServingConfig, diff

GOLDEN = Path(__file__).parent / "golden"
STORE = "tcp://10.0.0.1:24670"
AT = {
    Role.PREFILL: ServerPlacement(host="10.0.0.1", port=8000, bootstrap_port=8998, store_url=STORE),
    Role.DECODE: ServerPlacement(host="10.0.0.2", port=8001, store_url=STORE),
    Role.MIXED: ServerPlacement(host="10.0.0.1", port=6688),
}
ROUTER_AT = RouterPlacement(
    host="127.0.0.1",
    port=6688,
    prefill=(Worker(host="10.0.0.1", port=8000, bootstrap_port=8998),),
    decode=(Worker(host="10.0.0.2", port=8001),),
)

# Shared by every server of the first two configurations.
ASCEND = """
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True STREAMS_PER_DEVICE=32 SGLANG_SET_CPU_AFFINITY=1
export SGLANG_NPU_USE_MLAPO=1 SGLANG_USE_FIA_NZ=1
BOTH="--device npu --attention-backend ascend --quantization modelslim --dtype bfloat16 --trust-remote-code"
BOTH="$BOTH --disable-shared-experts-fusion --moe-a2a-backend deepep --disaggregation-transfer-backend ascend"
"""
SCRIPTS = {
    "deepseek_r1_w4a8_p8_d8": ASCEND
    + """
if [ "$ROLE" = prefill ]; then
  export HCCL_BUFFSIZE=3500 DEEP_NORMAL_MODE_USE_INT8_QUANT=1 TASK_QUEUE_ENABLE=2
  python3 -m sglang.launch_server $BOTH --disaggregation-mode prefill --tp-size 16 --dp-size 8 --enable-dp-attention \
    --deepep-mode normal --mem-fraction-static 0.62 --max-running-requests 32 --disable-radix-cache \
    --chunked-prefill-size -1 --max-prefill-tokens 20480 --context-length 8192 --disable-overlap-schedule \
    --speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2
else
  export HCCL_BUFFSIZE=800 SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=78 SGLANG_ENABLE_SPEC_V2=1
  export SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1 TASK_QUEUE_ENABLE=1
  python3 -m sglang.launch_server $BOTH --disaggregation-mode decode --tp-size 16 --dp-size 16 --enable-dp-attention \
    --enable-dp-lm-head --deepep-mode low_latency --mem-fraction-static 0.805 --max-running-requests 416 \
    --cuda-graph-bs 2 4 6 8 10 12 14 16 18 20 22 24 26 --context-length 8192 --tokenizer-worker-num 4 \
    --watchdog-timeout 9000 --load-balance-method round_robin \
    --speculative-algorithm NEXTN --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3
fi
python -m sglang_router.launch_router --pd-disaggregation --policy cache_aware
""",
    "deepseek_r1_w8a8_low_latency": ASCEND
    + """
if [ "$ROLE" = prefill ]; then
  export HCCL_BUFFSIZE=1536 DEEP_NORMAL_MODE_USE_INT8_QUANT=1 TASK_QUEUE_ENABLE=2
  python3 -m sglang.launch_server $BOTH --disaggregation-mode prefill --tp-size 16 --dp-size 2 --enable-dp-attention \
    --deepep-mode normal --mem-fraction-static 0.81 --max-running-requests 4 --disable-radix-cache \
    --chunked-prefill-size -1 --max-prefill-tokens 28680 --context-length 8192 --disable-overlap-schedule \
    --enable-attn-tp-input-scattered \
    --speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2
else
  export HCCL_BUFFSIZE=650 SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=12 SGLANG_ENABLE_SPEC_V2=1
  export SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1 SGLANG_SCHEDULER_SKIP_ALL_GATHER=1 TASK_QUEUE_ENABLE=1
  python3 -m sglang.launch_server $BOTH --disaggregation-mode decode --tp-size 32 --dp-size 16 --enable-dp-attention \
    --enable-dp-lm-head --moe-dense-tp 1 --deepep-mode low_latency --mem-fraction-static 0.75 \
    --max-running-requests 32 --cuda-graph-bs 2 4 6 --context-length 8192 --tokenizer-worker-num 4 \
    --watchdog-timeout 9000 --load-balance-method round_robin \
    --speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
fi
python -m sglang_router.launch_router --pd-disaggregation --policy round_robin
""",
    "minimax_fused_experts": """
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True STREAMS_PER_DEVICE=32 SGLANG_SET_CPU_AFFINITY=1
export SGLANG_NPU_FUSED_MOE_MODE=2 SGLANG_ENABLE_SPEC_V2=1 SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=640
BOTH="--device npu --attention-backend ascend --quantization modelslim --dtype bfloat16 --trust-remote-code"
BOTH="$BOTH --disaggregation-transfer-backend ascend --skip-server-warmup --load-balance-method round_robin"
DRAFT="--speculative-algorithm EAGLE3 --speculative-draft-model-path /data/models/draft --speculative-num-steps 2"
DRAFT="$DRAFT --speculative-eagle-topk 1 --speculative-num-draft-tokens 3"
if [ "$ROLE" = prefill ]; then
  export HCCL_BUFFSIZE=2500
  python3 -m sglang.launch_server $BOTH $DRAFT --disaggregation-mode prefill --tp-size 16 --dp-size 2 \
    --enable-dp-attention --moe-a2a-backend deepep --deepep-mode normal --mem-fraction-static 0.43 \
    --max-running-requests 128 --chunked-prefill-size -1 --max-prefill-tokens 130000 --tokenizer-worker-num 16 \
    --disable-overlap-schedule
else
  export HCCL_BUFFSIZE=1600
  python3 -m sglang.launch_server $BOTH $DRAFT --disaggregation-mode decode --tp-size 16 --dp-size 2 \
    --enable-dp-attention --moe-a2a-backend ascend_fuseep --deepep-mode low_latency --mem-fraction-static 0.76 \
    --max-running-requests 80 --chunked-prefill-size -1 --cuda-graph-bs 8 16 24 32 40 --tokenizer-worker-num 8
fi
python -m sglang_router.launch_router --pd-disaggregation
""",
    "deepseek_r1_mixed": """
export HCCL_BUFFSIZE=1200 SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=56 SGLANG_ENABLE_SPEC_V2=1
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True STREAMS_PER_DEVICE=32
python3 -m sglang.launch_server --tp 16 --dp 16 --trust_remote_code --attention-backend ascend --device npu \
  --quantization modelslim --watchdog-timeout 9000 --cuda-graph-bs 4 8 12 14 --mem-fraction-static 0.77 \
  --max-running-requests 224 --context-length 8188 --disable-radix-cache --chunked-prefill-size -1 \
  --max-prefill-tokens 3000 --moe-a2a-backend deepep --deepep-mode auto --enable-dp-attention --enable-dp-lm-head \
  --speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
  --dtype bfloat16
""",
}


def imported(name: str) -> ServingConfig:
    return import_settings(parse_launch_script(SCRIPTS[name], name)).config


def launches(config: ServingConfig) -> dict[Role, ServerLaunch]:
    roles = [role for role in AT if any(key.startswith(f"{role}.") for key in config.settings)]
    found = {role: compile_server_launch(config, role, AT[role]) for role in roles}
    if Role.MIXED not in found:
        found[Role.ROUTER] = compile_router_launch(config, ROUTER_AT)
    return found


def shown(config: ServingConfig) -> str:
    """One word or variable per line, so that a difference reads as what changed."""
    lines = []
    for role, launch in launches(config).items():
        lines.append(f"# {role}")
        lines += [f"{name}={value}" for name, value in launch.env.items()]
        words = list(launch.argv("python3"))
        for place, word in enumerate(words):
            lines.append(shlex.quote(word) if word.startswith("-") or place < 3 else f"    {shlex.quote(word)}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_launch_of_a_configuration_is_golden(name: str) -> None:
    """The commands of prefill, decode and router are what was reviewed, word by word."""
    assert (GOLDEN / f"{name}.txt").read_text(encoding="utf-8") == shown(imported(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_size_rule_refuses_a_published_configuration(name: str) -> None:
    """What runs in the field passes the rules of the release that it is written for."""
    refused = [
        found for found in check_sizes(imported(name), Release(0, 5, 10, 1)) if found.severity is Severity.INVALID
    ]
    assert refused == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_rendered_launch_imports_as_the_same_configuration(name: str) -> None:
    """Export and import are inverse: nothing is lost between a configuration and its script."""
    config = imported(name)
    script = ""
    for role, launch in launches(config).items():
        env = " ".join(f"{key}={shlex.quote(value)}" for key, value in launch.env.items())
        if role is Role.ROUTER:
            env = ""
        script += f"{env} {shlex.join(launch.argv('python3'))}\n"
    again = import_settings(parse_launch_script(script, "again.sh")).config
    changed = {str(change.path) for change in diff(config, again)}
    router_env = {key for key in config.settings if key.startswith("router.env.")}
    added_by_launch = {"router.flag.disable-retries"}
    store = {f"{role}.env.ASCEND_MF_STORE_URL" for role in (Role.PREFILL, Role.DECODE)}
    assert changed <= router_env | added_by_launch | store
