"""The simulated bench_serving writes what the real one writes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from executor.bench.bench_serving import read_bench_serving
from executor.simulated.http_json import call
from tests.executor.simulated.lab import MIXED, Lab, Pool

SAMPLES = Path("/work/shared/samples/sglang_real")
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the shared samples are not on this machine")


def bench(lab: Lab, port: int, *options: str, requests: int = 24) -> list[str]:
    base = f"--backend sglang --host 127.0.0.1 --port {port} --dataset-name random-ids --num-prompts {requests} "
    base += "--random-input-len 2100 --random-output-len 64 --random-range-ratio 1.0 --tokenize-prompt "
    base += "--output-details --cache-report --warmup-requests 0 --max-concurrency 8 --output-file bench.jsonl"
    return [*base.split(), *options]


@needs_samples
def test_the_record_has_the_keys_of_a_real_one_in_order(lab: Lab, pool: Pool) -> None:
    """A run through the router gives the keys of a stored real run through a real router."""
    done = lab.run("bench_serving", bench(lab, pool[2].port, "--tag", "exp-1"))
    assert done.code == 0, done.stderr
    ours = json.loads((lab.folder / "bench.jsonl").read_text())
    real = json.loads((SAMPLES / "real_cpu_pd.jsonl").read_text().splitlines()[0])
    assert list(ours) == list(real)
    assert list(ours["cache_report"]) == list(real["cache_report"])
    assert (ours["server_info"], ours["accept_length"], ours["completed"]) == (None, None, 24)
    assert math.isinf(ours["request_rate"])


@needs_samples
def test_the_console_has_the_labels_of_a_real_one(lab: Lab, pool: Pool) -> None:
    """Labels and section titles of the summary equal a stored real console."""
    options = bench(lab, pool[2].port)
    done = lab.run("bench_serving", ["--seed", "5", *options])
    real = (SAMPLES / "real_cpu_pd.log").read_text()
    ours_labels, real_labels = _labels(done.stdout), _labels(real)
    assert [label for label in real_labels if label not in ("  Device:", "  Host:")] == ours_labels


def test_the_product_reads_a_run_with_warm_prefixes(lab: Lab) -> None:
    """Warm-up copies of the first prompt fill the cache of a mixed server: the record proves it per request."""
    server = lab.serve([*MIXED, "--enable-metrics"])
    options = f"--backend sglang --host 127.0.0.1 --port {server.port} --dataset-name generated-shared-prefix "
    options += "--gsp-num-groups 1 --gsp-prompts-per-group 16 --gsp-system-prompt-len 31900 --gsp-question-len 868 "
    options += "--gsp-output-len 64 --warmup-requests 8 --max-concurrency 8 --output-details --cache-report "
    options += "--output-file warm.jsonl --tag warm"
    done = lab.run("bench_serving", options.split())
    assert done.code == 0, done.stderr
    line = json.loads((lab.folder / "warm.jsonl").read_text())
    assert (set(line["input_lens"]), sum(line["cached_tokens"])) == ({33484}, 16 * 30720 + 2048)
    reading = read_bench_serving(lab.folder, "warm")
    assert int(reading.table.output_tokens.sum()) == 16 * 64
    assert 1.0 < (reading.accept_length or 0) <= 6.0


def test_the_same_seed_hits_the_cache_of_the_run_before(lab: Lab, pool: Pool) -> None:
    """Without a flush a second run finds the prompts of the first; with `--flush-cache` it does not."""
    for options in ((), (), ("--flush-cache",)):
        lab.run("bench_serving", bench(lab, pool[2].port, "--seed", "4711", *options))
    cached = [
        json.loads(line)["cache_report"]["total_cached_tokens"]
        for line in (lab.folder / "bench.jsonl").read_text().splitlines()
    ]
    assert cached == [0, 24 * 2048, 0]


def test_a_frozen_dataset_goes_through_the_chat_endpoint(lab: Lab, pool: Pool) -> None:
    """Custom rows count 4 tokens more on the server than in the client's dataset."""
    rows = [{"conversations": [{"role": "user", "content": f"copy r{n} a b c d"}]} for n in range(10)]
    (lab.folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = bench(lab, pool[2].port, "--dataset-name", "custom", "--dataset-path", "data.jsonl", requests=10)
    options += ["--backend", "sglang-oai-chat", "--sharegpt-output-len", "32"]
    assert lab.run("bench_serving", options).code == 0
    line = json.loads((lab.folder / "bench.jsonl").read_text())
    assert (line["total_input_tokens"], line["input_lens"], line["total_output_tokens"]) == (60, [10] * 10, 320)


def test_no_server_and_no_dataset_are_errors(lab: Lab, pool: Pool) -> None:
    """A dead address exits with 1 as the real client says it; so does a missing dataset."""
    done = lab.run("bench_serving", [*bench(lab, 9), "--ready-check-timeout-sec", "0"])
    assert (done.code, "is not ready. Exiting." in done.stdout) == (1, True)
    missing = bench(lab, pool[2].port, "--dataset-name", "custom", "--dataset-path", "none.jsonl")
    assert lab.run("bench_serving", missing).code == 1
    assert lab.counted_runs == 0


def test_the_engines_show_what_a_run_did(lab: Lab) -> None:
    """After a run the logs hold its batches in virtual time, metrics and accept length count it."""
    prefill, decode, router = lab.pool()
    lab.run("bench_serving", bench(lab, router.port, requests=64))
    assert prefill.log.count("Prefill batch") >= 64 * 2100 / 8192
    info = decode.get("/server_info")
    assert 2.0 < info["internal_states"][0]["avg_spec_accept_length"] <= 6.0
    assert 'sglang:generation_tokens_total{engine_type="decode"' in decode.get("/metrics")
    assert "time_to_first_token_seconds_count" in prefill.get("/metrics")
    assert call(f"{router.url}/flush_cache", "POST")[0] == 200
    assert "avg_spec_accept_length" not in decode.get("/server_info")["internal_states"][0]


def _labels(text: str) -> list[str]:
    block = text[text.index("============ Serving Benchmark Result") :]
    lines = block[: block.index("\n" + "=" * 50)].splitlines()
    return [line[:40].rstrip() if ":" in line else line for line in lines]


@needs_samples
def test_log_lines_of_a_run_have_the_fields_of_real_ones(lab: Lab) -> None:
    """Prefill and decode lines of a run carry the labels of stored real lines of that release, in their order."""
    lab.extra["TUNELOOP_SIM_SGLANG_VERSION"] = "0.5.23"
    prefill, decode, router = lab.pool()
    lab.run("bench_serving", bench(lab, router.port, "--random-output-len", "1024"))
    for program, sample, kind in ((prefill, "prefill", "Prefill"), (decode, "decode", "Decode")):
        real = _line_labels((SAMPLES / f"real_cpu_pd_{sample}.server.log").read_text(), kind)
        ours = _line_labels(program.log, kind)
        # The real pair ran on a CPU without speculation.
        assert [label.replace("npu graph", "cpu graph") for label in ours if not label.startswith("accept")] == real


def _line_labels(log: str, kind: str) -> list[str]:
    line = next(line for line in reversed(log.splitlines()) if f"{kind} batch, " in line)
    return [field.rsplit(": ", 1)[0] for field in line.split(f"{kind} batch, ", 1)[1].split(", ")]
