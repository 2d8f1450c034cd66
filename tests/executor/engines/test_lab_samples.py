"""What real servers of the lab wrote is read by the product's own parsers, and every other stored sample as well.

`lab_samples/` holds excerpts of one run of `make lab`: SGLang 0.5.23 on a CPU, prefill and decode behind sglang-router
0.3.2, 8 or 16 prompts of 2052 tokens at a chunk of 1024. Paths are replaced; nothing else is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.bench.problem import Problem
from executor.bench.reading import read_measurement
from executor.engines import server_info
from executor.engines.attestation import attest
from executor.engines.evidence import Observed, fold_evidence
from executor.engines.failure import IncidentFile, classify_failure
from executor.engines.failure_kinds import Source
from executor.engines.loads import parse_loads
from executor.engines.prometheus import parse_metrics
from executor.engines.server_log import (
    DecodeBatch,
    EffectiveSizes,
    LogRecord,
    PrefillBatch,
    Ready,
    ServerArguments,
    parse_server_log,
)
from experiments.baseline import parse_baseline
from experiments.evidence import ServingEvidence
from experiments.measurement import Measurement
from experiments.serving_config import Role
from experiments.validity import CacheRule, ServerEvidence, Workload
from experiments.windows import WindowFloor
from tests.executor.engines.field_samples import FIELD, REAL

LAB = Path(__file__).parent / "lab_samples"
BASELINE = parse_baseline((Path(__file__).parents[2] / "lab" / "baseline.yaml").read_bytes(), "baseline.yaml")
MOCK = REAL.with_name("sglang_mock")


def text(name: str) -> str:
    return (LAB / name).read_text(encoding="utf-8")


def records(name: str) -> list[LogRecord]:
    return list(parse_server_log(text(name).splitlines()))


def prefill_tokens(name: str) -> list[int]:
    """Computed tokens of every batch; a health check of the router is a batch of one."""
    batches = [r.new_tokens or 0 for r in records(name) if isinstance(r, PrefillBatch)]
    return [tokens for tokens in batches if tokens > 1]


def test_the_cap_is_visible_in_the_logs_of_real_servers() -> None:
    """8 prompts of 2 chunks and 4 tokens: 24 batches with cap 1, 17 with cap 2, the same tokens."""
    one, two = prefill_tokens("prefill_cap1.log"), prefill_tokens("prefill_cap2.log")
    assert (len(one), len(two), sum(one), sum(two)) == (24, 17, 8 * 2052, 8 * 2052)
    assert one == [1024, 1024, 4] * 8
    assert two[:4] == [1024, 1024, 900, 1024]


def evidence(cap: int) -> ServingEvidence:
    sizes = [r for r in records("prefill_startup.log") if isinstance(r, EffectiveSizes | ServerArguments)]
    prefill = Observed(records=[*sizes, *records(f"prefill_cap{cap}.log")])
    return fold_evidence(prefill, Observed(records=records(f"decode_cap{cap}.log")), simulated=False)


def test_the_evidence_of_a_real_run_shows_the_wall_that_the_cap_relieves() -> None:
    """With cap 1 requests wait for prefill, not for decode, and every third batch is a lone tail; with cap 2 none."""
    one, two = evidence(1), evidence(2)
    assert one.prefill.chunk.value == 1024
    assert one.prefill.waiting.share_positive is not None
    assert one.prefill.waiting.share_positive > 0.7
    assert one.decode.waiting.share_positive == 0
    assert one.prefill.lone_tail_share.value == pytest.approx(1 / 3, abs=0.05)
    assert two.prefill.multi_sequence_share.value is not None
    assert two.prefill.multi_sequence_share.value > 0.35
    assert (two.prefill.lone_tail_share.value or 0) < 0.1


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_real_server_attests_the_baseline_of_the_lab(role: Role) -> None:
    """Nothing differs; the transfer backend is reported under its other name, which is known."""
    body = json.loads(text(f"{role}_server_info.json"))
    found = attest(body, BASELINE, role, version="0.5.23")
    assert (found.mismatches, found.unverified) == ((), ())
    assert [a.name for a in found.adjusted] == ["disaggregation-transfer-backend"]
    assert [m.name for m in attest(body, BASELINE, role, version="0.5.10").mismatches] == ["version"]
    printed = next(r for r in records(f"{role}_startup.log") if isinstance(r, ServerArguments))
    assert not attest(printed.values, BASELINE, role).mismatches


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_live_load_and_metrics_of_a_busy_server_are_read(role: str) -> None:
    """Queues of the one rank; the metrics say the same server is the source."""
    sample = parse_loads(json.loads(text(f"loads_{role}_busy.json")), at=0.0)
    assert sample is not None
    assert (len(sample.ranks), sample.ranks[0].running_cap) == (1, 16)
    assert (sample.ranks[0].waiting, sample.ranks[0].bootstrap) == (0, 2 if role == "prefill" else 0)
    scrape = parse_metrics(text(f"metrics_{role}_busy.txt"))
    assert scrape.unread == 0
    assert scrape.values("max_total_num_tokens", engine_type=role) == (65536,)


def workload(requests: int) -> Workload:
    return Workload(
        requests=requests,
        concurrency=8,
        output_tokens=32,
        input_tokens=2052,
        rate_per_s=None,
        cache=CacheRule.ZERO,
    )


def measure(folder: Path, name: str, requests: int, console: str | None = None) -> Measurement | Problem:
    shutil.copy(LAB / name, folder / "bench.jsonl")
    return read_measurement(
        folder,
        "bench_serving",
        workload(requests),
        2,
        floor=WindowFloor(requests=8, seconds=1),
        simulated=False,
        evidence=ServerEvidence(cached_tokens=0),
        console=console,
    )


@pytest.mark.parametrize(
    ("name", "console", "requests"),
    [("bench_n8.jsonl", "client_n8.console.log", 8), ("bench_n16.jsonl", "client_n16.console.log", 16)],
)
def test_a_real_record_becomes_a_measurement_and_agrees_with_its_console(
    tmp_path: Path, name: str, console: str, requests: int
) -> None:
    """Recomputed from the requests, to the printed precision of the terminal."""
    found = measure(tmp_path, name, requests, text(console))
    assert isinstance(found, Measurement), found
    assert (found.n_succeeded, found.output_tokens, found.input_tokens) == (requests, requests * 32, requests * 2052)
    assert found.windows[0].meets_floor
    assert found.simulated is False


def test_a_client_that_reads_the_end_late_still_agrees(tmp_path: Path) -> None:
    """Its TPOT runs to the [DONE] line: 15 ms late for one request is half a millisecond of 31 tokens."""
    found = measure(tmp_path, "bench_n8_late_done.jsonl", 8)
    assert isinstance(found, Measurement), found


def test_a_tpot_that_no_late_end_explains_is_still_refused(tmp_path: Path) -> None:
    """Ten milliseconds more per token are a contradiction, and the field is named."""
    record = json.loads(text("bench_n8.jsonl"))
    record["mean_tpot_ms"] += 10.0
    (tmp_path / "bench.jsonl").write_text(json.dumps(record) + "\n")
    found = read_measurement(
        tmp_path, "bench_serving", workload(8), 2, simulated=False, evidence=ServerEvidence(cached_tokens=0)
    )
    assert isinstance(found, Problem)
    assert found.field == "whole: mean_tpot_ms"


def test_a_killed_decode_server_leaves_no_cause_in_the_logs_of_the_others() -> None:
    """Prefill only waits, the router cannot reach its worker: what killed it is the signal, not a line."""
    files = [
        IncidentFile(name="prefill.log", source=Source.SERVER, lines=text("decode_killed_prefill.log").splitlines()),
        IncidentFile(name="router.log", source=Source.ROUTER, lines=text("decode_killed_router.log").splitlines()),
    ]
    cause = classify_failure(files, {"decode.log": 9})
    assert cause.configuration_caused is False


# every sample of every source


def place(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def server_logs() -> Iterator[Path]:
    yield from LAB.glob("*.log")
    yield from FIELD.glob("server_log/*.log")
    yield from FIELD.glob("incidents/*/*")
    yield from FIELD.glob("failure/*.log")
    yield from (p for p in REAL.glob("*.log") if "server" in p.name or p.name == "srv_dp2.log")


def is_server(path: Path) -> bool:
    """A log with lines of a server's own, not those of a client, a router or another engine."""
    return any(
        " Prefill batch" in line or " Decode batch" in line for line in path.read_text(errors="replace").splitlines()
    )


LOGS = sorted(p for p in server_logs() if p.is_file() and is_server(p))
INFOS = sorted([*LAB.glob("*server_info.json"), *FIELD.glob("server_info/*.json"), *REAL.glob("*server_info.json")])
METRICS = sorted([*LAB.glob("metrics*.txt"), *FIELD.glob("metrics/*.txt")])
LOADS = sorted(LAB.glob("loads*.json"))
STARTUPS = sorted(p for p in server_logs() if p.is_file() and "server_args=" in p.read_text(errors="replace"))
CLIENTS = sorted(
    [*LAB.glob("*.jsonl"), *FIELD.glob("bench_jsonl/*.json*"), *REAL.glob("real_*.jsonl"), *MOCK.glob("*.jsonl")]
)


def test_there_are_sixty_samples_or_more() -> None:
    """Ours and the shared ones together; without the shared ones there are ours."""
    count = sum(map(len, (LOGS, INFOS, METRICS, LOADS, STARTUPS, CLIENTS)))
    assert count >= (60 if FIELD.is_dir() else 15), [count, *map(len, (LOGS, INFOS, METRICS, LOADS, STARTUPS, CLIENTS))]


@pytest.mark.parametrize("path", LOGS, ids=place)
def test_every_log_has_batches_whose_fields_are_all_kept(path: Path) -> None:
    """As many pairs as the line has, whatever their names are."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    batches = [r for r in parse_server_log(lines) if isinstance(r, PrefillBatch | DecodeBatch)]
    printed = [line for line in lines if " Prefill batch" in line or " Decode batch" in line]
    assert len(batches) >= len(printed) * 0.95
    assert all(len(batch.fields) >= 4 for batch in batches)


@pytest.mark.parametrize("path", STARTUPS, ids=place)
def test_every_startup_names_its_arguments(path: Path) -> None:
    """The printed arguments are a whole document, however long the line."""
    found = list(parse_server_log(path.read_text(encoding="utf-8", errors="replace").splitlines()))
    arguments = [r for r in found if isinstance(r, ServerArguments)]
    assert arguments
    assert all(len(r.values) > 50 for r in arguments)
    assert any(isinstance(r, Ready | EffectiveSizes) for r in found) or path.parent.parent.name != "lab_samples"


@pytest.mark.parametrize("path", INFOS, ids=place)
def test_every_description_of_a_server_has_an_identity(path: Path) -> None:
    """Unknown keys are no error."""
    assert server_info.identity(json.loads(path.read_text(encoding="utf-8"))) is not None


@pytest.mark.parametrize("path", METRICS, ids=place)
def test_every_metrics_page_is_read(path: Path) -> None:
    """Series of the engine are there."""
    assert any(point.name.startswith("sglang") for point in parse_metrics(path.read_text(encoding="utf-8")).points)
