"""The simulated AISBench writes what the real one writes."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from executor.bench.aisbench import read_aisbench
from tests.executor.simulated.lab import Lab, Pool

SAMPLES = Path("/work/shared/samples/aisbench")
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the shared samples are not on this machine")


def test_the_product_reads_a_run_and_agrees_with_every_printed_figure(lab: Lab, pool: Pool) -> None:
    """Records, database and printed summary of a simulated run agree to the printed precision."""
    done = lab.aisbench(pool[2].port, requests=64, words=398, options=["--num-prompts", "48"])
    assert (done.code, lab.counted_runs) == (0, 1), done.stderr
    reading = read_aisbench(lab.folder)
    assert (len(reading.table), int(reading.table.output_tokens.sum())) == (48, 48 * 64)
    assert set(reading.table.input_tokens.tolist()) == {404}
    (printed,) = reading.printed
    assert (printed.stage, printed.inconsistent) == ("total", ())
    assert printed.figures["Total Generated Tokens"].value == 48 * 64


@needs_samples
def test_files_have_the_fields_of_real_files(lab: Lab, pool: Pool) -> None:
    """Detail rows, metrics and table rows carry the names of a stored real run, in its order."""
    lab.aisbench(pool[2].port, requests=20)
    real = next((SAMPLES / "head_29c363e_fixedlen_stable").glob("*/performances/*"))
    ours = lab.performance
    assert _keys(ours / "load_details.jsonl") == _keys(real / "minifix_details.jsonl")
    assert list(json.loads((ours / "load.json").read_text())) == list(json.loads((real / "minifix.json").read_text()))
    assert _column(ours / "load.csv") == _column(real / "minifix.csv")
    assert _schema(ours) == _schema(real)


@needs_samples
def test_failed_requests_leave_the_rows_of_real_failures(lab: Lab, pool: Pool) -> None:
    """Failures are rows without success in the details, and rows of their own file; the exit code stays 0."""
    lab.faults = [{"fault": "client_exit_0_some_failed", "every": 5}]
    done = lab.aisbench(pool[2].port, requests=20)
    real = next((SAMPLES / "head_29c363e_failures_stable").glob("*/performances/*"))
    assert done.code == 0
    assert _keys(lab.performance / "load_failed.jsonl") == _keys(real / "mini_failed.jsonl")
    rows = [json.loads(line) for line in (lab.performance / "load_details.jsonl").read_text().splitlines()]
    assert sum(not row["success"] for row in rows) == 4
    assert json.loads((lab.performance / "load.json").read_text())["Failed Requests"] == {"total": 4}


def test_the_steady_stage_is_printed_on_request(lab: Lab, pool: Pool) -> None:
    """`--summarizer stable_stage` prints the other stage from the same records, and a re-summary sends nothing."""
    lab.aisbench(pool[2].port, requests=64, concurrency=8)
    folder = lab.performance.parent.parent
    options = ["--models", "m", "--datasets", "d", "--mode", "perf_viz", "--reuse", folder.name]
    options += ["-w", str(folder.parent), "--config-dir", str(lab.folder / "cfg"), "--summarizer", "stable_stage"]
    again = lab.run("aisbench", options)
    assert (again.code, lab.counted_runs) == (0, 1), again.stderr
    assert list(json.loads((lab.performance / "load.json").read_text())["Concurrency"]) == ["stable"]


def test_a_dead_pool_ends_like_the_real_tool(lab: Lab) -> None:
    """Nobody answers: exit 1, the worker's log holds the cause, the console says that there is no data."""
    done = lab.aisbench(9, requests=4)
    assert (done.code, "SUMM-FILE-001" in done.stderr) == (1, True)
    assert "TINFER-RUNTIME-001" in next(lab.folder.glob("out/*/logs/infer/*/*.out")).read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = [dict(abbr=open('/etc/passwd'))]", "is no literal"),
        ("models = [dict(", "TMAN-CFG-001"),
        ("other = []", "assigns no list"),
        ("models = [dict(type=MyOwnClass, abbr='x')]", "is not in the ais_bench::model registry"),
    ],
)
def test_a_config_is_parsed_and_never_executed(lab: Lab, text: str, message: str) -> None:
    """A config that is no plain list of literals is refused before anything is sent."""
    lab.aisbench(9, requests=1)
    (lab.folder / "cfg" / "models" / "m.py").write_text(text)
    done = lab.run("aisbench", ["--models", "m", "--datasets", "d", "--mode", "perf", "--config-dir", "cfg"])
    assert (done.code, message in done.stderr) == (1, True), done.stderr


def _keys(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:
        return list(json.loads(file.readline()))


def _column(path: Path) -> list[str]:
    rows = path.read_text(encoding="utf-8").splitlines()
    return [rows[0], *(row.split(",")[0] for row in rows[1:])]


def _schema(folder: Path) -> str:
    connection = sqlite3.connect(next((folder / "db_data").glob("*.db")))
    (schema,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'numpy_store'").fetchone()
    connection.close()
    return str(schema)


def test_a_paced_run_shows_live_queues(lab: Lab) -> None:
    """While a run is paced over real seconds /v1/loads shows its queues; afterwards the engine is idle again."""
    prefill, _, router = lab.pool()
    lab.extra["TUNELOOP_SIM_PACE"] = "2"
    seen: list[int] = []

    def watch() -> None:
        while not seen or seen[-1] >= 0:
            rows = prefill.get("/v1/loads?include=core")["loads"]
            seen.append(sum(row["num_running_reqs"] + row["num_waiting_reqs"] for row in rows))
            if stop.wait(0.02):
                return

    stop = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    assert lab.aisbench(router.port, requests=64, words=6000).code == 0
    stop.set()
    thread.join()
    assert max(seen) > 0
    assert {row["num_running_reqs"] for row in prefill.get("/v1/loads")["loads"]} == {0}


def test_drift_slows_every_further_run(lab: Lab, pool: Pool) -> None:
    """With a drift of 20 % a run the third run is slower than the first warm one."""
    lab.extra["TUNELOOP_SIM_DRIFT_PER_RUN"] = "0.2"
    rates = []
    for folder in ("cold", "first", "second"):
        lab.aisbench(pool[2].port, requests=32, options=["--work-dir", str(lab.folder / folder)])
        text = next((lab.folder / folder).glob("*/performances/*/load.json")).read_text()
        rates.append(float(json.loads(text)["Output Token Throughput"]["total"].split()[0]))
    assert rates[2] < 0.9 * rates[1]
