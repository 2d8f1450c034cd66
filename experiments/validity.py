"""The gates a run passes before any number of it is believed. Each returns what it saw as a `Check`.

A gate fails on evidence, and answers None where the evidence does not exist; which of the two stops a run is
decided by `failures`. A slow run passes every gate here: slowness is a result, not a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from experiments.measurement import Check, Measurement
from experiments.requests import MISSING, Bools, RequestTable
from experiments.windows import Window

GARBLED_CHARACTERS = 10  # more replacement characters than this in one answer: garbled
STREAM_GAP_LIMIT_S = 30.0
RETOKENIZED_DROP = 0.02  # below the workload's own usual ratio
SATURATION_SHARE = 0.95


class CacheRule(StrEnum):
    """What the prefix cache must look like to the formal requests."""

    ZERO = "zero"
    WARM = "warm"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What every request of a run was promised to be: the part of the scenario that records can prove."""

    requests: int
    concurrency: int
    output_tokens: int | None  # exact; None where the scenario lets lengths vary
    input_tokens: int | None = None  # encoded, with the chat template
    rate_per_s: float | None = None
    cache: CacheRule = CacheRule.UNCHECKED
    min_cached_share: float = 0.90  # of each request's input, when the cache is warm
    max_cached_tokens: int = 0  # of each request, when it is zero: a template's own page, say
    allowed_failures: int = 0
    must_prove_cache: bool = True  # False: a run whose cache state nobody could observe is still believed
    usual_retokenized_ratio: float | None = None  # median of this workload's earlier valid runs
    max_garbled: int = 0
    max_stream_gap_s: float = STREAM_GAP_LIMIT_S


@dataclass(frozen=True, kw_only=True)
class ServerEvidence:
    """What the servers and our own check requests say about the same run, where the client is silent."""

    cached_tokens: int | None = None  # growth of the servers' counter over the formal load alone
    check_requests: tuple[tuple[int, int], ...] = ()  # (cached, input) tokens of each separate check request
    accept_length: float | None = None  # output tokens / verify steps over the whole run


# These describe the run and never void it: a client below its cap is a finding about the load.
ADVISORY = frozenset({"client_saturation"})
CACHE_GATES = frozenset({"zero_cache", "cache_proof"})


def check_run(
    table: RequestTable, workload: Workload, whole: Window | None, evidence: ServerEvidence
) -> tuple[Check, ...]:
    """Every gate that per-request records can answer."""
    return (
        check_count(table, workload.requests),
        check_success(table, workload.allowed_failures),
        check_retried(table),
        check_output_length(table, workload.output_tokens),
        check_input_length(table, workload.input_tokens),
        *check_cache(table, workload, evidence),
        check_garbling(table, workload.max_garbled),
        check_first_token(table),
        check_stream_gap(table, workload.max_stream_gap_s),
        check_littles_law(table, whole, workload.concurrency),
        check_saturation(table, whole, workload),
    )


def check_count(table: RequestTable, planned: int) -> Check:
    return _check("count", len(table) == planned, f"{len(table)} request records of {planned} planned")


def check_success(table: RequestTable, allowed: int) -> Check:
    failed = table.n_failed
    detail = f"{failed} of {len(table)} requests failed, {allowed} allowed"
    first = next((table.errors[i] for i in np.flatnonzero(~table.success).tolist() if i in table.errors), None)
    return _check("success", failed <= allowed, detail + (f"; first: {first}" if first and failed else ""))


def check_retried(table: RequestTable) -> Check:
    """A retry restarts the clock of its request, so the time of the broken attempt is lost."""
    count = int((table.retried & table.success).sum())
    return _check("retried", count == 0, f"{count} succeeded requests were sent more than once by the client")


def check_output_length(table: RequestTable, exact: int | None) -> Check:
    lengths = table.output_tokens[table.success]
    unknown = int((lengths <= 0).sum())
    if unknown:
        why = f"{unknown} succeeded requests report no output tokens: an error inside an HTTP 200 stream?"
        return _check("exact_output_length", False, why)
    if exact is None:
        return _check("exact_output_length", True, "output lengths may vary in this scenario")
    wrong = lengths[lengths != exact]
    detail = f"{len(wrong)} of {len(lengths)} outputs are not exactly {exact} tokens"
    return _check("exact_output_length", len(wrong) == 0, detail + _extremes(wrong.tolist()))


def check_input_length(table: RequestTable, exact: int | None) -> Check:
    lengths = table.input_tokens[table.success]
    if exact is None:
        return _check("exact_input_length", True, "input lengths may vary in this scenario")
    if bool((lengths <= 0).any()):
        return _check("exact_input_length", None, "the client does not report every request's input tokens")
    wrong = lengths[lengths != exact]
    detail = f"{len(wrong)} of {len(lengths)} inputs are not exactly {exact} tokens"
    return _check("exact_input_length", len(wrong) == 0, detail + _extremes(wrong.tolist()))


def check_cache(table: RequestTable, workload: Workload, evidence: ServerEvidence) -> tuple[Check, ...]:
    match workload.cache:
        case CacheRule.ZERO:
            return (check_zero_cache(table, workload, evidence.cached_tokens),)
        case CacheRule.WARM:
            return (check_cache_proof(table, workload.min_cached_share, evidence.check_requests),)
        case CacheRule.UNCHECKED:
            return ()


def check_zero_cache(table: RequestTable, workload: Workload, server_total: int | None) -> Check:
    """No reuse by any request; where the client does not report it, none in the servers' own count of the
    run.
    """
    cached, allowed_tokens = table.cached_tokens[table.success], workload.max_cached_tokens
    if bool((cached == MISSING).any()) and server_total is None:
        return _check("zero_cache", None, "neither the client nor the servers reported cached tokens")
    if bool((cached == MISSING).any()):
        limit = allowed_tokens * len(cached)
        detail = f"the servers counted {server_total} cached tokens during the load, {limit} allowed"
        return _check("zero_cache", (server_total or 0) <= limit, detail)
    reused = cached[cached > allowed_tokens]
    detail = f"{len(reused)} of {len(cached)} requests reused more than {allowed_tokens} cached tokens"
    return _check("zero_cache", len(reused) == 0, detail + _extremes(reused.tolist()))


def check_cache_proof(table: RequestTable, min_share: float, check_requests: Sequence[tuple[int, int]] = ()) -> Check:
    """Cached / input tokens of every single request; a ratio of sums hides the cold ones.

    A client that does not report them leaves the separate check requests, sent after the seeds, as the proof.
    """
    cached, inputs = table.cached_tokens[table.success], table.input_tokens[table.success]
    source = "requests"
    if bool((cached == MISSING).any()):
        pairs = np.array(check_requests, dtype=np.int64).reshape(-1, 2)
        cached, inputs, source = pairs[:, 0], pairs[:, 1], "check requests"
    if len(cached) == 0 or bool((inputs <= 0).any()):
        return _check("cache_proof", None, "cached and input tokens are not reported for every request")
    share = cached / inputs
    below = int((share < min_share).sum())
    detail = f"{below} of {len(share)} {source} below {min_share:.2%} cached; lowest {share.min():.4%}"
    return _check("cache_proof", below == 0, detail)


def check_garbling(table: RequestTable, allowed: int) -> Check:
    found = table.replacement_characters[table.success]
    if len(found) == 0 or bool((found == MISSING).any()):
        return _check("garbling", None, "the client kept no answer texts")
    garbled = int((found > GARBLED_CHARACTERS).sum())
    detail = f"{garbled} answers with more than {GARBLED_CHARACTERS} replacement characters, {allowed} allowed"
    return _check("garbling", garbled <= allowed, detail)


def check_retokenized(ratio: float | None, usual: float | None) -> Check:
    """Garbage often does not encode again to as many tokens; only the workload's history says what is usual."""
    if ratio is None:
        return _check("retokenized_ratio", None, "the client does not report retokenized output")
    if usual is None:
        why = f"{ratio:.4f}, and no earlier run of this workload to compare with"
        return _check("retokenized_ratio", None, why)
    detail = f"{ratio:.4f} against {usual:.4f} in earlier runs of this workload"
    return _check("retokenized_ratio", ratio >= usual - RETOKENIZED_DROP, detail)


def usual_retokenized_ratio(earlier: Sequence[Measurement]) -> float | None:
    """The median of this workload's earlier valid runs: one broken run among them does not become the norm."""
    ratios = [m.retokenized_ratio for m in earlier if m.retokenized_ratio is not None]
    return float(np.median(ratios)) if ratios else None


def check_first_token(table: RequestTable) -> Check:
    """An answer without any visible text has no first token; its latencies are unobserved, not zero."""
    unseen = int(np.isnan(table.ttft_s[table.success]).sum())
    if unseen:
        return _check("first_token", None, f"{unseen} succeeded requests show no first token: latencies unknown")
    return _check("first_token", True, "a first token was seen for every succeeded request")


def check_stream_gap(table: RequestTable, limit_s: float) -> Check:
    gaps = table.max_gap_s()[table.success]
    if len(gaps) == 0 or not bool(np.isfinite(gaps).any()):
        return _check("stream_gap", None, "the client records no arrival times of chunks")
    longest = float(np.nanmax(gaps))
    over = int((gaps > limit_s).sum())
    return _check("stream_gap", over == 0, f"longest silence {longest:.2f} s, {over} requests above {limit_s:g} s")


def check_littles_law(table: RequestTable, whole: Window | None, concurrency: int) -> Check:
    """Arrival rate x mean latency is the mean number in flight, which the client's cap bounds."""
    in_flight = mean_concurrency(table, whole)
    if in_flight is None or whole is None:
        return _check("littles_law", None, "latencies or the length of the run were not observed")
    rows = whole.members
    longest = float(table.e2e_s[rows].max())
    rate = len(rows) / whole.duration_s
    detail = (
        f"{rate:.4f} req/s x {table.e2e_s[rows].mean():.3f} s = {in_flight:.2f} in flight, "
        f"cap {concurrency}, longest request {longest:.2f} s of {whole.duration_s:.2f} s"
    )
    # A clock or unit error shows as more in flight than the cap allows, or a request longer than its run.
    sane = in_flight <= concurrency * 1.005 and longest <= whole.duration_s * 1.005
    return _check("littles_law", sane, detail)


def check_saturation(table: RequestTable, whole: Window | None, workload: Workload) -> Check:
    """Whether the client ever held its configured concurrency. Advisory: at a low send rate it need not."""
    peak = peak_concurrency(table)
    mean = mean_concurrency(table, whole)
    if peak is None:
        told = "" if mean is None else f"; the mean was {mean:.2f}"
        return _check("client_saturation", None, "the client records no send times" + told)
    detail = f"peak {peak} and mean {mean or 0:.2f} in flight of {workload.concurrency} configured"
    return _check("client_saturation", peak >= SATURATION_SHARE * workload.concurrency, detail)


def mean_concurrency(table: RequestTable, whole: Window | None) -> float | None:
    """Sum of E2E over the length of the run."""
    if whole is None or whole.duration_s <= 0:
        return None
    busy = float(table.e2e_s[whole.members].sum())
    return busy / whole.duration_s if np.isfinite(busy) else None


def peak_concurrency(table: RequestTable) -> int | None:
    """The true peak, from send and end times; a client's own per-second peak overcounts and is not used."""
    timed: Bools = np.isfinite(table.start_s) & np.isfinite(table.e2e_s)
    if not bool(timed.any()):
        return None
    starts, ends = np.sort(table.start_s[timed]), np.sort(table.end_s[timed])
    # At one instant ends count before sends: a slot is reused, not doubled.
    running = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")
    return int(running.max())


def failures(checks: Sequence[Check], workload: Workload) -> tuple[Check, ...]:
    """The checks that void the run: failed ones, and an unproved cache where the proof is asked for."""
    unproved = CACHE_GATES if workload.must_prove_cache else frozenset()
    return tuple(
        c for c in checks if c.name not in ADVISORY and (c.passed is False or (c.passed is None and c.name in unproved))
    )


def _check(name: str, passed: bool | np.bool_ | None, detail: str) -> Check:
    return Check(name=name, passed=None if passed is None else bool(passed), detail=detail)


def _extremes(values: list[int]) -> str:
    return f"; they are {min(values)}…{max(values)}" if values else ""
