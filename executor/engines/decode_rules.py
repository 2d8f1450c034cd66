"""Rules of the decode batch: running cap, dispatch capacity of the expert exchange, captured graph sizes."""

from __future__ import annotations

from collections.abc import Iterator

from executor.engines.role_settings import DEFAULT_DISPATCH_TOKENS, RoleSettings, as_integer
from executor.engines.violation import Severity, Violation
from experiments.serving_config import Role

DISPATCH_ENV = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DISPATCH_LIMIT = 1024


def check(view: RoleSettings) -> Iterator[Violation]:
    """Violations of running cap and memory on any role; dispatch and graphs on a role that decodes."""
    yield from _check_running_cap(view)
    yield from _check_memory(view)
    yield from _check_dispatch_limit(view)
    if view.role is not Role.PREFILL:
        yield from _check_dispatch_capacity(view)
        yield from _check_graphs(view)


def _violation(view: RoleSettings, rule: str, severity: Severity, message: str) -> Violation:
    return Violation(rule=rule, role=view.role, severity=severity, message=f"{view.role}: {message}")


def _check_running_cap(view: RoleSettings) -> Iterator[Violation]:
    total = view.integer("max-running-requests")
    if total is None or not view.has_dp_attention:
        return
    if total < view.dp:
        yield _violation(
            view,
            "running_per_dp",
            Severity.INVALID,
            f"max-running-requests {total} // dp-size {view.dp} = 0 requests per rank",
        )
    elif total % view.dp:
        per_rank = total // view.dp
        yield _violation(
            view,
            "running_per_dp",
            Severity.RISK,
            f"max-running-requests {total} is not a multiple of dp-size {view.dp}: "
            f"{per_rank} per rank, {per_rank * view.dp} in all",
        )


def _check_memory(view: RoleSettings) -> Iterator[Violation]:
    share = view.number("mem-fraction-static")
    if share is not None and not 0 < share < 1:
        yield _violation(view, "memory_share", Severity.INVALID, f"mem-fraction-static {share} is not between 0 and 1")


def _uses_low_latency(view: RoleSettings) -> bool:
    if view.text("moe-a2a-backend") not in {"deepep", "ascend_fuseep"}:
        return False
    return view.text("deepep-mode") in {None, "auto", "low_latency"}


def _check_dispatch_limit(view: RoleSettings) -> Iterator[Violation]:
    capacity = as_integer(view.env.get(DISPATCH_ENV))
    if capacity is not None and capacity > DISPATCH_LIMIT:
        yield _violation(
            view, "dispatch_limit", Severity.INVALID, f"{DISPATCH_ENV} {capacity} is above {DISPATCH_LIMIT}"
        )


def _check_dispatch_capacity(view: RoleSettings) -> Iterator[Violation]:
    cap = view.running_cap
    if cap is None or not _uses_low_latency(view):
        return
    needed = cap * view.draft_tokens
    capacity = as_integer(view.env.get(DISPATCH_ENV))
    stated = DEFAULT_DISPATCH_TOKENS if capacity is None else capacity
    if needed > stated:
        default = " (the default)" if capacity is None else ""
        yield _violation(
            view,
            "dispatch_capacity",
            Severity.INVALID,
            f"{cap} running per rank × {view.draft_tokens} draft tokens = {needed} tokens to dispatch, "
            f"{DISPATCH_ENV} is {stated}{default}; raise it to {needed}"
            + (f", which is above the limit {DISPATCH_LIMIT}" if needed > DISPATCH_LIMIT else ""),
        )


def _check_graphs(view: RoleSettings) -> Iterator[Violation]:
    cap = view.running_cap
    if cap is None or cap < 1 or view.is_on("disable-cuda-graph"):
        return
    largest = view.graph_max
    if largest is not None and largest < cap:
        yield _violation(
            view,
            "graph_below_cap",
            Severity.RISK,
            f"largest captured batch {largest} is below {cap} running requests per rank: "
            f"batches of {largest + 1} to {cap} run without a graph",
        )
    yield from _check_capture(view, cap)


def _check_capture(view: RoleSettings, cap: int) -> Iterator[Violation]:
    """The draft graph keeps sizes within the cap that divide over the attention ranks; none is fatal."""
    if view.text("speculative-algorithm") is None or not view.has_dp_attention or view.tp % view.dp:
        return
    attention_tp = view.tp // view.dp
    sizes = view.graph_sizes or range(1, (view.graph_max or cap) + 1)
    if not any(size <= cap and size % attention_tp == 0 for size in sizes):
        listed = " ".join(str(size) for size in view.graph_sizes) or f"up to {view.graph_max or cap}"
        yield _violation(
            view,
            "capture_empty",
            Severity.INVALID,
            f"no batch size to capture is left: sizes {listed}, at most {cap} per rank "
            f"(max-running-requests {view.integer('max-running-requests')} // dp-size {view.dp}), "
            f"multiples of tp-size {view.tp} / dp-size {view.dp} = {attention_tp}",
        )
