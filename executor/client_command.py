"""The bench client's command for a trial: one home for what both clients share. Pure."""

from __future__ import annotations

from executor.bench.aisbench import compile_aisbench
from executor.bench.bench_serving import compile_bench_serving
from executor.bench.client_run import ClientLoad, ClientRun
from executor.service import front_door
from executor.trial_context import TrialContext
from experiments.trial import Stage


def compile_client(
    context: TrialContext, *, experiment_id: str, result_dir: str, requests: int, concurrency: int, dataset: str
) -> ClientRun:
    """The client of the scenario with this load. The result directory is unique to the attempt."""
    scenario, pool = context.plan.scenario, context.pool
    _, address, port = front_door(context)
    is_aisbench = scenario.load.client == "aisbench"
    load = ClientLoad(
        experiment_id=experiment_id,
        requests=requests,
        concurrency=concurrency,
        rate_per_s=context.plan.load.rate,
        seed=scenario.load.seed,
        output_tokens=scenario.output_tokens,
        input_tokens=scenario.input.encoded_tokens,
        tokenizer_path=pool.client.tokenizer_path or pool.client.model_path,
        served_model="",
        router_host=address,
        router_port=port,
        dataset_file=dataset,
        result_dir=result_dir,
        program=pool.programs.aisbench if is_aisbench else pool.programs.bench_serving,
    )
    return compile_aisbench(load) if is_aisbench else compile_bench_serving(load)


def dataset_path(context: TrialContext, part: str) -> str:
    """A part of the scenario's frozen data on the client's host: `measure`, `warm_up`, `seed` or `check`."""
    return str(context.payloads[Stage.PREPARE]["parts"][part])
