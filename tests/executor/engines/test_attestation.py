"""Configuration against what a server reports."""

from __future__ import annotations

import json

import pytest

from executor.engines import server_info
from executor.engines.attestation import attest
from executor.engines.server_log import parse_arguments
from experiments.serving_config import Role, ServingConfig, Value
from tests.executor.engines.field_samples import REAL, field_text

PREFILL: dict[str, Value] = {
    "tp-size": 16,
    "dp-size": 8,
    "enable-dp-attention": True,
    "chunked-prefill-size": -1,
    "max-prefill-tokens": 20480,
    "mem-fraction-static": 0.62,
    "max-running-requests": 32,
    "speculative-algorithm": "NEXTN",
    "speculative-num-draft-tokens": 2,
    "deepep-mode": "normal",
    "disable-overlap-schedule": True,
    "disaggregation-transfer-backend": "ascend",
    "load-balance-method": "auto",
}
DECODE: dict[str, Value] = {
    "tp-size": 16,
    "dp-size": 16,
    "enable-dp-attention": True,
    "max-running-requests": 448,
    "mem-fraction-static": 0.802,
    "moe-a2a-backend": "deepep",
    "deepep-mode": "low_latency",
    "cuda-graph-bs": "2 4 6 8 10 12 14 16 18 20 22 24 26 28",
    "chunked-prefill-size": 8192,
}


def of(role: Role, flags: dict[str, Value]) -> ServingConfig:
    return ServingConfig(settings={f"{role}.flag.{name}": value for name, value in flags.items()})


def sample(name: str) -> dict[str, object]:
    body = json.loads(field_text(f"server_info/{name}.json"))
    assert isinstance(body, dict)
    return body


def test_a_real_prefill_server_matches_and_its_own_changes_are_named() -> None:
    """NEXTN runs as EAGLE and auto balance is resolved: both expected, neither a mismatch."""
    found = attest(sample("03_a3_pd_prefill"), of(Role.PREFILL, PREFILL), Role.PREFILL)
    assert found.matches
    assert [entry.name for entry in found.adjusted] == ["load-balance-method", "speculative-algorithm"]
    assert found.unverified == ()
    assert found.simulated is False


def test_a_real_decode_server_divides_its_chunk_by_the_ranks() -> None:
    """8192 asked over 16 ranks is 512 effective, by a rule that is named."""
    found = attest(sample("04_a3_pd_decode"), of(Role.DECODE, DECODE), Role.DECODE)
    assert found.matches
    assert [(entry.name, entry.reported) for entry in found.adjusted] == [("chunked-prefill-size", "512")]


@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [("max-running-requests", 416, "448"), ("mem-fraction-static", 0.81, "0.802"), ("tp-size", 8, "16")],
)
def test_any_other_difference_is_a_mismatch(name: str, value: Value, reported: str) -> None:
    """The result of this server must not be filed under this card."""
    found = attest(sample("04_a3_pd_decode"), of(Role.DECODE, {**DECODE, name: value}), Role.DECODE)
    assert [(entry.name, entry.reported) for entry in found.mismatches if entry.name == name] == [(name, reported)]


def test_a_server_of_the_other_role_does_not_match() -> None:
    """A prefill server on the decode port is found by its own word."""
    found = attest(sample("03_a3_pd_prefill"), of(Role.DECODE, {"tp-size": 16}), Role.DECODE)
    assert [str(entry) for entry in found.mismatches] == ["disaggregation-mode: wanted decode, server reports prefill"]


def test_settings_that_moved_into_a_nested_document_are_found() -> None:
    """Graph sizes written under their old name are held against the new place."""
    graphs: dict[str, Value] = {"cuda-graph-max-bs": 1, "cuda-graph-bs": "1", "chunked-prefill-size": 4096}
    assert attest(sample("02_tp2_cuda_graph_config"), of(Role.MIXED, graphs), Role.MIXED).matches


def test_what_is_not_configured_is_not_compared_and_what_is_not_reported_is_listed() -> None:
    """False and None mean absent; a flag that this server does not know is unverified."""
    body = {"version": "0.5.23", "tp_size": 2, "disable_radix_cache": True, "a_key_of_tomorrow": {"x": 1}}
    flags: dict[str, Value] = {"disable-radix-cache": False, "page-size": None, "of-another-fork": 3}
    found = attest(body, of(Role.MIXED, flags), Role.MIXED)
    assert (found.matches, found.unverified, found.version) == (True, ("of-another-fork",), "0.5.23")


def test_exposed_environment_is_compared_and_silence_is_not_a_mismatch() -> None:
    """Servers expose their environment only when told to."""
    config = ServingConfig(settings={"decode.env.HCCL_BUFFSIZE": 800, "decode.env.SGLANG_X": True})
    assert attest({}, config, Role.DECODE).matches
    exposed = {"env_vars": {"HCCL_BUFFSIZE": "650", "SGLANG_X": "1"}}
    assert [str(entry) for entry in attest(exposed, config, Role.DECODE).mismatches] == [
        "HCCL_BUFFSIZE: wanted 800, server reports 650"
    ]


def test_identity_changes_with_a_restart_and_simulation_is_said() -> None:
    """The same command started again is another process."""
    first = {"version": "0.5.23", "startup_time": {"scheduler_e2e": 2.1}, "simulated": True}
    again = {"version": "0.5.23", "startup_time": {"scheduler_e2e": 2.2}, "simulated": True}
    left, right = (attest(body, of(Role.MIXED, {}), Role.MIXED) for body in (first, again))
    assert left.identity is not None
    assert left.identity != right.identity
    assert left.simulated is True


def test_the_printed_arguments_attest_as_the_json_does() -> None:
    """The repr that an old server logs holds the same settings as its JSON."""
    text = field_text("server_info/04_a3_pd_decode_serverargs_repr.txt").partition("server_args=")[2]
    values = parse_arguments(text)
    assert values is not None
    assert attest(values, of(Role.DECODE, DECODE), Role.DECODE).matches


def test_figures_of_a_real_answer_are_read() -> None:
    """Cap, capacity and the missing accept length of a stored real server."""
    body = json.loads(field_text("real_server_info.json", REAL))
    assert server_info.effective_running_cap(body) == 16
    assert server_info.token_capacity(body) == 65536
    assert server_info.accept_length(body) is None
    old = sample("01_single_node_h200")
    assert server_info.effective_running_cap(old) == 2048
    assert server_info.token_capacity(old) == 729090


@pytest.mark.parametrize("body", [{}, {"internal_states": []}, {"internal_states": [3]}, {"internal_states": None}])
def test_missing_state_is_none(body: dict[str, object]) -> None:
    """An answer without the part concerned has no figure, and no error."""
    assert server_info.effective_running_cap(body) is None
    assert server_info.token_capacity(body) is None
    assert server_info.accept_length(body) is None
