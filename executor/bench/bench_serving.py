"""sglang.bench_serving: the command of one run, and the reading of its JSON lines with per-request details.

The record has no send times, so a run has a whole window and no native one. Its per-request end is the
arrival of the last chunk, a little before the client's own end (the `[DONE]` line), which is why E2E agrees
to a share only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from executor.bench.bench_records import read_bench_records, select_record
from executor.bench.bench_serving_details import read_table
from executor.bench.client_reading import ClientReading, Figure, Printed
from executor.bench.client_run import ClientLoad, ClientRun
from executor.bench.json_lines import finite
from executor.bench.problem import ResultUnreadable

RESULT_FILE = "bench.jsonl"
CHAT_BACKEND = "sglang-oai-chat"
NATIVE_BACKEND = "sglang"
REQUIRED = ("completed", "duration", "total_output_tokens", "output_throughput", "mean_ttft_ms", "mean_tpot_ms")
_EXACT_SHARE = 1e-6  # the record holds floats, not printed digits: only the order of summation differs
# E2E and TPOT: the client's clock runs to the [DONE] line, which a busy client may read a pause later than the last
# token (seen on real servers: up to 16 ms of one request). TPOT has that pause divided by the tokens after the first.
_LAST_CHUNK_SHARE = 0.01
_LAST_CHUNK_MS = 50.0


def compile_bench_serving(load: ClientLoad) -> ClientRun:
    """One process; a frozen dataset through the chat endpoint, or exact random prompts through the native
    one.
    """
    program = load.program or ("python3", "-m", "sglang.bench_serving")
    options = {
        "--host": load.router_host,
        "--port": str(load.router_port),
        "--model": load.tokenizer_path,
        "--tokenizer": load.tokenizer_path,
        **({"--served-model-name": load.served_model} if load.served_model else {}),
        "--num-prompts": str(load.requests),
        "--max-concurrency": str(load.concurrency),
        "--request-rate": "inf" if load.rate_per_s is None else repr(load.rate_per_s),
        "--seed": str(load.seed),
        "--warmup-requests": "0",
        "--output-file": f"{load.result_dir}/{RESULT_FILE}",
        "--tag": load.experiment_id,
        **_dataset_options(load),
    }
    pairs = (item for pair in options.items() for item in pair)
    switches = ("--output-details", "--disable-tqdm", *(() if load.dataset_file else ("--tokenize-prompt",)))
    return ClientRun(
        argv=(*program, *pairs, *switches, *load.options),
        env={"NO_PROXY": "*", "no_proxy": "*", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        cwd=load.result_dir,
        files_to_upload={},
        raw_files=(RESULT_FILE,),
    )


def _dataset_options(load: ClientLoad) -> dict[str, str]:
    if load.dataset_file is not None:
        return {
            "--backend": CHAT_BACKEND,
            "--dataset-name": "custom",
            "--dataset-path": load.dataset_file,
            "--sharegpt-output-len": str(load.output_tokens),
            # Without usage in the stream this client assumes the requested length as the real one.
            "--extra-request-body": '{"stream_options":{"include_usage":true}}',
        }
    if load.input_tokens is None:
        raise ValueError("random prompts need an input length: give a dataset file or input tokens")
    return {
        "--backend": NATIVE_BACKEND,
        "--dataset-name": "random-ids",
        "--random-input-len": str(load.input_tokens),
        "--random-output-len": str(load.output_tokens),
        "--random-range-ratio": "1.0",
    }


def read_bench_serving(folder: Path, experiment_id: str | None = None) -> ClientReading:
    """This run's record of the one result file below the folder. Raises ResultUnreadable."""
    path = find_result(folder)
    record = select_record(read_bench_records(path), experiment_id)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    accept_length = record.number("accept_length")
    retokenized = record.number("total_output_tokens_retokenized")
    return ClientReading(
        client="bench_serving",
        version=record.server_version,
        table=read_table(record, path.name),
        printed=(Printed(stage="whole", figures=exact_figures(record.summary), required=REQUIRED),),
        duration_s=record.number("duration"),
        raw_sha256=sha256,
        accept_length=accept_length,
        retokenized_tokens=None if retokenized is None else int(retokenized),
    )


def find_result(folder: Path) -> Path:
    found = sorted(path for path in folder.rglob("*.jsonl") if path.is_file())
    if not found:
        raise ResultUnreadable("*.jsonl", f"not found in {folder.name}: the client wrote no record")
    if len(found) > 1:
        raise ResultUnreadable("*.jsonl", f"{len(found)} result files in one folder: {found[0].name}, …")
    return found[0]


def exact_figures(summary: Mapping[str, object]) -> dict[str, Figure]:
    """The record's figures with the difference that may be between them and our recomputation."""
    figures = {}
    later_tokens = _tokens_after_the_first(summary)
    for name, value in summary.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            figures[name] = Figure(float(value), _tolerance(name, abs(float(value)), later_tokens))
    return figures


def _tokens_after_the_first(summary: Mapping[str, object]) -> float:
    """Of a mean request; one where it is not known or not more."""
    tokens, requests = (finite(summary.get(name)) for name in ("total_output_tokens", "completed"))
    return max(tokens / requests - 1.0, 1.0) if tokens and requests else 1.0


def _tolerance(name: str, value: float, later_tokens: float) -> float:
    if "_tpot_" in name:
        return _LAST_CHUNK_SHARE * value + _LAST_CHUNK_MS / later_tokens
    if "_e2e_latency_" in name:
        return _LAST_CHUNK_SHARE * value + _LAST_CHUNK_MS
    if name == "concurrency":
        return _LAST_CHUNK_SHARE * value + 0.05
    return _EXACT_SHARE * value
