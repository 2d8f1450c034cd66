"""Rules of the prefill batch: chunk, page, request cap, and the gate that can put the cap out of reach."""

from __future__ import annotations

from collections.abc import Iterator

from executor.engines.release import Release
from executor.engines.role_settings import DEFAULT_MAX_PREFILL_TOKENS, NPU_PAGE, RoleSettings, page_ceil
from executor.engines.violation import Severity, Violation, Workload
from experiments.serving_config import Role

LAST_GATED = Release(0, 5, 12, 1)  # up to here a chunked request must also fit the remaining input budget


def check(view: RoleSettings, release: Release | None, workload: Workload) -> Iterator[Violation]:
    """Violations on a role that prefills; the decode side has no prefill batch."""
    if view.role is Role.DECODE:
        return
    yield from _check_chunk(view)
    yield from _check_cache_kinds(view)
    yield from _check_mixed_chunk(view)
    yield from _check_gate(view, release, workload)
    yield from _check_context(view, workload)
    yield from _check_warm_cache(view, workload)


def _check_chunk(view: RoleSettings) -> Iterator[Violation]:
    asked, page = view.chunk_asked, view.page
    if asked is None or asked <= 0 or page is None:
        return
    effective = view.chunk or 0
    if effective == 0 or effective % page:
        divided = f" // dp-size {view.dp} = {effective}" if view.has_dp_attention else ""
        yield Violation(
            rule="chunk_page",
            role=view.role,
            severity=Severity.INVALID,
            message=f"{view.role}: chunked-prefill-size {asked}{divided}, not a multiple of page-size {page}",
        )


def _check_cache_kinds(view: RoleSettings) -> Iterator[Violation]:
    if view.is_on("enable-hierarchical-cache") and view.is_on("disable-radix-cache"):
        yield Violation(
            rule="radix_and_hicache",
            role=view.role,
            severity=Severity.INVALID,
            message=f"{view.role}: enable-hierarchical-cache and disable-radix-cache exclude each other",
        )


def _check_warm_cache(view: RoleSettings, workload: Workload) -> Iterator[Violation]:
    """A scenario with a warm cache needs the cache, and servers that tell what each request took from it."""
    if not workload.cached_tokens:
        return
    if view.is_on("disable-radix-cache"):
        yield Violation(
            rule="warm_without_radix",
            role=view.role,
            severity=Severity.INVALID,
            message=f"{view.role}: disable-radix-cache leaves no cache for a warm scenario",
        )
    if not view.is_on("enable-cache-report"):
        yield Violation(
            rule="cache_report",
            role=view.role,
            severity=Severity.RISK,
            message=f"{view.role}: without enable-cache-report no request proves what it took from the cache",
        )


def _check_mixed_chunk(view: RoleSettings) -> Iterator[Violation]:
    algorithm = view.text("speculative-algorithm")
    if view.is_on("enable-mixed-chunk") and algorithm is not None:
        yield Violation(
            rule="mixed_chunk_speculation",
            role=view.role,
            severity=Severity.INVALID,
            message=f"{view.role}: enable-mixed-chunk cannot run with speculative-algorithm {algorithm}",
        )


def _check_gate(view: RoleSettings, release: Release | None, workload: Workload) -> Iterator[Violation]:
    """Up to 0.5.12.post1 with the radix cache on, a second request is refused when its whole uncached need
    (page-rounded) reaches the rest of max-prefill-tokens, though it would be chunked."""
    cap = view.integer("prefill-max-requests")
    if cap is None or cap < 2 or release is None or release > LAST_GATED:
        return
    if not view.has_radix_cache or view.chunk is None or workload.prompt_tokens is None:
        return
    page = view.page or NPU_PAGE
    need = page_ceil(workload.prompt_tokens - workload.cached_tokens, page)
    budget = view.integer("max-prefill-tokens") or DEFAULT_MAX_PREFILL_TOKENS
    if need <= view.chunk:
        return
    yield from _gate_violation(view, release, need=need, budget=budget, page=page, chunk=view.chunk)


def _gate_violation(
    view: RoleSettings, release: Release, *, need: int, budget: int, page: int, chunk: int
) -> Iterator[Violation]:
    # The smallest charge before the second request is one page, the largest a chunk less one page.
    enough = need + chunk
    if budget >= enough:
        return
    cap = view.integer("prefill-max-requests")
    never = need >= budget - page
    effect = f"cap {cap} can never admit a second request" if never else f"cap {cap} works only in part"
    yield Violation(
        rule="prefill_gate",
        role=view.role,
        severity=Severity.NO_EFFECT if never else Severity.RISK,
        message=(
            f"{view.role}: mechanism not reachable in this build: release {release} admits a second request "
            f"only while its whole need {need} is below the rest of max-prefill-tokens {budget}; {effect}. "
            f"Raise max-prefill-tokens to {enough} or more"
        ),
    )


def _check_context(view: RoleSettings, workload: Workload) -> Iterator[Violation]:
    context = view.integer("context-length")
    if context is None or workload.prompt_tokens is None:
        return
    needed = workload.prompt_tokens + (workload.output_tokens or 0)
    if context < needed:
        yield Violation(
            rule="context_length",
            role=view.role,
            severity=Severity.INVALID,
            message=(
                f"{view.role}: context-length {context} is below prompt {workload.prompt_tokens} + output "
                f"{workload.output_tokens or 0} = {needed}"
            ),
        )
