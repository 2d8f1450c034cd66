"""Rules of speculative decoding, on one role and between prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator

from executor.engines.release import Release
from executor.engines.role_settings import RoleSettings
from executor.engines.violation import Severity, Violation

_SYNONYMS = {"NEXTN": "EAGLE"}
_NO_DP_ATTENTION = frozenset({"STANDALONE", "NGRAM"})
_LAST_WITHOUT_OVERLAP = Release(0, 5, 10, 1)


def check(view: RoleSettings, release: Release | None) -> Iterator[Violation]:
    """Violations of the speculative settings of one role."""
    algorithm = view.text("speculative-algorithm")
    if algorithm is None:
        return
    yield from _check_topk(view)
    yield from _check_draft_tokens(view)
    if algorithm in _NO_DP_ATTENTION and view.has_dp_attention:
        yield _invalid(view, "speculation_dp", f"{algorithm} cannot run with DP attention")
    if algorithm == "NGRAM" and view.is_npu:
        yield _invalid(view, "ngram_device", "NGRAM runs on CUDA only")
    yield from _check_overlap(view, release)


def check_pair(prefill: RoleSettings, decode: RoleSettings) -> Iterator[Violation]:
    """Both sides load the same draft, or neither does: the draft's KV is part of what is handed over."""
    left, right = (_family(side) for side in (prefill, decode))
    if left != right:
        yield _invalid(
            decode,
            "speculation_parity",
            f"speculative-algorithm is {right or 'unset'} on decode and {left or 'unset'} on prefill; "
            "both sides need the same",
        )
    left, right = (side.text("speculative-draft-model-path") for side in (prefill, decode))
    if left != right and None not in (_family(prefill), _family(decode)):
        yield _invalid(decode, "draft_parity", "speculative-draft-model-path differs from prefill")


def _family(view: RoleSettings) -> str | None:
    algorithm = view.text("speculative-algorithm")
    return None if algorithm is None else _SYNONYMS.get(algorithm, algorithm)


def _invalid(view: RoleSettings, rule: str, message: str) -> Violation:
    return Violation(rule=rule, role=view.role, severity=Severity.INVALID, message=f"{view.role}: {message}")


def _check_topk(view: RoleSettings) -> Iterator[Violation]:
    topk, page = view.integer("speculative-eagle-topk"), view.page
    if topk is None or topk == 1:
        return
    if view.is_npu or (page or 1) > 1:
        yield _invalid(view, "eagle_topk", f"speculative-eagle-topk {topk} needs page-size 1, here {page}; use topk 1")
    elif view.env_is_on("SGLANG_ENABLE_SPEC_V2"):
        yield _invalid(view, "eagle_topk", f"SGLANG_ENABLE_SPEC_V2 needs eagle-topk 1, not {topk}")


def _check_draft_tokens(view: RoleSettings) -> Iterator[Violation]:
    steps = view.integer("speculative-num-steps")
    topk = view.integer("speculative-eagle-topk")
    draft = view.integer("speculative-num-draft-tokens")
    if steps is None and (topk is not None or draft is not None):
        yield _invalid(
            view,
            "draft_needs_steps",
            "speculative-num-steps is unset, so eagle-topk and num-draft-tokens must be unset too",
        )
    if steps is not None and topk == 1 and draft is not None and draft != steps + 1:
        yield _invalid(
            view,
            "draft_tokens",
            f"with eagle-topk 1 the server runs num-draft-tokens = num-steps {steps} + 1 = {steps + 1}, not {draft}",
        )


def _check_overlap(view: RoleSettings, release: Release | None) -> Iterator[Violation]:
    if release is None or release > _LAST_WITHOUT_OVERLAP or view.is_on("disable-overlap-schedule"):
        return
    if not view.env_is_on("SGLANG_ENABLE_SPEC_V2"):
        yield Violation(
            rule="speculation_overlap",
            role=view.role,
            severity=Severity.RISK,
            message=(
                f"{view.role}: release {release} turns the overlap scheduler off under speculation unless "
                "SGLANG_ENABLE_SPEC_V2 is 1"
            ),
        )
