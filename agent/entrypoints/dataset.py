"""`tuneloop dataset`: build a scenario's frozen data on the client's host now, as a trial's prepare stage would.

`tuneloop split`: how a shared prefix and a question have to divide an input for a cache state, before any run.
"""

from __future__ import annotations

from pathlib import Path

from agent.bootstrap import connect_hosts, read_pool
from agent.entrypoints.console import Console
from agent.workspace import Workspace
from executor.clock import SystemClock
from executor.pool import check_fit
from executor.stage_result import Done
from executor.stages.dataset import ensure_dataset
from executor.trial_context import LEASE_TTL_S, TrialContext
from executor.trial_plan import TrialPlan
from experiments.cache_calibration import CacheSplit, check_cache_design, design_split, propose_split
from experiments.errors import InputError, TuningError
from experiments.goal import starting_config
from experiments.serving_config import Role
from experiments.trial import Stage, Tier, TrialLoad


def build_dataset(root: Path) -> str:
    """Where the data lies and its digest. Raises TuningError with the program's own reason if it cannot be made."""
    workspace, clock = Workspace(root.resolve()), SystemClock()
    context = _context(workspace, clock)
    name, host = context.host_of(Role.CLIENT)
    try:
        context.leases = {name: host.acquire(context.plan.study_id, LEASE_TTL_S)}
        end = ensure_dataset(context)
        host.release(context.leases[name])
    finally:
        for other in context.hosts.values():
            other.close()
    if not isinstance(end, Done):
        raise TuningError(getattr(end, "detail", "the dataset was not made"))
    parts = end.payload["parts"]
    lines = [f"dataset {end.payload['dataset']} on host {name}"]
    lines += [f"  {part:<8} {end.payload['sha256'][part][:16]}  {path}" for part, path in parts.items()]
    return "\n".join(lines)


def _context(workspace: Workspace, clock: SystemClock) -> TrialContext:
    goal, pool = workspace.read_goal(), read_pool(workspace)
    check_fit(pool, goal, str(workspace.pool_file))
    load = goal.scenario.load
    plan = TrialPlan(
        study_id=f"{goal.name}-data",
        trial_id=f"{goal.name}-data",
        tier=Tier.BASELINE,
        config=starting_config(goal, workspace.read_baseline(goal)),
        scenario=goal.scenario,
        load=TrialLoad(requests=load.requests, concurrency=load.concurrency, rate=load.rate, cache="zero"),
        floor=goal.window_floor,
        native_rule=goal.native_rule,
    )
    return TrialContext(
        plan=plan,
        pool=pool,
        hosts=connect_hosts(pool, clock),
        gate=lambda expected_s: None,
        clock=clock,
        report=Console(clock).report,
        artifacts=workspace.artifacts,
        stage=Stage.PREPARE,
    )


def describe_split(
    *, prefix: int | None, question: int, counted: tuple[int, int] | None, wanted: float, page: int
) -> str:
    """Judge a split by its whole pages. `counted`: cached and input tokens that the servers counted for it."""
    if not 0 < wanted < 1:
        raise InputError("split", 0, 0, "--wanted is a share between 0 and 1, as 0.90")
    if prefix is None:
        found = design_split(question, wanted, page)
        if found is None:
            raise InputError("split", 0, 0, f"no prefix of whole {page}-token pages reaches {wanted:.0%} of {question}")
        return _shown("design", found)
    split = CacheSplit(prefix_tokens=prefix, question_tokens=question, page_size=page)
    lines = [_shown("this split", split), check_cache_design(split, wanted).detail]
    if counted is not None:
        lines += _proposal(split, counted, wanted)
    return "\n".join(lines)


def _proposal(split: CacheSplit, counted: tuple[int, int], wanted: float) -> list[str]:
    cached, total = counted
    if not 0 < cached <= total:
        raise InputError("split", 0, 0, "--counted takes cached and input tokens, cached between 1 and input")
    proposal = propose_split(split, cached, total, wanted)
    note = "an estimate; the next run's proof per request decides" if proposal.reachable else "out of reach"
    return [_shown("propose", proposal.split), f"{proposal.because} ({note})"]


def _shown(name: str, split: CacheSplit) -> str:
    pages = f"{split.cacheable_tokens} tokens in whole pages of {split.page_size}"
    return (
        f"{name:<11}prefix {split.prefix_tokens} + question {split.question_tokens}: {pages}, "
        f"{split.cached_share:.4%} of the input"
    )
