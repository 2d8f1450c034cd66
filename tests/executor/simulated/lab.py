"""A simulated pool of real processes on loopback, for the tests of the programs. Not a test."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.simulated.http_json import call

MODEL = "/models/DeepSeek-V4-Flash-W8A8"
PREFILL = shlex.split(
    f"--model-path {MODEL} --tp-size 16 --dp-size 16 --enable-dp-attention --chunked-prefill-size 131072 "
    "--prefill-max-requests 2 --disaggregation-mode prefill --moe-a2a-backend deepep --deepep-mode normal "
    "--max-running-requests 1024 --enable-metrics --host 127.0.0.1"
)
DECODE = shlex.split(
    f"--model-path {MODEL} --tp-size 16 --dp-size 16 --enable-dp-attention --disaggregation-mode decode "
    "--moe-a2a-backend deepep --deepep-mode low_latency --max-running-requests 256 --speculative-algorithm NEXTN "
    "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --enable-metrics "
    "--host 127.0.0.1"
)
MIXED = shlex.split(
    "--model-path /models/DeepSeek-V4-Pro-W4A8 --tp-size 32 --dp-size 8 --enable-dp-attention "
    "--chunked-prefill-size 16384 --max-running-requests 32 --moe-a2a-backend deepep --speculative-algorithm NEXTN "
    "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --host 127.0.0.1"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Program:
    """One running program and its log."""

    process: subprocess.Popen[bytes]
    log_path: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def get(self, path: str) -> Any:
        return call(self.url + path)[1]


Pool = tuple[Program, Program, Program]  # prefill, decode, router


@dataclass
class Bench:
    """How a client ended."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Lab:
    """Starts programs in a folder of its own and ends those it started."""

    folder: Path
    started: list[Program] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        path = self.folder / "faults.json"
        if not path.exists():
            path.write_text(json.dumps(self.faults))
        root = str(Path(__file__).parents[3])
        chosen = {
            "PYTHONPATH": root,
            "TUNELOOP_SIM_FAULTS": str(path),
            "TUNELOOP_SIM_RUNS_FILE": str(self.folder / "runs.log"),
            "TUNELOOP_SIM_SEED": "7",
            "TUNELOOP_SIM_START_S": "0.01",
        }
        return os.environ | chosen | self.extra

    def start(self, module: str, arguments: list[str], port: int | None = None) -> Program:
        port = port or free_port()
        path = self.folder / f"{module}-{port}.log"
        command = [sys.executable, "-m", f"executor.simulated.{module}", *arguments, "--port", str(port)]
        with path.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=self.folder)
        program = Program(process, path, port)
        self.started.append(program)
        return program

    def serve(self, arguments: list[str]) -> Program:
        return wait_until(self.start("server", arguments), "/health")

    def pool(self, prefill: list[str] = PREFILL, decode: list[str] = DECODE) -> Pool:
        first, second = self.start("server", list(prefill)), self.start("server", list(decode))
        wait_until(first, "/health")
        wait_until(second, "/health")
        routing = ["--pd-disaggregation", "--prefill", first.url, "8998", "--decode", second.url]
        return first, second, wait_until(self.start("router", [*routing, "--host", "127.0.0.1"]), "/readiness")

    def run(self, module: str, arguments: list[str], timeout: float = 60.0) -> Bench:
        command = [sys.executable, "-m", f"executor.simulated.{module}", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, cwd=self.folder, timeout=timeout, check=False
        )
        return Bench(done.returncode, done.stdout, done.stderr)

    def stop(self) -> None:
        for program in self.started:
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGKILL)
            program.process.wait()

    def aisbench(self, port: int, **settings: Any) -> Bench:
        """One AISBench run of `requests` requests; files below `out`."""
        configs = write_configs(self.folder, port, **settings)
        arguments = ["--models", "m", "--datasets", "d", "--mode", "perf", "--num-warmups", "0"]
        arguments += ["-w", str(self.folder / "out"), "--config-dir", str(configs)]
        return self.run("aisbench", [*arguments, *settings.get("options", ())], settings.get("timeout", 60.0))

    @property
    def counted_runs(self) -> int:
        path = self.folder / "runs.log"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def performance(self) -> Path:
        return next((self.folder / "out").glob("*/performances/*"))


def wait_until(program: Program, path: str, seconds: float = 10.0) -> Program:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if program.process.poll() is not None:
            raise AssertionError(f"ended with {program.process.returncode}: {program.log[-800:]}")
        try:
            if call(program.url + path)[0] == 200:
                return program
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"{path} never answered 200: {program.log[-800:]}")


MODEL_CONFIG = """\
from ais_bench.benchmark.models import VLLMCustomAPIChat

models = [
    dict(attr="service", type=VLLMCustomAPIChat, abbr="exp-1", path="/tok", model="", stream=True,
         request_rate={rate}, use_timestamp=False, retry=1, api_key="", host_ip="127.0.0.1", host_port={port},
         url="", max_out_len={output}, batch_size={concurrency}, trust_remote_code=False,
         generation_kwargs=dict(temperature=0.0, ignore_eos=True))
]
"""
DATASET_CONFIG = """\
from ais_bench.benchmark.datasets import CustomDataset

load_datasets = [
    dict(abbr="load", type=CustomDataset, path={path!r}, meta_path="",
         reader_cfg=dict(input_columns=["question"], output_column="answer"), infer_cfg=dict())
]
"""


def write_configs(folder: Path, port: int, **settings: Any) -> Path:
    """Model, dataset and rows of an AISBench run: short prompts of `words` words unless `questions` are given."""
    configs = folder / "cfg"
    for name in ("models", "datasets"):
        (configs / name).mkdir(parents=True, exist_ok=True)
    values = {"rate": 0, "output": 64, "concurrency": 16} | settings
    (configs / "models" / "m.py").write_text(
        MODEL_CONFIG.format(port=port, rate=values["rate"], output=values["output"], concurrency=values["concurrency"])
    )
    rows = folder / "rows.jsonl"
    (configs / "datasets" / "d.py").write_text(DATASET_CONFIG.format(path=str(rows)))
    questions = settings.get("questions") or [
        " ".join(["copy", f"r{row}", *(f"w{row}-{k}" for k in range(settings.get("words", 298)))])
        for row in range(settings.get("requests", 64))
    ]
    rows.write_text("".join(json.dumps({"question": text, "answer": ""}) + "\n" for text in questions))
    return configs
