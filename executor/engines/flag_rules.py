"""Rules about single flags: removed, renamed or ignored in a release, not for an NPU, unequal on P and D."""

from __future__ import annotations

from collections.abc import Iterator

from executor.engines.flags import IGNORED, INTRODUCED, REMOVED, RENAMED
from executor.engines.release import Release
from executor.engines.role_settings import NPU_PAGE, RoleSettings
from executor.engines.violation import Severity, Violation
from experiments.serving_config import Role

_EQUAL_ON_BOTH_SIDES = (
    "model-path",
    "quantization",
    "kv-cache-dtype",
    "dtype",
    "page-size",
    "disaggregation-transfer-backend",
)
_NPU_BACKENDS = frozenset({"none", "deepep", "ascend_fuseep"})


def check(view: RoleSettings, release: Release | None) -> Iterator[Violation]:
    """Violations of single flags of one role."""
    if release is not None:
        yield from _check_release(view, release)
    if view.is_npu:
        yield from _check_npu(view)
    if view.role is Role.PREFILL and view.text("disaggregation-transfer-backend") == "fake":
        yield _violation(view, "fake_transfer", Severity.INVALID, "transfer backend fake exists on decode only")


def check_pair(prefill: RoleSettings, decode: RoleSettings) -> Iterator[Violation]:
    """Settings that describe the KV which is handed over must be equal on both sides."""
    for name in _EQUAL_ON_BOTH_SIDES:
        left, right = prefill.text(name), decode.text(name)
        if left != right:
            yield _violation(decode, "handover_parity", Severity.INVALID, f"{name} is {right}, on prefill {left}")


def _violation(view: RoleSettings, rule: str, severity: Severity, message: str) -> Violation:
    return Violation(rule=rule, role=view.role, severity=severity, message=f"{view.role}: {message}")


def _check_release(view: RoleSettings, release: Release) -> Iterator[Violation]:
    for name in view.flags:
        yield from _check_renamed(view, name, release)
        if name in INTRODUCED and release < INTRODUCED[name]:
            yield _violation(
                view,
                "flag_unknown",
                Severity.INVALID,
                f"{name} exists from {INTRODUCED[name]} on; installed is {release}",
            )
        if name in REMOVED and release >= REMOVED[name][0]:
            since, advice = REMOVED[name]
            yield _violation(view, "flag_removed", Severity.INVALID, f"{name} was removed by {since}; {advice}")
        elif name in IGNORED and release >= IGNORED[name][0]:
            since, why = IGNORED[name]
            yield _violation(view, "flag_ignored", Severity.NO_EFFECT, f"{name} is ignored since {since}: {why}")


def _check_renamed(view: RoleSettings, name: str, release: Release) -> Iterator[Violation]:
    if name in RENAMED and release >= RENAMED[name][1]:
        new_name, since = RENAMED[name]
        yield _violation(view, "flag_renamed", Severity.INVALID, f"{name} is called {new_name} since {since}")


def _check_npu(view: RoleSettings) -> Iterator[Violation]:
    page = view.integer("page-size")
    if page is not None and page != NPU_PAGE:
        yield _violation(view, "npu_page", Severity.RISK, f"page-size {page}: kernels on NPU are made for {NPU_PAGE}")
    transfer = view.text("disaggregation-transfer-backend")
    if view.role in (Role.PREFILL, Role.DECODE) and transfer != "ascend":
        yield _violation(
            view,
            "npu_transfer",
            Severity.INVALID if transfer else Severity.RISK,
            f"disaggregation-transfer-backend is {transfer or 'unset'}; NPU needs ascend",
        )
    if view.is_on("enable-two-batch-overlap"):
        yield _violation(view, "npu_two_batch", Severity.INVALID, "enable-two-batch-overlap is not usable on NPU")
    backend = view.text("moe-a2a-backend")
    if backend is not None and backend not in _NPU_BACKENDS:
        yield _violation(
            view,
            "npu_a2a",
            Severity.INVALID,
            f"moe-a2a-backend {backend}; NPU has none, deepep, ascend_fuseep",
        )
    if view.role is Role.PREFILL and not view.is_on("disable-overlap-schedule"):
        yield _violation(
            view,
            "npu_prefill_overlap",
            Severity.RISK,
            "overlap on prefill can corrupt metadata under long input; set disable-overlap-schedule",
        )
