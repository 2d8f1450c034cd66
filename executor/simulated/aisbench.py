"""`python -m executor.simulated.aisbench --models M --datasets D --mode perf -w DIR --config-dir CFG …`

The command line, the files and the exit codes of AISBench at commit 29c363e; the requests go to the serving model.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from executor.simulated.aisbench_config import (
    ConfigError,
    DatasetConfig,
    ModelConfig,
    find_config,
    read_dataset,
    read_model,
    read_rows,
    requests_of,
)
from executor.simulated.aisbench_files import RunFolder, StoredRequest, read_run, write_run
from executor.simulated.aisbench_summary import NoSteadyWindow, console_tables, csv_text, summarise
from executor.simulated.client_records import ClientRecord
from executor.simulated.faults import Injector
from executor.simulated.load_run import send_load
from executor.simulated.model.workload import Load, Request
from executor.simulated.virtual_pool import (
    PoolUnreachable,
    VirtualPool,
    account,
    count_run,
    discover,
    run_load,
)

_HELP = "https://ais-bench-benchmark.readthedocs.io/zh-cn/latest/faqs/error_codes.html"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ais_bench")
    parser.add_argument("config", nargs="?")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--datasets", nargs="+")
    parser.add_argument("--summarizer", default="default_perf", choices=("default_perf", "stable_stage"))
    parser.add_argument("-m", "--mode", default="all", choices=("perf", "perf_viz"))
    parser.add_argument("-w", "--work-dir", default="outputs/default")
    parser.add_argument("-r", "--reuse", nargs="?", const="latest")
    parser.add_argument("--config-dir", default="configs")
    parser.add_argument("--num-prompts", type=int)
    parser.add_argument("--num-warmups", type=int, default=1)
    parser.add_argument("--max-num-workers", type=int, default=1)
    for name in ("--debug", "--merge-ds", "--dry-run", "--search", "--spec-decode"):
        parser.add_argument(name, action="store_true")
    return parser.parse_args(argv)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One start of the tool: what it was told, and where it writes."""

    arguments: argparse.Namespace
    model: ModelConfig
    dataset: DatasetConfig
    folder: RunFolder
    injector: Injector


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    injector = Injector("bench", argv)
    print("simulated: a client of the simulated pool of tuneloop; no request leaves this machine", flush=True)
    if injector.take("client_exit_1_before_sending"):
        print("ImportError: pyarrow requires NumPy 2.0 or newer, found 1.26.4", file=sys.stderr)
        return 1
    try:
        task = _task(arguments, injector)
    except (ConfigError, OSError, KeyError) as error:
        print(f"ais_bench.benchmark.utils.logging.exceptions.AISBenchConfigError: {error}", file=sys.stderr)
        return 1
    if arguments.mode == "perf":
        code = _infer(task)
        if code:
            return code
    return _summary(task)


def _task(arguments: argparse.Namespace, injector: Injector) -> Task:
    configs = Path(arguments.config_dir)
    model_file = find_config(configs, "models", arguments.models[0])
    dataset_file = find_config(configs, "datasets", arguments.datasets[0])
    _log(f"Loading {arguments.models[0]}: {model_file}")
    _log(f"Loading {arguments.datasets[0]}: {dataset_file}")
    model, dataset = read_model(model_file), read_dataset(dataset_file)
    work = Path(arguments.work_dir)
    root = work / _timestamp(arguments, work)
    _log(f"Current exp folder: {root}")
    folder = RunFolder(root=root, model=model.abbr, dataset=dataset.abbr)
    return Task(arguments=arguments, model=model, dataset=dataset, folder=folder, injector=injector)


def _timestamp(arguments: argparse.Namespace, work: Path) -> str:
    if arguments.reuse and arguments.reuse != "latest":
        return str(arguments.reuse)
    if arguments.reuse:
        return max(path.name for path in work.iterdir() if path.is_dir())
    return datetime.now(UTC).strftime("%Y%m%d_%H%M%S")


def _log(text: str, level: str = "INFO", colour: int = 32) -> None:
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
    print(f"[{stamp}] [ais_bench] [\x1b[{colour}m{level}\x1b[0m] {text}", file=sys.stderr, flush=True)


def _infer(task: Task) -> int:
    """Send the load. Non-zero when the tool itself ends here."""
    _log("Starting inference tasks...")
    rows = read_rows(task.dataset, task.arguments.num_prompts)
    count = count_run(task.model.abbr, Path(task.arguments.work_dir))
    task.folder.log.parent.mkdir(parents=True, exist_ok=True)
    _write_config(task)
    try:
        pool = discover(task.model.base_url)
    except PoolUnreachable as error:
        return _dead(task, str(error))
    overhead = pool.calibration.chat_overhead_tokens
    requests = requests_of(rows, task.model, task.dataset, overhead, pool.heads)
    _warm_up(task, pool, requests)
    records = _measure(task, discover(task.model.base_url), requests, count)
    inputs = [str(row["question"]) for row in rows]
    write_run(task.folder, records, inputs, is_chat=task.model.is_chat)
    _log_task(task, records)
    return 0


def _write_config(task: Task) -> None:
    path = task.folder.root / "configs" / f"{task.folder.root.name}_{os.getpid()}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"datasets=[{task.dataset.fields!r}]\nmodels=[{task.model.fields!r}]\n", encoding="utf-8")


def _dead(task: Task, why: str) -> int:
    """Nobody answers: the worker fails in its log, the summary then finds no data."""
    text = f"After 1 retries, request failed with exception: ClientConnectorError: Cannot connect to host: {why}"
    task.folder.log.write_text(f"TINFER-RUNTIME-001 {text}\n", encoding="utf-8")
    _log(
        f"[RUNNER-TASK-001] task failed. OpenICLApiInfer{task.model.abbr}/{task.dataset.abbr} failed with code 1, see\n"
        f"{task.folder.log}",
        "ERROR",
        31,
    )
    return 0


def _warm_up(task: Task, pool: VirtualPool, requests: list[Request]) -> None:
    """AISBench warms up with the first rows of the measured data, so those will hit the cache."""
    count = min(task.arguments.num_warmups, len(requests))
    if count <= 0:
        return
    trace, caches = run_load(pool, requests[:count], Load(concurrency=count, rate=None), seed=0)
    account(pool, trace, caches)


def _measure(task: Task, pool: VirtualPool, requests: list[Request], runs_before: int) -> list[ClientRecord]:
    load = Load(concurrency=task.model.concurrency, rate=task.model.rate)
    return send_load(pool, requests, load, runs_before, task.injector, task.dataset.abbr).records


def _log_task(task: Task, records: list[ClientRecord]) -> None:
    failures = [record for record in records if not record.is_success]
    lines = [
        f"simulated: Task [{task.model.abbr}/{task.dataset.abbr}]",
        f"Total concurrency: {task.model.concurrency}, per worker concurrency: [{task.model.concurrency}]",
        f"Total data num: {len(records)}, per worker data num: [{len(records)}]",
    ]
    if failures:
        lines += [
            "Task finished, failed reasons summary: ",
            f"| {failures[0].error} | {len(failures)} |",
        ]
    lines.append("Task state is finish, exit loop")
    task.folder.log.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _summary(task: Task) -> int:
    """Summarise what is on disk; the exit code is the tool's."""
    _log("Inference tasks completed.")
    _log("Summarizing performance results...")
    if task.injector.take("client_summary_fails"):
        print(
            "ModuleNotFoundError: Failed to import myplug.client in plug_cfg.py, line 2 for No module named 'myplug'",
            file=sys.stderr,
        )
        return 1
    _damage(task)
    try:
        stored, total = read_run(task.folder)
    except (OSError, ValueError, KeyError, sqlite3.Error):
        _fail(
            "SUMM-FILE-001",
            f"can't find detail perf data file. Can't find any details perf data file in work_dir, "
            f"please check {task.folder.root}.",
        )
        return 1
    if not stored:
        _fail("SUMM-MTRC-001", "different structure of perf data. The length of details perf datas is not the same: {}")
        return 1
    return _write_summary(task, stored, total)


def _damage(task: Task) -> None:
    """Faults that meet the raw data after it was written."""
    details = task.folder.details
    if not details.exists():
        return
    if task.injector.take("details_truncated"):
        size = details.stat().st_size
        os.truncate(details, size - min(size // 3, 4096) - 17)
    if task.injector.take("database_missing"):
        for path in (task.folder.performance / "db_data").glob("*.db"):
            path.unlink()
    if task.injector.take("double_result"):
        shutil.copytree(task.folder.root, task.folder.root.with_name(f"{task.folder.root.name}_again"))
    if task.injector.take("stale_result_in_place"):
        task.folder.root.rename(task.folder.root.with_name("20200101_000000"))


def _write_summary(task: Task, stored: list[StoredRequest], total: int) -> int:
    stage = "stable" if task.arguments.summarizer == "stable_stage" else "total"
    try:
        summary = summarise(stored, total, task.model.concurrency, stage)
    except NoSteadyWindow:
        _fail("CALC-DATA-002", "invalid response datas. Can not find a stable stage from performance results!")
        return 1
    if task.injector.take("summary_disagrees"):
        summary.common["Output Token Throughput"] = "1.0 token/s"
    base = task.folder.performance / task.dataset.abbr
    base.with_name(f"{base.name}.csv").write_text(csv_text(summary), encoding="utf-8")
    common = {name: {stage: value} for name, value in summary.common.items()}
    base.with_name(f"{base.name}.json").write_text(json.dumps(common, indent=4), encoding="utf-8")
    _log(f"Performance Results of task [{task.model.abbr}/{task.dataset.abbr}]: ")
    print(console_tables(summary), flush=True)
    _log(f"Performance Result files located in {task.folder.performance}.")
    if task.injector.take("client_hangs_after_finish"):
        time.sleep(3600)
    return 0


def _fail(code: str, text: str) -> None:
    print(
        f"ais_bench.benchmark.utils.logging.exceptions.AISBenchDataContentError: [{code}]{text} | Visit "
        f"{_HELP}#{code.lower()} for further help.",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
