"""AISBench: the command of one run, with model and dataset configurations of our own, and the reading of
its files.

The configurations are self-contained Python files (no `read_base`), since that breaks on a fresh
installation. One attempt per request: AISBench retries silently and loses the broken attempt's time. No
warm-up: its own warm-up sends rows of the measured dataset, which then hit the prefix cache.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from executor.bench.aisbench_figures import read_printed
from executor.bench.aisbench_records import find_run, read_records
from executor.bench.client_reading import ClientReading
from executor.bench.client_run import ClientLoad, ClientRun

CONFIG_NAME = "tuneloop_load"  # must not be the stem of a configuration that AISBench ships
RAW_FILES = (
    "out/*/performances/*/*_details.jsonl",
    "out/*/performances/*/*_failed.jsonl",
    "out/*/performances/*/*.csv",
    "out/*/performances/*/*.json",
    "out/*/performances/*/db_data/*.db",
    "out/*/logs/infer/*/*.out",
)

_MODEL = """\
from ais_bench.benchmark.models import VLLMCustomAPIChat

models = [
    dict(
        attr="service",
        type=VLLMCustomAPIChat,
        abbr={abbr!r},
        path={path!r},
        model={model!r},
        stream=True,
        request_rate={rate!r},
        use_timestamp=False,
        retry=1,
        api_key="",
        host_ip={host_ip!r},
        host_port={port!r},
        url={url!r},
        max_out_len={output_tokens!r},
        batch_size={concurrency!r},
        trust_remote_code=False,
        generation_kwargs=dict(temperature=0.0, ignore_eos=True),
    )
]
"""

_DATASET = """\
from ais_bench.benchmark.datasets import CustomDataset
from ais_bench.benchmark.openicl.icl_inferencer import GenInferencer
from ais_bench.benchmark.openicl.icl_prompt_template import PromptTemplate
from ais_bench.benchmark.openicl.icl_retriever import ZeroRetriever

{name}_datasets = [
    dict(
        abbr={abbr!r},
        type=CustomDataset,
        path={path!r},
        meta_path="",
        reader_cfg=dict(input_columns=["question"], output_column="answer"),
        infer_cfg=dict(
            prompt_template=dict(type=PromptTemplate, template="{{question}}"),
            retriever=dict(type=ZeroRetriever),
            inferencer=dict(type=GenInferencer),
        ),
    )
]
"""


def compile_aisbench(load: ClientLoad) -> ClientRun:
    """One `ais_bench` process of the whole-run stage; we compute the steady window from its records."""
    if load.dataset_file is None:
        raise ValueError("AISBench's synthetic datasets are not seeded: build a frozen dataset first")
    configs = f"{load.result_dir}/cfg"
    program = load.program or ("ais_bench",)
    options = {
        "--models": CONFIG_NAME,
        "--datasets": CONFIG_NAME,
        "--summarizer": "default_perf",
        "--mode": "perf",
        "--num-prompts": str(load.requests),
        "--num-warmups": "0",
        "--max-num-workers": "1",
        "--config-dir": configs,
        "--work-dir": f"{load.result_dir}/out",
    }
    return ClientRun(
        argv=(*program, *(item for pair in options.items() for item in pair)),
        # aiohttp is told to trust the environment, so a proxy of the site would stand in the measured path.
        env={"NO_PROXY": "*", "no_proxy": "*", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        cwd=load.result_dir,
        files_to_upload={
            f"{configs}/models/{CONFIG_NAME}.py": compile_model_config(load).encode(),
            f"{configs}/datasets/{CONFIG_NAME}.py": compile_dataset_config(load).encode(),
        },
        raw_files=RAW_FILES,
    )


def compile_model_config(load: ClientLoad) -> str:
    is_address = load.router_host == "localhost" or _is_ip_address(load.router_host)
    return _MODEL.format(
        abbr=load.experiment_id,
        path=load.tokenizer_path,
        model=load.served_model,
        rate=load.rate_per_s or 0,
        host_ip=load.router_host if is_address else "localhost",
        port=load.router_port,
        url="" if is_address else f"http://{load.router_host}:{load.router_port}/",
        output_tokens=load.output_tokens,
        concurrency=load.concurrency,
    )


def compile_dataset_config(load: ClientLoad) -> str:
    return _DATASET.format(name=CONFIG_NAME, abbr=CONFIG_NAME, path=load.dataset_file)


def read_aisbench(folder: Path) -> ClientReading:
    """The records and the printed figures of the one AISBench run below this folder.

    Raises ResultUnreadable where a file is missing, ambiguous or damaged.
    """
    run = find_run(folder)
    records = read_records(run)
    return ClientReading(
        client="aisbench",
        version=records.version,
        table=records.table,
        printed=read_printed(run),
        duration_s=None,
        raw_sha256=records.sha256,
    )


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
