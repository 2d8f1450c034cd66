"""Argument lists and environments of servers and routers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.sglang_launch import (
    RouterDialect,
    RouterPlacement,
    ServerPlacement,
    Worker,
    compile_router_launch,
    compile_server_launch,
)
from experiments.errors import InputError
from experiments.serving_config import Role, ServingConfig, Value

PREFILL_AT = ServerPlacement(host="10.0.0.1", port=8000, bootstrap_port=8998, store_url="tcp://10.0.0.1:24670")
DECODE_AT = ServerPlacement(host="10.0.0.2", port=8001, store_url="tcp://10.0.0.1:24670")


def words(role: Role, value: Value, name: str = "tp-size") -> tuple[str, ...]:
    launch = compile_server_launch(
        ServingConfig(settings={f"{role}.flag.{name}": value}), role, ServerPlacement(host="h", port=1)
    )
    return launch.arguments[4:]


def test_true_is_a_bare_flag_and_false_or_none_is_absent() -> None:
    """A boolean never becomes a word."""
    assert words(Role.MIXED, True, "enable-dp-attention") == ("--enable-dp-attention",)
    assert words(Role.MIXED, False, "enable-dp-attention") == ()
    assert words(Role.MIXED, None, "enable-dp-attention") == ()


def test_a_list_flag_splits_on_blanks_and_no_other_flag_does() -> None:
    """Only flags that take several words are split; JSON values keep their blanks."""
    assert words(Role.MIXED, "2 4 8", "cuda-graph-bs") == ("--cuda-graph-bs", "2", "4", "8")
    override = '{"a": 1, "b": 2}'
    assert words(Role.MIXED, override, "json-model-override-args") == ("--json-model-override-args", override)


def test_names_are_one_spelling_whatever_was_written() -> None:
    """Underscores and short aliases reach the server as the full flag."""
    assert words(Role.MIXED, 16, "tp") == ("--tp-size", "16")
    assert words(Role.MIXED, 4, "max_running_requests") == ("--max-running-requests", "4")


def test_two_spellings_of_one_flag_with_two_values_are_refused() -> None:
    """A silent winner would make the card lie."""
    both = ServingConfig(settings={"mixed.flag.tp": 8, "mixed.flag.tp-size": 16})
    with pytest.raises(InputError, match="tp-size is set twice: 8 and 16"):
        compile_server_launch(both, Role.MIXED, ServerPlacement(host="h", port=1))


@pytest.mark.parametrize("value", ["--trust-remote-code", "a\nb", "a\x00b", "", "-x", "y" * 5000])
def test_values_that_could_be_more_than_a_value_are_refused(value: str) -> None:
    """No value becomes a flag, a second line or an empty word."""
    with pytest.raises(InputError, match=r"mixed\.flag\.served-model-name"):
        words(Role.MIXED, value, "served-model-name")


@pytest.mark.parametrize("name", ["host", "port", "disaggregation-mode", "node_rank", "dist-init-addr"])
def test_what_the_pool_places_cannot_be_configured(name: str) -> None:
    """An address on a card is refused with the file that decides it."""
    with pytest.raises(InputError, match="the pool file decides this"):
        words(Role.PREFILL, "1", name)


def test_negative_numbers_are_values() -> None:
    """Chunked prefill is switched off with -1."""
    assert words(Role.PREFILL, -1, "chunked-prefill-size")[-2:] == ("--chunked-prefill-size", "-1")


def test_environment_holds_the_transfer_store_on_both_sides_of_an_ascend_pair() -> None:
    """Both sides find the same store; a configured one wins."""
    pair = ServingConfig(
        settings={
            "prefill.flag.disaggregation-transfer-backend": "ascend",
            "decode.flag.disaggregation-transfer-backend": "ascend",
            "decode.env.ASCEND_MF_STORE_URL": "tcp://other:1",
            "prefill.env.HCCL_BUFFSIZE": 3500,
            "prefill.env.SGLANG_SET_CPU_AFFINITY": True,
        }
    )
    prefill = compile_server_launch(pair, Role.PREFILL, PREFILL_AT)
    decode = compile_server_launch(pair, Role.DECODE, DECODE_AT)
    assert prefill.env == {
        "ASCEND_MF_STORE_URL": "tcp://10.0.0.1:24670",
        "HCCL_BUFFSIZE": "3500",
        "SGLANG_SET_CPU_AFFINITY": "1",
    }
    assert decode.env == {"ASCEND_MF_STORE_URL": "tcp://other:1"}


def test_an_expert_layout_is_a_flag_of_its_role() -> None:
    """A layout card changes one path and one argument."""
    layout = ServingConfig(settings={"decode.layout.init-expert-location": "/data/layouts/d.json"})
    assert compile_server_launch(layout, Role.DECODE, DECODE_AT).arguments[-2:] == (
        "--init-expert-location",
        "/data/layouts/d.json",
    )


def test_a_server_over_two_hosts_names_its_rank_and_meeting_point() -> None:
    """Multi-host placement adds the three flags, and refuses to start without a meeting point."""
    placed = ServerPlacement(host="h1", port=1, nnodes=2, node_rank=1, dist_init_addr="h0:5000")
    launch = compile_server_launch(ServingConfig(settings={}), Role.MIXED, placed)
    assert launch.arguments[4:] == ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "h0:5000")
    with pytest.raises(InputError, match="dist_init_addr"):
        compile_server_launch(ServingConfig(settings={}), Role.MIXED, ServerPlacement(host="h", port=1, nnodes=2))


def test_router_of_a_pair_names_every_worker_and_does_not_retry() -> None:
    """Both router packages take the same worker flags; only the entry differs."""
    placed = RouterPlacement(
        host="127.0.0.1",
        port=6688,
        prefill=(Worker(host="10.0.0.1", port=8000, bootstrap_port=8998),),
        decode=(Worker(host="10.0.0.2", port=8001),),
    )
    policy = ServingConfig(settings={"router.flag.policy": "round_robin"})
    launch = compile_router_launch(policy, placed)
    assert launch.argv("python3") == (
        *("python3", "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", "6688"),
        *("--pd-disaggregation", "--prefill", "http://10.0.0.1:8000", "8998"),
        *("--decode", "http://10.0.0.2:8001", "--disable-retries", "--policy", "round_robin"),
    )
    successor = RouterPlacement(host="h", port=1, dialect=RouterDialect.SMG)
    assert compile_router_launch(policy, successor).argv("python3")[:2] == ("smg", "launch")


def test_router_retries_when_the_configuration_says_so() -> None:
    """The default against retries can be taken back explicitly."""
    launch = compile_router_launch(
        ServingConfig(settings={"router.flag.disable-retries": False}), RouterPlacement(host="h", port=1)
    )
    assert "--disable-retries" not in launch.arguments


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60))
def test_any_text_arrives_as_exactly_one_word_or_is_refused(text: str) -> None:
    """Whatever a planner writes, it is one argument or an error, never two arguments."""
    try:
        launched = words(Role.MIXED, text, "served-model-name")
    except InputError:
        return
    assert launched == ("--served-model-name", text)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from(["tp-size", "page-size", "dp-size", "port-x"]), st.integers(1, 99)))
def test_order_of_arguments_does_not_depend_on_the_order_of_settings(flags: dict[str, int]) -> None:
    """Equal configurations are equal command lines."""
    forward = {f"mixed.flag.{name}": value for name, value in flags.items()}
    backward = dict(reversed(forward.items()))
    at = ServerPlacement(host="h", port=1)
    assert compile_server_launch(ServingConfig(settings=forward), Role.MIXED, at) == compile_server_launch(
        ServingConfig(settings=backward), Role.MIXED, at
    )
