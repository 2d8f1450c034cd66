"""The simulated server has the surface of a real one."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from executor.simulated.arguments import parse
from executor.simulated.calibrations import calibration_for
from executor.simulated.http_json import call
from executor.simulated.resolution import Effective, LaunchRefused, resolve
from tests.executor.simulated.lab import DECODE, MIXED, PREFILL, Lab, wait_until

REAL_INFO = Path("/work/shared/samples/sglang_real/real_server_info.json")


def effective(arguments: list[str], version: str = "0.5.22", **environment: str) -> Effective:
    options = parse([*arguments, "--port", "30000"], version)
    return resolve(options, environment, calibration_for(str(options["model_path"])))


def test_a_server_starts_in_the_order_of_a_real_one_and_says_that_it_is_simulated(lab: Lab) -> None:
    """The log has the real start-up lines in order, per rank where a rank prints them."""
    started = time.monotonic()
    server = lab.serve(PREFILL)
    assert time.monotonic() - started < 2.0
    order = [
        "simulated:",
        "chunked prefill size is adjusted from 131072 to 8192",
        "server_args={",
        "CommonKVBootstrapServer started successfully",
        "DP15 TP15 EP15] Load weight end.",
        "chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=64",
        "Uvicorn running on http://127.0.0.1:",
        "End of disaggregation warmup",
        "The server is fired up and ready to roll!",
    ]
    places = [server.log.index(text) for text in order]
    assert places == sorted(places)


@pytest.mark.skipif(not REAL_INFO.is_file(), reason="the shared samples are not on this machine")
def test_server_info_has_the_fields_of_a_real_one(lab: Lab) -> None:
    """Every resolved argument is a top-level key; nothing that a real 0.5.23 reports about options is missing."""
    lab.extra["TUNELOOP_SIM_SGLANG_VERSION"] = "0.5.23"
    info = lab.serve(DECODE).get("/server_info")
    real = json.loads(REAL_INFO.read_text())
    options = set(parse(["--model-path", "m"], "0.5.23")) - {"config"}
    expected = (set(real) & options) | {"internal_states", "launch_command", "max_total_num_tokens", "startup_time"}
    assert expected - set(info) == set()
    assert set(real["startup_time"]) == set(info["startup_time"])
    state = info["internal_states"][0]
    assert (len(info["internal_states"]), state["effective_max_running_requests_per_dp"]) == (16, 16)
    assert (info["version"], info["simulated"], info["load_balance_method"]) == ("0.5.23", True, "round_robin")


def test_health_ready_models_loads_and_metrics_answer(lab: Lab) -> None:
    """The read-only endpoints answer as documented; metrics only where they were switched on."""
    server = lab.serve(PREFILL)
    for path in ("/health", "/health_generate", "/ready"):
        assert call(server.url + path)[0] == 200
    assert server.get("/model_info") == server.get("/get_model_info")
    loads = server.get("/v1/loads?include=core,disagg")["loads"]
    assert (len(loads), loads[3]["disaggregation"]["mode"]) == (16, "prefill")
    assert "sglang:num_prefill_bootstrap_queue_reqs" in server.get("/metrics")
    quiet = lab.serve([argument for argument in DECODE if argument != "--enable-metrics"])
    assert call(f"{quiet.url}/metrics")[0] == 404
    assert call(f"{server.url}/nothing")[0] == 404


def test_a_busy_server_refuses_to_flush(lab: Lab) -> None:
    """While a run is in progress the flush fails with 400; afterwards it empties the cache."""
    server = lab.serve(MIXED)
    call(f"{server.url}/_simulated/begin", "POST", {})
    assert call(f"{server.url}/flush_cache", "POST") == (400, "Flush cache failed.\n")
    call(f"{server.url}/_simulated/account", "POST", {"caches": [[[-1, "p", 4096]]]})
    assert server.get("/_simulated/state")["heads"] == ["p"]
    assert call(f"{server.url}/flush_cache", "POST")[0] == 200
    assert server.get("/_simulated/state")["heads"] == []


def test_a_mixed_server_generates(lab: Lab) -> None:
    """Native and chat requests return the asked number of tokens; the second identical prompt is cached."""
    server = lab.serve([*MIXED, "--load-balance-method", "round_robin"])
    body = {"text": "<|seg:a:40000|>", "sampling_params": {"max_new_tokens": 5}, "data_parallel_rank": 3}
    first, second = (call(f"{server.url}/generate", "POST", body)[1]["meta_info"] for _ in range(2))
    assert (first["cached_tokens"], second["cached_tokens"], second["completion_tokens"]) == (0, 38912, 5)
    chat = {"messages": [{"role": "user", "content": "a b c"}], "max_tokens": 3, "stream": True}
    _, events = call(f"{server.url}/v1/chat/completions", "POST", chat)
    assert (events.count("data: "), '"completion_tokens": 3' in events) == (4, True)


def test_a_prefill_server_asks_for_a_bootstrap_room(lab: Lab) -> None:
    """A request that did not come through a router is refused by a disaggregated server."""
    server = lab.serve(PREFILL)
    status, answer = call(f"{server.url}/generate", "POST", {"text": "hi"})
    assert (status, "bootstrap room" in answer["error"]["message"]) == (400, True)


def test_a_sigterm_drains_and_ends(lab: Lab) -> None:
    """SIGTERM is announced and ends the process with code 0."""
    server = lab.serve(DECODE)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(5) == 0
    assert "SIGTERM received" in server.log


def test_a_taken_port_is_an_error(lab: Lab) -> None:
    """A second server on the same port ends with code 1 and says why."""
    first = lab.serve(DECODE)
    second = lab.start("server", list(DECODE), first.port)
    assert second.process.wait(5) == 1
    assert "address already in use" in second.log


@pytest.mark.parametrize(
    ("arguments", "version", "message"),
    [
        (["--no-such-flag"], "0.5.22", "unrecognized arguments: --no-such-flag"),
        (["--chunked-prefill-size", "many"], "0.5.22", "invalid .* value: 'many'"),
        (["--schedule-policy", "best"], "0.5.22", "invalid choice: 'best'"),
        (["--cuda-graph-bs", "2", "4"], "0.5.22", "ambiguous option: --cuda-graph-bs could match"),
        (["--prefill-round-robin-balance"], "0.5.22", "unrecognized arguments: --prefill-round-robin-balance"),
        (["--prefill-max-requests", "2"], "0.5.6", "unrecognized arguments: --prefill-max-requests"),
    ],
)
def test_an_unknown_flag_ends_as_argparse_does(
    arguments: list[str], version: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong options leave with code 2 and argparse's own message, per release."""
    with pytest.raises(SystemExit) as ended:
        parse(["--model-path", "m", *arguments], version)
    assert ended.value.code == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tp-size 16 --dp-size 3 --enable-dp-attention", "tp_size must be divisible by dp_size"),
        ("--tp-size 16 --chunked-prefill-size 8200", "chunked_prefill_size must be divisible by page_size"),
        ("--enable-dp-lm-head", "Please enable dp attention"),
        ("--moe-dense-tp-size 2", "moe_dense_tp_size only support 1 and None"),
        ("--speculative-algorithm NEXTN --speculative-eagle-topk 4", "speculative_eagle_topk > 1 with page_size > 1"),
        ("--speculative-algorithm NEXTN --enable-mixed-chunk", "speculative decoding is enabled"),
        ("--max-running-requests 4 --dp-size 8 --tp-size 8", "max_running_request is zero"),
        ("--mem-fraction-static 0.2", "Not enough memory"),
        ("--mem-fraction-static 0.95", "Capture cuda graph failed"),
        (
            "--tp-size 16 --dp-size 16 --enable-dp-attention --moe-a2a-backend deepep --deepep-mode low_latency "
            "--max-running-requests 512 --speculative-algorithm NEXTN --speculative-num-steps 5",
            "num_tokens 192 exceeds num_max_dispatch_tokens_per_rank 128",
        ),
    ],
)
def test_an_impossible_configuration_is_refused_in_the_servers_own_words(arguments: str, message: str) -> None:
    """Relations of sizes that cannot work end the launch before the server is ready."""
    with pytest.raises(LaunchRefused, match=re.escape(message)):
        effective(["--model-path", "flash", *arguments.split()])


def test_a_refused_launch_ends_the_process(lab: Lab) -> None:
    """The process exits with 1, prints the exception, and never prints its arguments."""
    server = lab.start("server", ["--model-path", "flash", "--mem-fraction-static", "0.2"])
    assert server.process.wait(5) == 1
    assert "RuntimeError: Not enough memory" in server.log
    assert "server_args=" not in server.log


def test_values_are_adjusted_as_a_real_server_adjusts_them() -> None:
    """Chunk and running requests are per rank, deepep forces ep = tp, drafts follow the steps."""
    resolved = effective(
        [*DECODE, "--chunked-prefill-size", "65536"], SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK="512"
    )
    arguments = resolved.arguments
    assert (arguments["chunked_prefill_size"], arguments["ep_size"], resolved.running_per_rank) == (4096, 16, 16)
    assert (arguments["disable_radix_cache"], arguments["speculative_algorithm"], resolved.width) == (True, "EAGLE", 6)
    assert effective(["--model-path", "m", "--speculative-algorithm", "EAGLE"]).arguments["max_running_requests"] == 48


def test_abbreviated_options_are_read() -> None:
    """`--tp` and `--dp` work, as argparse allows them there."""
    options = parse(["--model-path", "m", "--tp", "16", "--dp", "2"], "0.5.22")
    assert (options["tp_size"], options["dp_size"]) == (16, 2)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.8", "#prealloc-req: 0, #inflight-req: 1, cpu graph: False, input throughput (token/s): "),
        ("0.5.10", "#new-token: 128, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, #prealloc"),
        ("0.5.22", "#new-token: 3, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, #pending-to"),
    ],
)
def test_log_lines_have_the_dialect_of_their_release(lab: Lab, version: str, expected: str) -> None:
    """Old releases round new tokens to pages and call the graph label otherwise."""
    lab.extra["TUNELOOP_SIM_SGLANG_VERSION"] = version
    server = lab.serve(PREFILL)
    call(f"{server.url}/generate", "POST", {"text": "a b c", "bootstrap_room": 5})
    wait_until(server, "/health")
    (line,) = [line for line in server.log.splitlines() if "Prefill batch" in line]
    assert expected in line
    assert " DP5 TP5 EP5] " in line


def test_the_expert_recorder_writes_a_layout_source(lab: Lab) -> None:
    """With a recorder mode the distribution can be dumped to a file; without one the request is refused."""
    lab.extra["SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR"] = str(lab.folder)
    server = lab.serve([*MIXED, "--expert-distribution-recorder-mode", "stat"])
    for action in ("start", "stop", "dump"):
        assert call(f"{server.url}/{action}_expert_distribution_record", "POST")[0] == 200
    (dumped,) = lab.folder.glob("expert_distribution_recorder_*.json")
    assert len(json.loads(dumped.read_text())["logical_count"][0]) == 256
    plain = lab.serve(MIXED)
    assert call(f"{plain.url}/dump_expert_distribution_record", "POST")[0] == 400


def test_retractions_are_warned_about_in_the_decode_log(lab: Lab) -> None:
    """A run with retractions leaves SGLang's warning, at its time and rank."""
    server = lab.serve(DECODE)
    call(f"{server.url}/_simulated/account", "POST", {"retractions": [[1.5, 3, 700]], "duration_s": 2.0})
    (line,) = [line for line in server.log.splitlines() if "Retract requests" in line]
    assert " DP3 TP3 EP3] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 700" in line
