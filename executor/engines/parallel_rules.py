"""Rules between tensor, data and expert parallel sizes."""

from __future__ import annotations

from collections.abc import Iterator

from executor.engines.role_settings import RoleSettings
from executor.engines.violation import Severity, Violation, Workload

_EP_IS_TP = frozenset({"deepep", "ascend_fuseep", "mooncake", "nixl", "mori"})


def check(view: RoleSettings, workload: Workload) -> Iterator[Violation]:
    """Violations of the parallel layout of one role."""
    yield from _check_tensor_parallel(view)
    yield from _check_data_parallel(view)
    yield from _check_dense_layers(view)
    yield from _check_expert_parallel(view, workload)
    yield from _check_expert_balance(view)
    yield from _check_recorder(view)


def _invalid(view: RoleSettings, rule: str, message: str) -> Violation:
    return Violation(rule=rule, role=view.role, severity=Severity.INVALID, message=f"{view.role}: {message}")


def _check_recorder(view: RoleSettings) -> Iterator[Violation]:
    """Recording expert loads costs time in every step, so no formal run has it on."""
    mode = view.text("expert-distribution-recorder-mode")
    if mode is not None:
        yield _invalid(view, "recorder_on", f"expert-distribution-recorder-mode {mode}: a formal run records nothing")


def _check_tensor_parallel(view: RoleSettings) -> Iterator[Violation]:
    pipeline = view.integer("pp-size") or 1
    if (view.tp * pipeline) % view.nnodes:
        yield _invalid(
            view,
            "tp_per_node",
            f"tp-size {view.tp} × pp-size {pipeline} is not a multiple of {view.nnodes} nodes",
        )
    if pipeline > 1 and not view.is_on("disable-overlap-schedule"):
        yield _invalid(view, "pp_overlap", f"pp-size {pipeline} needs disable-overlap-schedule")
    if pipeline > 1 and view.text("speculative-algorithm") is not None:
        yield _invalid(view, "pp_speculation", f"pp-size {pipeline} cannot run with speculation")


def _check_data_parallel(view: RoleSettings) -> Iterator[Violation]:
    if view.has_dp_attention and view.tp % view.dp:
        yield _invalid(view, "tp_per_dp", f"tp-size {view.tp} is not a multiple of dp-size {view.dp} with DP attention")
    if view.dp > 1 and view.nnodes > 1 and not view.has_dp_attention:
        yield _invalid(view, "dp_over_nodes", f"dp-size {view.dp} over {view.nnodes} nodes needs enable-dp-attention")
    if view.is_on("enable-dp-lm-head") and not view.has_dp_attention:
        yield _invalid(
            view,
            "dp_lm_head",
            f"enable-dp-lm-head needs enable-dp-attention with dp-size > 1 (dp-size {view.dp})",
        )


def _check_dense_layers(view: RoleSettings) -> Iterator[Violation]:
    dense = view.integer("moe-dense-tp-size")
    if dense is not None and dense != 1:
        yield _invalid(view, "moe_dense_tp", f"moe-dense-tp-size {dense}: only 1, or leave it unset")


def _check_expert_parallel(view: RoleSettings, workload: Workload) -> Iterator[Violation]:
    ep, backend = view.integer("ep-size"), view.text("moe-a2a-backend")
    forced = backend in _EP_IS_TP
    if forced and ep is not None and ep != view.tp:
        yield _invalid(view, "ep_is_tp", f"moe-a2a-backend {backend} forces ep-size to tp-size {view.tp}, not {ep}")
    effective = view.tp if forced else (ep or 1)
    redundant = view.integer("ep-num-redundant-experts") or 0
    if workload.n_experts is not None and (workload.n_experts + redundant) % effective:
        slots = workload.n_experts + redundant
        yield _invalid(
            view,
            "experts_per_rank",
            f"{workload.n_experts} experts + {redundant} redundant = {slots}, not a multiple of ep-size {effective}",
        )


def _check_expert_balance(view: RoleSettings) -> Iterator[Violation]:
    backend = view.text("moe-a2a-backend")
    effective = view.tp if backend in _EP_IS_TP else (view.integer("ep-size") or 1)
    if view.is_on("enable-eplb") and effective == 1:
        yield _invalid(view, "eplb_needs_ep", "enable-eplb needs ep-size > 1")
    if view.is_on("enable-eplb") and backend == "ascend_fuseep":
        yield _invalid(view, "eplb_fuseep", "enable-eplb cannot run with moe-a2a-backend ascend_fuseep")
    dispatch = view.text("ep-dispatch-algorithm")
    if dispatch in {"static", "lp"} and backend in {None, "none"}:
        yield _invalid(view, "dispatch_needs_a2a", f"ep-dispatch-algorithm {dispatch} needs a moe-a2a-backend")
    mode = view.env.get("SGLANG_NPU_FUSED_MOE_MODE")
    if backend == "ascend_fuseep" and mode is not None and str(mode) not in {"1", "2"}:
        yield _invalid(view, "fused_moe_mode", f"SGLANG_NPU_FUSED_MOE_MODE {mode}: only 1 or 2")
