"""The prepare stage on a pool without a dataset program of its own: ours is sent and run by the engine's Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from executor.service import tear_down
from executor.stage_result import Done, Faulted, StageResult
from executor.stages.dataset import ensure_dataset
from experiments.scenario import Scenario
from experiments.trial import Reason, Stage
from tests.executor.stage_bench import BASELINE, GOAL, Bench, numbers


def scenario(encoded: int = 300, **load: object) -> Scenario:
    document = GOAL.scenario.model_dump(mode="json")
    document["input"] = {"body_tokens": 300, "encoded_tokens": encoded, "task": "copy"}
    document["load"] |= {"requests": 6, "concurrency": 2, "warmup": 2, **load}
    return Scenario.model_validate(document)


@pytest.fixture(name="real")
def pool_without_a_program(bench: Bench, tmp_path: Path) -> Iterator[Bench]:
    """A model folder with a toy tokenizer, and the engine's Python named in the pool."""
    model = {"type": "WordLevel", "vocab": {"<unk>": 0} | {f"w{i}": i + 1 for i in range(800)}, "unk_token": "<unk>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    pool = bench.pool.model_copy(
        update={
            "programs": bench.pool.programs.model_copy(update={"dataset": None}),
            "engine": bench.pool.engine.model_copy(update={"python": sys.executable}),
            "client": bench.pool.client.model_copy(update={"model_path": str(tmp_path)}),
        }
    )
    real = replace(bench, pool=pool, study=f"study-{next(numbers)}")
    yield real
    tear_down(real.hosts, real.study, 60.0)


def prepare(bench: Bench, wanted: Scenario) -> StageResult:
    context = bench.trial(BASELINE)
    context.stage = Stage.PREPARE
    context.plan = replace(context.plan, scenario=wanted)
    context.leases = {name: host.acquire(bench.study, 60.0) for name, host in bench.hosts.items()}
    return ensure_dataset(context)


def builds(bench: Bench) -> int:
    return sum(".dataset." in job.job_id for job in bench.hosts["p0"].jobs() if job.job_id.startswith(bench.study))


def test_the_data_set_is_built_once_with_rows_that_the_client_reads(real: Bench) -> None:
    """bench_serving gets conversations; a second trial verifies the parts and builds nothing."""
    first = prepare(real, scenario(client="bench_serving", rate=None))
    assert isinstance(first, Done), first
    rows = [json.loads(line) for line in Path(first.payload["parts"]["measure"]).read_text().splitlines()]
    assert [row["conversations"][0]["role"] for row in rows] == ["user"] * 6
    assert {len(row["conversations"][0]["content"].split()) for row in rows} == {300}
    again = prepare(real, scenario(client="bench_serving", rate=None))
    assert isinstance(again, Done)
    assert (again.payload["sha256"], builds(real)) == (first.payload["sha256"], 1)


def test_aisbench_gets_questions(real: Bench) -> None:
    """The same scenario for the other client is another data set."""
    made = prepare(real, scenario())
    assert isinstance(made, Done), made
    assert "question" in json.loads(Path(made.payload["parts"]["measure"]).read_text().splitlines()[0])


def test_a_promise_that_the_tokenizer_cannot_keep_is_refused_with_what_to_write(real: Bench) -> None:
    """This model has no chat template, so nothing is added to the body."""
    refused = prepare(real, scenario(encoded=304))
    assert isinstance(refused, Faulted)
    assert (refused.reason, refused.repairable) == (Reason.CONTRACT_MISMATCH, False)
    assert refused.detail.endswith("the scenario says 4: set encoded_tokens to 300")


def test_changed_data_is_never_sent(real: Bench) -> None:
    """A part that differs from its manifest names itself and the folder to remove."""
    made = prepare(real, scenario(seed=7))
    assert isinstance(made, Done), made
    with Path(made.payload["parts"]["measure"]).open("a") as file:
        file.write("{}\n")
    changed = prepare(real, scenario(seed=7))
    assert isinstance(changed, Faulted)
    assert changed.reason is Reason.WORKLOAD_VIOLATED
    assert "measure differ from the manifest; remove " in changed.detail
