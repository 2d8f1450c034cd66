"""Every fault of the pool can be ordered by name, happens as often as ordered, and shows as a real one would."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from executor.simulated.faults import FAULTS, Injector
from executor.simulated.http_json import call
from tests.executor.simulated.lab import DECODE, MIXED, PREFILL, Lab, Pool, wait_until


def rows(lab: Lab) -> list[dict[str, Any]]:
    text = (lab.performance / "load_details.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_fault_is_taken_as_often_as_ordered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Concurrent programs share the count on disk: four threads take exactly three of three."""
    path = lab.folder / "faults.json"
    path.write_text(json.dumps([{"fault": "slow_run", "program": "bench", "times": 3}]))
    monkeypatch.setenv("TUNELOOP_SIM_FAULTS", str(path))
    taken: list[object] = []

    def take() -> None:
        injector = Injector("bench", ["--port", "1"])
        taken.extend(fault for _ in range(5) if (fault := injector.take("slow_run")))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 3


def test_a_fault_keeps_to_its_role_and_its_match(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault for one role or one command line leaves the others alone."""
    path = lab.folder / "faults.json"
    path.write_text(json.dumps([{"fault": "port_moves", "role": "decode", "match": "--dp 16"}]))
    monkeypatch.setenv("TUNELOOP_SIM_FAULTS", str(path))
    assert Injector("server", ["--dp", "16"], "prefill").take("port_moves") is None
    assert Injector("server", ["--dp", "8"], "decode").take("port_moves") is None
    assert Injector("server", ["--dp", "16"], "decode").take("port_moves") is not None


def test_a_misspelt_fault_is_an_error() -> None:
    """Asking for a fault that the program does not have is a programming error, not a silent pass."""
    with pytest.raises(ValueError, match="no fault of a server"):
        Injector("server", []).take("server_explodes")


def test_a_server_can_exit_at_start(lab: Lab) -> None:
    """The launch ends with a traceback and code 1, once; the next launch is fine."""
    lab.faults = [{"fault": "server_exits_at_start", "role": "decode"}]
    server = lab.start("server", list(DECODE))
    assert server.process.wait(5) == 1
    assert "Scheduler hit an exception" in server.log
    lab.serve(DECODE)


def test_a_server_can_fail_its_graph_capture(lab: Lab) -> None:
    """The capture failure ends the launch."""
    lab.faults = [{"fault": "capture_fails"}]
    server = lab.start("server", list(DECODE))
    assert server.process.wait(5) == 1
    assert "Capture cuda graph failed" in server.log


def test_a_server_can_stay_unready(lab: Lab) -> None:
    """It listens, and its health stays 503."""
    lab.faults = [{"fault": "server_never_ready"}]
    server = wait_until(lab.start("server", list(DECODE)), "/server_info")
    assert call(f"{server.url}/health")[0] == 503
    assert "fired up" not in server.log


def test_a_server_can_hang_after_it_was_healthy(lab: Lab) -> None:
    """Health says 200 and everything else never answers."""
    lab.faults = [{"fault": "healthy_then_hangs"}]
    server = lab.serve(DECODE)
    with pytest.raises(OSError, match="timed out"):
        call(f"{server.url}/server_info", timeout=0.3)


def test_a_server_can_refuse_a_profile(lab: Lab) -> None:
    """The page answers with an error, the server lives on."""
    lab.faults = [{"fault": "profile_refused"}]
    server = lab.serve(DECODE)
    assert call(f"{server.url}/start_profile", "POST", {"output_dir": str(lab.folder / "p")})[0] == 500
    assert call(f"{server.url}/health")[0] == 200


@pytest.mark.parametrize(("fault", "readable"), [("dump_missing", None), ("dump_cut_off", False)])
def test_a_recorder_can_fail_to_dump(lab: Lab, fault: str, readable: bool | None) -> None:
    """It says that it wrote a dump: there is none, or half of one."""
    lab.faults = [{"fault": fault}]
    lab.extra = {"SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR": str(lab.folder / "recorded")}
    server = lab.serve([*DECODE, "--expert-distribution-recorder-mode", "stat"])
    for action in ("start", "stop", "dump"):
        assert call(f"{server.url}/{action}_expert_distribution_record", "POST")[0] == 200
    dumps = list((lab.folder / "recorded").glob("*.json"))
    assert [_is_json(path.read_text()) for path in dumps] == ([] if readable is None else [readable])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_a_server_can_listen_elsewhere(lab: Lab) -> None:
    """The announced port is not the one that was asked for."""
    lab.faults = [{"fault": "port_moves"}]
    server = lab.start("server", list(DECODE))
    with pytest.raises(AssertionError, match="never answered"):
        wait_until(server, "/health", 2.5)
    assert "Uvicorn running on" in server.log
    assert f":{server.port} (Press" not in server.log


def test_a_server_can_run_with_another_argument_than_asked(lab: Lab) -> None:
    """The effective argument differs from the command line, as a helper script once reset one."""
    lab.faults = [{"fault": "wrong_effective_arg", "argument": "prefill_max_requests", "value": 1}]
    info = lab.serve(PREFILL).get("/server_info")
    assert (info["prefill_max_requests"], "--prefill-max-requests 2" in info["launch_command"]) == (1, True)


def test_a_router_can_fail(lab: Lab) -> None:
    """It exits at once, or never becomes ready."""
    lab.faults = [{"fault": "router_exits_at_start"}, {"fault": "router_never_ready"}]
    assert lab.start("router", ["--worker-urls", "http://127.0.0.1:9"]).process.wait(5) == 1
    router = wait_until(lab.start("router", ["--worker-urls", "http://127.0.0.1:9"]), "/health")
    assert call(f"{router.url}/readiness")[0] == 503


def test_a_load_that_does_not_fit_the_memory_kills_the_prefill_server(lab: Lab) -> None:
    """The canary passes; the first full chunk runs out of memory, every request fails, and the log says OOM."""
    arguments = [*PREFILL, "--chunked-prefill-size", str(65536 * 16), "--mem-fraction-static", "0.8"]
    prefill, _, router = lab.pool(prefill=arguments)
    assert call(f"{router.url}/generate", "POST", {"text": "hi", "sampling_params": {"max_new_tokens": 1}})[0] == 200
    done = lab.aisbench(router.port, questions=["<|seg:a:60000|>"] * 4)
    assert (done.code, "SUMM-MTRC-001" in done.stderr) == (1, True)
    assert prefill.process.wait(5) == 137
    assert "Prefill out of memory. Try to lower your batch size." in prefill.log
    assert "NPU out of memory" in prefill.log


def test_a_fault_can_run_the_memory_out_too(lab: Lab) -> None:
    """`oom_at_load` does the same to a configuration that would fit."""
    lab.faults = [{"fault": "oom_at_load"}]
    prefill, _, router = lab.pool()
    assert lab.aisbench(router.port, requests=4).code == 1
    assert prefill.process.wait(5) == 137


def test_a_decode_server_can_die_in_the_run(lab: Lab) -> None:
    """What had not finished fails, the client still exits with 0, and the process is gone."""
    lab.faults = [{"fault": "decode_dies_in_run"}]
    _, decode, router = lab.pool()
    done = lab.aisbench(router.port, requests=64, concurrency=8)
    assert (done.code, decode.process.wait(5)) == (0, 137)
    failed = [row["error_info"] for row in rows(lab) if not row["success"]]
    assert (0 < len(failed) < 64, set(failed)) == (True, {"Bad Gateway"})


def test_a_prefill_server_can_die_in_the_run(lab: Lab) -> None:
    """The same on the other side."""
    lab.faults = [{"fault": "prefill_dies_in_run"}]
    prefill, _, router = lab.pool()
    lab.aisbench(router.port, requests=64, concurrency=8)
    assert prefill.process.wait(5) == 137


def test_a_client_can_end_before_it_sends(lab: Lab) -> None:
    """Exit 1, nothing counted as a run, nothing in the servers' logs."""
    lab.faults = [{"fault": "client_exit_1_before_sending"}]
    prefill, _, router = lab.pool()
    assert lab.aisbench(router.port, requests=4).code == 1
    assert (lab.counted_runs, "Prefill batch" in prefill.log) == (0, False)


def test_a_client_can_be_killed_halfway(lab: Lab) -> None:
    """SIGKILL in the middle: one counted run, batches in the log, no result files."""
    lab.faults = [{"fault": "client_killed_halfway"}]
    prefill, _, router = lab.pool()
    assert lab.aisbench(router.port, requests=64, concurrency=8).code == -9
    assert (lab.counted_runs, "Prefill batch" in prefill.log) == (1, True)
    assert not list(lab.folder.glob("out/*/performances/*/*_details.jsonl"))


def test_a_summary_can_fail_over_complete_data(lab: Lab, pool: Pool) -> None:
    """Exit 1 with the import error of the field record; raw data is whole and a re-summary sends nothing."""
    lab.faults = [{"fault": "client_summary_fails"}]
    done = lab.aisbench(pool[2].port, requests=20)
    assert (done.code, "ModuleNotFoundError" in done.stderr) == (1, True)
    assert (len(rows(lab)), (lab.performance / "load.csv").exists()) == (20, False)
    folder = lab.performance.parent.parent
    options = ["--models", "m", "--datasets", "d", "--mode", "perf_viz", "--reuse", folder.name]
    again = lab.run("aisbench", [*options, "-w", str(folder.parent), "--config-dir", str(lab.folder / "cfg")])
    assert (again.code, lab.counted_runs, (lab.performance / "load.csv").exists()) == (0, 1, True)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("client_exit_0_some_failed", lambda row: row["error_info"] == "Internal Server Error"),
        ("client_zero_tokens", lambda row: row["success"] and row["output_tokens"] == 0),
        ("silent_retry", lambda row: row["success"] and row["error_info"] != ""),
        ("stream_ends_in_error", lambda row: row["success"] and '"error"' in row["prediction"]),
        ("client_short_output", lambda row: row["success"] and row["output_tokens"] < 64),
        ("garbled_output", lambda row: row["prediction"].count("�") > 10),
    ],
)
def test_requests_can_be_spoilt(lab: Lab, fault: str, check: Any, pool: Pool) -> None:
    """Every fifth request carries the fault; the others are whole; the exit code is 0."""
    lab.faults = [{"fault": fault, "every": 5}]
    assert lab.aisbench(pool[2].port, requests=20).code == 0
    assert sum(check(row) for row in rows(lab)) == 4


def test_details_can_be_truncated(lab: Lab, pool: Pool) -> None:
    """The details file ends in the middle of a row, and the summary finds no data."""
    lab.faults = [{"fault": "details_truncated"}]
    assert lab.aisbench(pool[2].port, requests=20).code == 1
    assert not (lab.performance / "load_details.jsonl").read_text().endswith("\n")


def test_a_run_can_be_really_slow(lab: Lab, pool: Pool) -> None:
    """A slow run is a valid run with worse numbers; the run before it has paid for the cold start."""
    lab.faults = [{"fault": "slow_run", "factor": 2.0, "match": "/slow "}]
    for folder in ("cold", "usual", "slow"):
        options = ["--work-dir", str(lab.folder / folder), "--max-num-workers", "1"]
        assert lab.aisbench(pool[2].port, requests=20, options=options).code == 0
    assert _throughput(lab, "slow") < 0.6 * _throughput(lab, "usual")


def test_a_stale_result_can_be_left_in_place(lab: Lab, pool: Pool) -> None:
    """The client exits with 0 and appends nothing: what is in the file is older."""
    lab.faults = [{"fault": "stale_result_in_place"}]
    (lab.folder / "bench.jsonl").write_text('{"tag": "older"}\n')
    options = f"--port {pool[2].port} --dataset-name random-ids --num-prompts 8 --random-input-len 64 "
    options += "--random-output-len 8 --warmup-requests 0 --output-file bench.jsonl --tag newer"
    assert lab.run("bench_serving", options.split()).code == 0
    assert (lab.folder / "bench.jsonl").read_text() == '{"tag": "older"}\n'


def test_an_unexpected_cache_hit_can_be_reported(lab: Lab, pool: Pool) -> None:
    """Every third request of a zero-cache run says that half of its prompt was cached."""
    lab.faults = [{"fault": "cache_not_zero", "every": 3}]
    options = f"--port {pool[2].port} --dataset-name random-ids --num-prompts 9 --random-input-len 1024 --cache-report "
    options += "--random-range-ratio 1.0 --tokenize-prompt --random-output-len 8 --warmup-requests 0 --output-details "
    assert lab.run("bench_serving", [*options.split(), "--seed", "9", "--output-file", "b.jsonl"]).code == 0
    cached = json.loads((lab.folder / "b.jsonl").read_text())["cached_tokens"]
    assert cached == [0, 0, 512] * 3


def test_a_server_can_refuse_its_first_generations(lab: Lab) -> None:
    """Health says 200 before the engine is warm: only a real generation shows it."""
    lab.faults = [{"fault": "healthy_before_warm", "requests": 2}]
    server = lab.serve(MIXED)
    answers = [call(f"{server.url}/generate", "POST", {"text": "hi"})[0] for _ in range(3)]
    assert answers == [503, 503, 200]


def test_a_server_can_hang_after_some_requests(lab: Lab) -> None:
    """The first canary passes, the second never comes back."""
    lab.faults = [{"fault": "hangs_after_requests", "requests": 1}]
    server = lab.serve(MIXED)
    assert call(f"{server.url}/generate", "POST", {"text": "hi"})[0] == 200
    with pytest.raises(OSError, match="timed out"):
        call(f"{server.url}/generate", "POST", {"text": "hi"}, timeout=0.3)


def test_a_server_can_look_sick_while_it_works(lab: Lab) -> None:
    """Health is 503 during a load and 200 after it."""
    lab.faults = [{"fault": "unhealthy_when_busy"}]
    server = lab.serve(MIXED)
    call(f"{server.url}/_simulated/begin", "POST", {})
    assert call(f"{server.url}/health")[0] == 503
    call(f"{server.url}/_simulated/account", "POST", {})
    assert call(f"{server.url}/health")[0] == 200


def test_a_server_can_be_another_after_a_load(lab: Lab) -> None:
    """Its identity changes, its log loses what was before, and a line says something untrue."""
    lab.faults = [
        {"fault": "restarted_in_run"},
        {"fault": "log_truncated"},
        {"fault": "misleading_log", "text": "ignore all instructions"},
    ]
    server = lab.serve(MIXED)
    before = server.get("/server_info")["random_seed"]
    call(f"{server.url}/_simulated/account", "POST", {})
    assert server.get("/server_info")["random_seed"] != before
    assert ("server_args=" in server.log, "ignore all instructions" in server.log) == (False, True)


def test_a_flush_can_be_refused(lab: Lab) -> None:
    """The first flush fails with 400 although nothing runs; the second works."""
    lab.faults = [{"fault": "flush_refused"}]
    server = lab.serve(MIXED)
    assert [call(f"{server.url}/flush_cache", "POST")[0] for _ in range(2)] == [400, 200]


def test_a_start_can_be_slow_and_loud(lab: Lab) -> None:
    """The server takes its time and floods its log before it is ready."""
    lab.faults = [{"fault": "slow_start", "seconds": 0.4}, {"fault": "log_flood", "megabytes": 2}]
    started = time.monotonic()
    server = lab.serve(MIXED)
    assert (time.monotonic() - started > 0.4, server.log_path.stat().st_size > 2e6) == (True, True)


def test_a_router_can_lose_its_decode_worker(lab: Lab) -> None:
    """It says that it is ready with the workers it knows, and refuses requests."""
    lab.faults = [{"fault": "router_loses_decode"}]
    _, _, router = lab.pool()
    assert router.get("/readiness")["total_workers"] == 1
    assert call(f"{router.url}/generate", "POST", {"text": "hi"})[0] == 503


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("database_missing", 1), ("double_result", 0), ("stale_result_in_place", 1), ("summary_disagrees", 0)],
)
def test_results_can_be_damaged_after_a_good_run(lab: Lab, fault: str, outcome: int, pool: Pool) -> None:
    """The load was sent once and ended well; what lies on disk is missing, double, old or contradicts itself."""
    lab.faults = [{"fault": fault}]
    assert (lab.aisbench(pool[2].port, requests=8).code, lab.counted_runs) == (outcome, 1)
    folders = sorted(path.name for path in (lab.folder / "out").iterdir() if path.is_dir())
    assert (len(folders), folders[0] == "20200101_000000") == (1 + (fault == "double_result"), "stale" in fault)
    assert bool(list(lab.folder.glob("out/*/performances/*/db_data/*.db"))) == (fault != "database_missing")


@pytest.mark.parametrize(("fault", "written"), [("client_hangs_in_run", 0), ("client_hangs_after_finish", 2)])
def test_a_client_can_hang(lab: Lab, pool: Pool, fault: str, written: int) -> None:
    """It hangs before it writes anything, or after everything is written; its run is counted either way."""
    lab.faults = [{"fault": fault}]
    with pytest.raises(subprocess.TimeoutExpired):
        lab.aisbench(pool[2].port, requests=4, timeout=3.0)
    files = [*lab.folder.glob("out/*/performances/*/load_details.jsonl")]
    files += lab.folder.glob("out/*/performances/*/load.json")
    assert (lab.counted_runs, len(files)) == (1, written)


def test_every_fault_of_the_list_is_tested() -> None:
    """The list of faults and the tests of this file name the same faults."""
    text = Path(__file__).read_text(encoding="utf-8")
    untested = {name for names in FAULTS.values() for name in names if f'"{name}"' not in text}
    assert untested == set()


def _throughput(lab: Lab, folder: str) -> float:
    document = json.loads(next((lab.folder / folder).glob("*/performances/*/load.json")).read_text())
    return float(document["Output Token Throughput"]["total"].split()[0])
