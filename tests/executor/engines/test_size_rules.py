"""Rules between sizes, checked before anything starts."""

from __future__ import annotations

import pytest

from executor.engines.release import Release, parse_release
from executor.engines.size_rules import check_sizes
from executor.engines.violation import Severity, Violation, Workload
from experiments.serving_config import Role, ServingConfig, Value

LOAD_16K = Workload(prompt_tokens=16388, output_tokens=1024)

# The official 16-card DeepSeek-R1 W4A8 pair, as far as its sizes go.
OFFICIAL: dict[str, Value] = {
    "prefill.flag.tp-size": 16,
    "prefill.flag.dp-size": 8,
    "prefill.flag.enable-dp-attention": True,
    "prefill.flag.moe-a2a-backend": "deepep",
    "prefill.flag.deepep-mode": "normal",
    "prefill.flag.chunked-prefill-size": -1,
    "prefill.flag.max-prefill-tokens": 20480,
    "prefill.flag.max-running-requests": 32,
    "prefill.flag.disable-radix-cache": True,
    "prefill.flag.disable-overlap-schedule": True,
    "prefill.flag.speculative-algorithm": "NEXTN",
    "prefill.flag.speculative-num-steps": 1,
    "prefill.flag.speculative-eagle-topk": 1,
    "prefill.flag.speculative-num-draft-tokens": 2,
    "prefill.flag.device": "npu",
    "prefill.flag.disaggregation-transfer-backend": "ascend",
    "decode.flag.tp-size": 16,
    "decode.flag.dp-size": 16,
    "decode.flag.enable-dp-attention": True,
    "decode.flag.enable-dp-lm-head": True,
    "decode.flag.moe-a2a-backend": "deepep",
    "decode.flag.deepep-mode": "low_latency",
    "decode.flag.max-running-requests": 416,
    "decode.flag.cuda-graph-bs": "2 4 6 8 10 12 14 16 18 20 22 24 26",
    "decode.flag.speculative-algorithm": "NEXTN",
    "decode.flag.speculative-num-steps": 2,
    "decode.flag.speculative-eagle-topk": 1,
    "decode.flag.speculative-num-draft-tokens": 3,
    "decode.flag.device": "npu",
    "decode.flag.disaggregation-transfer-backend": "ascend",
    "decode.env.SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": 78,
    "decode.env.SGLANG_ENABLE_SPEC_V2": 1,
}


def violations(
    changes: dict[str, Value], release: Release | None = None, workload: Workload | None = None
) -> dict[str, Violation]:
    settings = {key: value for key, value in {**OFFICIAL, **changes}.items() if value is not None}
    return {found.rule: found for found in check_sizes(ServingConfig(settings=settings), release, workload)}


def test_the_official_pair_breaks_no_rule() -> None:
    """A configuration that is known to run is not refused."""
    assert violations({}) == {}


@pytest.mark.parametrize(
    ("changes", "rule", "figures"),
    [
        ({"decode.flag.dp-size": 5}, "tp_per_dp", ["16", "5"]),
        ({"decode.flag.max-running-requests": 432}, "dispatch_capacity", ["27", "3", "81", "78"]),
        (
            {"decode.env.SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": None},
            "",
            [],
        ),  # 78 fits the default 128
        ({"decode.env.SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": 2048}, "dispatch_limit", ["1024"]),
        ({"decode.flag.max-running-requests": 8}, "running_per_dp", ["8", "16", "0"]),
        ({"prefill.flag.chunked-prefill-size": 8200}, "chunk_page", ["8200", "1025", "128"]),
        ({"prefill.flag.chunked-prefill-size": 65536}, "", []),
        ({"decode.flag.speculative-eagle-topk": 4}, "eagle_topk", ["4", "128"]),
        ({"decode.flag.speculative-num-draft-tokens": 4}, "draft_tokens", ["2", "3", "4"]),
        ({"decode.flag.speculative-num-steps": None}, "draft_needs_steps", []),
        ({"decode.flag.speculative-algorithm": None}, "speculation_parity", ["EAGLE"]),
        ({"decode.flag.speculative-algorithm": "EAGLE"}, "", []),
        ({"decode.flag.page-size": 64}, "npu_page", ["64", "128"]),
        ({"decode.flag.moe-dense-tp-size": 2}, "moe_dense_tp", ["2"]),
        ({"prefill.flag.dp-size": 1, "prefill.flag.enable-dp-lm-head": True}, "dp_lm_head", ["1"]),
        ({"decode.flag.ep-size": 8}, "ep_is_tp", ["8", "16"]),
        ({"decode.flag.cuda-graph-bs": "2 4 8 16 24"}, "graph_below_cap", ["24", "25", "26"]),
        ({"decode.flag.mem-fraction-static": 1.2}, "memory_share", ["1.2"]),
        ({"decode.flag.disaggregation-transfer-backend": "mooncake"}, "npu_transfer", ["mooncake"]),
        ({"decode.flag.kv-cache-dtype": "fp8_e5m2"}, "handover_parity", ["fp8_e5m2"]),
        ({"prefill.flag.disable-overlap-schedule": None}, "npu_prefill_overlap", []),
        ({"decode.flag.enable-two-batch-overlap": True}, "npu_two_batch", []),
        ({"prefill.flag.enable-mixed-chunk": True}, "mixed_chunk_speculation", ["NEXTN"]),
        ({"prefill.flag.enable-hierarchical-cache": True}, "radix_and_hicache", []),
        ({"prefill.flag.disaggregation-transfer-backend": "fake"}, "fake_transfer", []),
        ({"decode.flag.pp-size": 2, "decode.flag.speculative-algorithm": "NEXTN"}, "pp_speculation", ["2"]),
        (
            {
                "decode.flag.moe-a2a-backend": "ascend_fuseep",
                "decode.env.SGLANG_NPU_FUSED_MOE_MODE": 3,
            },
            "fused_moe_mode",
            ["3"],
        ),
        ({"decode.flag.enable-eplb": True, "decode.flag.moe-a2a-backend": "ascend_fuseep"}, "eplb_fuseep", []),
    ],
)
def test_each_rule_names_its_figures(changes: dict[str, Value], rule: str, figures: list[str]) -> None:
    """One change away from the official pair, the rule concerned speaks, with its figures."""
    found = violations(changes)
    if not rule:
        assert found == {}
        return
    assert rule in found
    for figure in figures:
        assert figure in found[rule].message


def test_no_batch_size_left_to_capture_is_refused_before_launch() -> None:
    """16 running over 8 ranks with 4 attention ranks each leaves 1 and 2, neither a multiple of 4."""
    changes: dict[str, Value] = {
        "decode.flag.tp-size": 32,
        "decode.flag.dp-size": 8,
        "decode.flag.max-running-requests": 16,
        "decode.flag.cuda-graph-bs": "1 2 3 4 5 6 7 8 10 12 14 16",
        "decode.flag.ep-size": None,
    }
    assert violations(changes)["capture_empty"].severity is Severity.INVALID
    assert "capture_empty" not in violations({**changes, "decode.flag.max-running-requests": 32})


@pytest.mark.parametrize(
    ("budget", "release", "expected"),
    [
        (16384, "0.5.12.post1", Severity.NO_EFFECT),
        (16640, "0.5.10.post1", Severity.NO_EFFECT),
        (16896, "0.5.8", Severity.RISK),
        (24576, "0.5.8", Severity.RISK),
        (24704, "0.5.8", None),
        (16384, "0.5.13", None),
        (16384, None, None),
    ],
)
def test_the_prefill_gate_follows_the_measured_table(
    budget: int, release: str | None, expected: Severity | None
) -> None:
    """960 batches up to 16640, 747 and 646 in between, 645 from 24704: none, part, all of the effect."""
    found = violations(
        {
            "prefill.flag.prefill-max-requests": 2,
            "prefill.flag.chunked-prefill-size": 65536,
            "prefill.flag.max-prefill-tokens": budget,
            "prefill.flag.disable-radix-cache": None,
        },
        parse_release(release),
        LOAD_16K,
    )
    gate = found.get("prefill_gate")
    assert (gate.severity if gate else None) == expected


def test_the_gate_does_not_exist_without_a_radix_cache() -> None:
    """The sibling routine that runs without the cache never had the gate."""
    changes: dict[str, Value] = {
        "prefill.flag.prefill-max-requests": 2,
        "prefill.flag.chunked-prefill-size": 65536,
        "prefill.flag.max-prefill-tokens": 16384,
    }
    assert "prefill_gate" not in violations(changes, Release(0, 5, 10), LOAD_16K)


@pytest.mark.parametrize(
    ("name", "value", "release", "rule"),
    [
        ("prefill.flag.prefill-max-requests", 2, "0.5.6.post2", "flag_unknown"),
        ("decode.flag.prefill-round-robin-balance", True, "0.5.10", "flag_ignored"),
        ("decode.flag.prefill-round-robin-balance", True, "0.5.20", "flag_removed"),
        ("decode.flag.cuda-graph-max-bs", 26, "0.5.23", "flag_renamed"),
    ],
)
def test_flags_are_held_against_the_release(name: str, value: Value, release: str, rule: str) -> None:
    """A removed, renamed, ignored or unknown flag is found before the server refuses or drops it."""
    assert rule in violations({name: value}, parse_release(release))


def test_context_and_expert_counts_use_the_workload() -> None:
    """Figures of the goal take part where the rule needs them."""
    assert "context_length" in violations({"prefill.flag.context-length": 16384}, None, LOAD_16K)
    experts = Workload(n_experts=256)
    assert "experts_per_rank" not in violations({"decode.flag.ep-num-redundant-experts": 16}, None, experts)
    assert "experts_per_rank" in violations({"decode.flag.ep-num-redundant-experts": 10}, None, experts)


def test_data_parallel_over_hosts_needs_data_parallel_attention() -> None:
    """Plain data parallelism does not cross hosts."""
    config = ServingConfig(settings={"mixed.flag.tp-size": 16, "mixed.flag.dp-size": 2})
    rules = [found.rule for found in check_sizes(config, nnodes={Role.MIXED: 2})]
    assert rules == ["dp_over_nodes"]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.5.12.post1", Release(0, 5, 12, 1)),
        ("SGLang 0.5.6.post2", Release(0, 5, 6, 2)),
        ("0.5.16.dev47+g1362e52b6", Release(0, 5, 16, -1)),
        ("v0.5.10-npu.rc1", Release(0, 5, 10, -1)),
        ("npu-v0.5.9.rc1", Release(0, 5, 9, -1)),
        ("0.1.dev10993+g53132054b", None),
        ("0.0.0.dev1+ga4cf2ea12", None),
        ("unknown", None),
        (None, None),
    ],
)
def test_releases_are_read_and_nightly_numbers_are_not_guessed(text: str | None, release: Release | None) -> None:
    """Only a real release number orders; rules of a release keep silent for the rest."""
    assert parse_release(text) == release


@pytest.mark.parametrize(
    ("flags", "rules"),
    [
        ({"enable-cache-report": True}, set()),
        ({}, {"cache_report"}),
        ({"enable-cache-report": True, "disable-radix-cache": True}, {"warm_without_radix"}),
    ],
)
def test_a_warm_scenario_needs_the_cache_and_its_report(flags: dict[str, bool], rules: set[str]) -> None:
    """Real servers stay silent about cached tokens unless they are told to speak."""
    config = ServingConfig(settings={f"mixed.flag.{name}": value for name, value in {"tp-size": 8, **flags}.items()})
    warm = Workload(prompt_tokens=131076, output_tokens=1024, cached_tokens=118784)
    found = {v.rule for v in check_sizes(config, None, warm)} & {"cache_report", "warm_without_radix"}
    assert found == rules
    assert not {v.rule for v in check_sizes(config, None, Workload())} & {"cache_report", "warm_without_radix"}
