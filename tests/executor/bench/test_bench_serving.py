from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.bench.bench_records import read_bench_records, select_record
from executor.bench.bench_serving import compile_bench_serving, read_bench_serving
from executor.bench.bench_serving_figures import recompute
from executor.bench.client_run import ClientLoad
from executor.bench.problem import Problem, ResultUnreadable
from executor.bench.reading import find_disagreement, read_measurement
from experiments.measurement import Measurement, WindowKind
from experiments.trial import Reason
from experiments.validity import CacheRule, Workload
from experiments.windows import NativeRule, Window, whole_window
from tests.executor.bench.client_files import FIELD, SAMPLES, bench_record, field_expectations, sample, write_bench

PLAN = Workload(requests=12, concurrency=3, output_tokens=8)
DETAILED = [
    "sglang_mock/b0523_fail.jsonl",
    "sglang_mock/b0523_gsp_chat.jsonl",
    "sglang_mock/b0523_native.jsonl",
    "sglang_mock/b0523_pd_router.jsonl",
    "sglang_mock/b058_oai.jsonl",
    "sglang_mock/rust_native.jsonl",
    "sglang_real/real_cpu_native.jsonl",
    "sglang_real/real_cpu_pd.jsonl",
]
EXACT = ("completed", "total_output_tokens", "duration", "request_throughput", "output_throughput")


def _read(folder: Path, plan: Workload = PLAN, **options: Any) -> Measurement | Problem:
    return read_measurement(folder, "bench_serving", plan, 16, simulated=False, **options)


@pytest.mark.parametrize("name", DETAILED)
def test_figures_of_real_clients_are_reproduced(name: str, tmp_path: Path) -> None:
    """Old and new Python client and the Rust one: throughput, TTFT and ITL exactly, E2E to the [DONE] line."""
    shutil.copy(sample(SAMPLES / name), tmp_path)
    reading = read_bench_serving(tmp_path)
    assert find_disagreement(reading, 16, NativeRule.AISBENCH_2025_12) is None
    window = whole_window(reading.table, reading.duration_s)
    assert isinstance(window, Window)
    ours, printed = recompute(reading.table, window, 16, "whole"), reading.printed[0].figures
    exact = [n for n in ours if n in printed and ("_ttft_" in n or "_itl_" in n or n in EXACT)]
    assert len(exact) >= 11
    for figure in exact:
        assert ours[figure] == pytest.approx(printed[figure].value, rel=1e-9), figure


def test_a_record_becomes_a_measurement_of_the_whole_run(tmp_path: Path) -> None:
    """This client tells no send times, so there is no native window, and none is made up."""
    write_bench(tmp_path, bench_record())
    measured = _read(tmp_path, experiment_id="trial-1")
    assert isinstance(measured, Measurement)
    assert [w.kind for w in measured.windows] == [WindowKind.WHOLE]
    assert measured.windows[0].tpot_mean_ms == pytest.approx(50.0)
    assert measured.windows[0].concurrency_mean == pytest.approx(3.0)
    assert (measured.n_succeeded, measured.output_tokens) == (12, 96)


def test_appended_records_are_told_apart_by_their_tag(tmp_path: Path) -> None:
    """The file is opened in append mode by every run; without a tag the last record is this run's."""
    write_bench(tmp_path, bench_record(tag="warm"), bench_record(tokens=4, tag="trial-1"), bench_record(tag=None))
    by_tag = read_bench_serving(tmp_path, "trial-1").table
    last = read_bench_serving(tmp_path).table
    assert {4} == set(by_tag.output_tokens.tolist())
    assert {8} == set(last.output_tokens.tolist())


def test_a_tag_that_appears_twice_is_a_load_sent_twice(tmp_path: Path) -> None:
    """Neither of the two may be taken for the measurement."""
    write_bench(tmp_path, bench_record(), bench_record())
    found = _read(tmp_path, experiment_id="trial-1")
    assert isinstance(found, Problem)
    assert "sent twice" in found.detail


def test_a_cut_line_after_this_runs_record_does_no_harm(tmp_path: Path) -> None:
    """The record is complete; what was cut belongs to someone else. Without a tag it is not known whose it is."""
    path = write_bench(tmp_path, bench_record())
    path.write_text(path.read_text() + '{"tag": "other", "comp')
    assert isinstance(_read(tmp_path, experiment_id="trial-1"), Measurement)
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert (found.reason, found.field) == (Reason.EVIDENCE_INCOMPLETE, "bench.jsonl:2")
    assert "cut off" in found.detail


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"errors": [*[""] * 11, "ServerDisconnected"]}, Reason.WORKLOAD_VIOLATED, "success"),
        ({"output_lens": [*[8] * 11, 3]}, Reason.WORKLOAD_VIOLATED, "exact_output_length"),
        ({"output_lens": [*[8] * 11, 0]}, Reason.WORKLOAD_VIOLATED, "exact_output_length"),
        ({"generated_texts": [*["w"] * 11, "\ufffd" * 12]}, Reason.WORKLOAD_VIOLATED, "garbling"),
        ({"output_throughput": 99.0}, Reason.EVIDENCE_INCOMPLETE, "whole: output_throughput"),
        ({"mean_ttft_ms": 20.0}, Reason.EVIDENCE_INCOMPLETE, "whole: mean_ttft_ms"),
        ({"mean_e2e_latency_ms": 700.0}, Reason.EVIDENCE_INCOMPLETE, "whole: mean_e2e_latency_ms"),
        ({"duration": 4.4}, Reason.EVIDENCE_INCOMPLETE, "whole: request_throughput"),
        ({"ttfts": [0.2] * 11}, Reason.EVIDENCE_INCOMPLETE, "bench.jsonl:ttfts"),
        ({"ttfts": None}, Reason.EVIDENCE_INCOMPLETE, "bench.jsonl:ttfts"),
        ({"itls": [[0.05, float("nan")]] * 12}, Reason.EVIDENCE_INCOMPLETE, "bench.jsonl:itls"),
        ({"itls": [[0.05, -1.0]] * 12}, Reason.EVIDENCE_INCOMPLETE, "bench.jsonl:itls"),
        ({"itls": ["0.05"] * 12}, Reason.EVIDENCE_INCOMPLETE, "bench.jsonl:itls"),
        ({"output_lens": [8.5] * 12}, Reason.EVIDENCE_INCOMPLETE, "bench.jsonl:output_lens"),
        ({"duration": float("nan")}, Reason.EVIDENCE_INCOMPLETE, "whole: duration"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(
    tmp_path: Path, changes: dict[str, Any], reason: Reason, field: str
) -> None:
    """A violated load and incomplete evidence are told apart, each by its check or its field."""
    write_bench(tmp_path, bench_record() | changes)
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert (reason, field) == (found.reason, found.field)


def test_a_ttft_of_zero_is_not_measured(tmp_path: Path) -> None:
    """No text ever came: the latency is unknown, and the best of all if it were read as zero."""
    record = bench_record()
    record |= {"ttfts": [0.0, *[0.2] * 11], "itls": [[], *record["itls"][1:]], "mean_ttft_ms": 200 * 11 / 12}
    for name in list(record):
        if name.endswith("_ttft_ms") and name != "mean_ttft_ms":
            del record[name]
        if "itl" in name and name.endswith("_ms"):
            del record[name]
    write_bench(tmp_path, record)
    measured = _read(tmp_path)
    assert isinstance(measured, Measurement)
    whole = measured.windows[0]
    assert (whole.ttft_mean_s, whole.tpot_mean_ms, whole.e2e_mean_s) == (None, None, None)
    assert whole.output_tok_s is not None


def test_cached_tokens_are_proved_request_by_request(tmp_path: Path) -> None:
    """With the client's cache report no server evidence is needed."""
    write_bench(tmp_path, bench_record(cached=91))
    warm = Workload(requests=12, concurrency=3, output_tokens=8, cache=CacheRule.WARM, min_cached_share=0.90)
    measured = _read(tmp_path, warm)
    assert isinstance(measured, Measurement)
    assert measured.cached_tokens == 91 * 12
    cold = Workload(requests=12, concurrency=3, output_tokens=8, cache=CacheRule.ZERO)
    assert isinstance(_read(tmp_path, cold), Problem)


def test_output_that_does_not_encode_again_is_judged_by_history(tmp_path: Path) -> None:
    """A ratio of 0.898 is broken where 0.9995 is usual, and no finding where nothing is known."""
    write_bench(tmp_path, bench_record() | {"total_output_tokens_retokenized": 86})
    usual = Workload(requests=12, concurrency=3, output_tokens=8, usual_retokenized_ratio=0.9995)
    found = _read(tmp_path, usual)
    assert isinstance(found, Problem)
    assert (found.reason, found.field) == (Reason.WORKLOAD_VIOLATED, "retokenized_ratio")
    assert isinstance(_read(tmp_path), Measurement)


def _same(expected: object, actual: object) -> bool:
    if isinstance(expected, str) and isinstance(actual, float):
        return float(expected) == actual
    if isinstance(expected, float) and isinstance(actual, int | float):
        return actual == pytest.approx(expected, rel=1e-12) or expected == actual
    return expected == actual


@pytest.mark.parametrize("name", sorted(field_expectations("bench_jsonl")))
def test_field_records_read_as_their_index_says(name: str) -> None:
    """Other people's records: null server_info, seconds for milliseconds, NaN, and files that are no record."""
    case = field_expectations("bench_jsonl")[name]
    file = read_bench_records(FIELD / name)
    expected = case["expected"]
    if "metrics" in expected[0] or "note" in expected[0]:
        assert file.records == ()
        with pytest.raises(ResultUnreadable, match="not a bench_serving record"):
            select_record(file, None)
        return
    assert len(expected) == len(file.records)
    for record, wanted in zip(file.records, expected, strict=True):
        wrong = {n: (v, record.summary.get(n)) for n, v in wanted.items() if not _same(v, record.summary.get(n))}
        assert wrong == {}


def test_a_record_without_details_is_no_measurement(tmp_path: Path) -> None:
    """A summary alone cannot be recomputed; the message says which option was missing."""
    shutil.copy(sample(FIELD / "bench_jsonl" / "04_bimodal_ttft_rep2.json"), tmp_path / "bench.jsonl")
    found = _read(tmp_path)
    assert isinstance(found, Problem)
    assert "--output-details" in found.detail


def test_seconds_are_not_taken_for_milliseconds(tmp_path: Path) -> None:
    """A fork writes `median_tpot` in seconds: 87.9 ms, not 0.0879 ms."""
    path = tmp_path / "pretty.json"
    path.write_text(json.dumps({"completed": 2, "duration": 4.0, "median_tpot": 0.0879, "median_e2el": 12.1}, indent=2))
    summary = select_record(read_bench_records(path), None).summary
    assert (summary["median_tpot_ms"], summary["median_e2e_latency_ms"]) == (87.9, 12100.0)


def _load(**changes: Any) -> ClientLoad:
    known = {
        "experiment_id": "trial-1",
        "requests": 640,
        "concurrency": 128,
        "rate_per_s": 6.0,
        "seed": 42,
        "output_tokens": 1024,
        "input_tokens": 16388,
        "tokenizer_path": "/models/flash",
        "served_model": "flash",
        "router_host": "10.0.0.7",
        "router_port": 8000,
        "dataset_file": "/data/measure.jsonl",
        "result_dir": "/work/t3",
    }
    return ClientLoad(**{**known, **changes})


def _options(argv: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in itertools.pairwise(argv) if name.startswith("--")}


def test_the_command_asks_for_details_a_fresh_file_and_reported_usage() -> None:
    """Without usage in the stream this client takes the requested output length for the real one."""
    run = compile_bench_serving(_load())
    options = _options(run.argv)
    assert "--output-details" in run.argv
    assert (
        options["--warmup-requests"],
        options["--tag"],
        options["--output-file"],
        options["--num-prompts"],
        options["--max-concurrency"],
        options["--request-rate"],
    ) == ("0", "trial-1", "/work/t3/bench.jsonl", "640", "128", "6.0")
    assert json.loads(options["--extra-request-body"]) == {"stream_options": {"include_usage": True}}
    assert "--flush-cache" not in run.argv


def test_an_unlimited_rate_is_spelt_inf() -> None:
    """The client's own default, said all the same."""
    assert _options(compile_bench_serving(_load(rate_per_s=None)).argv)["--request-rate"] == "inf"


def test_without_frozen_data_exact_lengths_come_from_token_ids() -> None:
    """Random text would change its length when it is encoded again."""
    run = compile_bench_serving(_load(dataset_file=None))
    options = _options(run.argv)
    assert (
        options["--dataset-name"],
        options["--random-input-len"],
        options["--random-output-len"],
        options["--random-range-ratio"],
        options["--backend"],
    ) == ("random-ids", "16388", "1024", "1.0", "sglang")
    assert "--tokenize-prompt" in run.argv
    with pytest.raises(ValueError, match="input length"):
        compile_bench_serving(_load(dataset_file=None, input_tokens=None))


def test_long_answers_keep_their_arrival_times(tmp_path: Path) -> None:
    """One running sum over all requests, minus what it was before each, loses nothing that matters."""
    rng = np.random.default_rng(7)
    gaps = [rng.uniform(0, 0.1, rng.integers(0, 50)).tolist() for _ in range(400)]
    ttfts = rng.uniform(0.1, 20, 400).tolist()
    record = bench_record(400) | {"ttfts": ttfts, "itls": gaps}
    write_bench(tmp_path, record)
    table = read_bench_serving(tmp_path).table
    expected = [t + sum(g) for t, g in zip(ttfts, gaps, strict=True)]
    np.testing.assert_allclose(table.e2e_s, expected, rtol=1e-9)


def test_records_gathered_into_one_array_are_records(tmp_path: Path) -> None:
    """A sweep script's array is read as the lines that it was made of."""
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps([bench_record(tag="a"), bench_record(tag="b"), {"note": 1}], indent=1))
    assert [record.summary["tag"] for record in read_bench_records(path).records] == ["a", "b"]
