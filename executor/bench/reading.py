"""From the raw files of one run to a Measurement, or to the Problem that forbids one.

Order matters: damaged or missing files first, then whether the promised load ran, then whether our figures
are the client's own. A run that fails any of these has no numbers at all; a slow run passes them all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from executor.bench import aisbench_figures, bench_serving_figures
from executor.bench.aisbench import read_aisbench
from executor.bench.bench_serving import read_bench_serving
from executor.bench.client_reading import ClientName, ClientReading, Printed
from executor.bench.console import console_figures
from executor.bench.problem import Problem, ResultUnreadable
from experiments.measurement import Check, Measurement
from experiments.requests import RequestTable, total
from experiments.summary import summarise_run
from experiments.trial import Reason
from experiments.validity import ServerEvidence, Workload, check_retokenized, check_run, failures
from experiments.windows import NativeRule, NoWindow, Window, WindowFloor, native_window, whole_window

# A gate that fails for want of evidence; all others say that the load was not the promised one.
_EVIDENCE_GATES = frozenset({"count", "littles_law"})
_NO_EVIDENCE = ServerEvidence()
_Recompute = Callable[[RequestTable, Window, int, str], dict[str, float]]
_RECOMPUTE: dict[ClientName, _Recompute] = {
    "aisbench": aisbench_figures.recompute,
    "bench_serving": bench_serving_figures.recompute,
}


def read_measurement(
    folder: Path,
    client: ClientName,
    plan: Workload,
    cards: int,
    *,
    rule: NativeRule = NativeRule.AISBENCH_2025_12,
    floor: WindowFloor | None = None,
    simulated: bool,
    experiment_id: str | None = None,
    evidence: ServerEvidence = _NO_EVIDENCE,
    console: str | None = None,
) -> Measurement | Problem:
    """Judge the collected files of one run.

    `experiment_id` picks this run's record where a file holds several. `console` is the captured terminal where it
    was kept: its last result block must say what the files say.
    """
    try:
        reading = read_aisbench(folder) if client == "aisbench" else read_bench_serving(folder, experiment_id)
    except ResultUnreadable as unreadable:
        return unreadable.problem
    checks = _check(reading, plan, evidence)
    voiding = failures(checks, plan)
    if voiding:
        return _problem_of(voiding[0])
    disagreement = find_disagreement(reading, plan.concurrency, rule)
    disagreement = disagreement or find_console_disagreement(reading, console)
    if disagreement is not None:
        return disagreement
    return _measure(reading, plan, cards, rule, floor or WindowFloor(), simulated, checks, evidence)


def find_disagreement(reading: ClientReading, concurrency: int, rule: NativeRule) -> Problem | None:
    """The first printed figure that our records do not reproduce to its printed precision."""
    if not reading.printed:
        return Problem(Reason.EVIDENCE_INCOMPLETE, "summary", "the client printed no figures of its own")
    for printed in reading.printed:
        if printed.missing is not None:
            field = f"{printed.stage}: {printed.missing}"
            return Problem(Reason.EVIDENCE_INCOMPLETE, field, "the client's summary lacks it")
        if printed.inconsistent:
            return Problem(Reason.EVIDENCE_INCOMPLETE, printed.inconsistent[0], "the client contradicts itself")
        found = _disagreement_of_stage(reading, printed, concurrency, rule)
        if found is not None:
            return found
    return None


def find_console_disagreement(reading: ClientReading, console: str | None) -> Problem | None:
    """The first figure of the terminal's last result block that the result files do not confirm."""
    if console is None:
        return None
    shown = console_figures(console, reading.client)
    if shown is None:
        return Problem(Reason.EVIDENCE_INCOMPLETE, "console", "the client's terminal shows no result block")
    kept = next((p.figures for p in reading.printed if p.stage == shown.stage), None)
    if kept is None:
        return Problem(Reason.EVIDENCE_INCOMPLETE, "console", f"shows stage {shown.stage}, the files do not")
    for name, figure in shown.figures.items():
        if name in kept and not figure.agrees(kept[name].value):
            detail = f"the terminal shows {figure.value:g}, the result file says {kept[name].value:g}"
            return Problem(Reason.EVIDENCE_INCOMPLETE, f"console: {name}", detail)
    return None


def _disagreement_of_stage(
    reading: ClientReading, printed: Printed, concurrency: int, rule: NativeRule
) -> Problem | None:
    """A steady stage may have been cut by another version's rule than ours: then one of the others fits."""
    rules = (rule, *(r for r in NativeRule if r is not rule)) if printed.stage == "stable" else (rule,)
    first: Problem | None = None
    for candidate in rules:
        window = _window_of_stage(reading, printed.stage, concurrency, candidate)
        found = _compare(reading, printed, window, concurrency)
        if found is None:
            return None
        first = first or found
    return first


def _window_of_stage(reading: ClientReading, stage: str, concurrency: int, rule: NativeRule) -> Window | NoWindow:
    if stage == "stable":
        return native_window(reading.table, concurrency, rule)
    return whole_window(reading.table, reading.duration_s)


def _compare(reading: ClientReading, printed: Printed, window: Window | NoWindow, concurrency: int) -> Problem | None:
    if isinstance(window, NoWindow):
        return Problem(Reason.EVIDENCE_INCOMPLETE, f"{window.kind} window", window.reason)
    ours = _RECOMPUTE[reading.client](reading.table, window, concurrency, printed.stage)
    for name, figure in printed.figures.items():
        if name in ours and not figure.agrees(ours[name]):
            detail = f"the client printed {figure.value:g}, its records give {ours[name]:.6g}"
            return Problem(Reason.EVIDENCE_INCOMPLETE, f"{printed.stage}: {name}", detail)
    return None


def _check(reading: ClientReading, plan: Workload, evidence: ServerEvidence) -> tuple[Check, ...]:
    table = reading.table
    whole = whole_window(table, reading.duration_s)
    placed = None if isinstance(whole, NoWindow) else whole
    retokenized = check_retokenized(retokenized_ratio(reading), plan.usual_retokenized_ratio)
    return (*check_run(table, plan, placed, evidence), retokenized)


def retokenized_ratio(reading: ClientReading) -> float | None:
    generated = total(reading.table.output_tokens[reading.table.success])
    return reading.retokenized_tokens / generated if generated and reading.retokenized_tokens is not None else None


def _problem_of(check: Check) -> Problem:
    incomplete = check.passed is None or check.name in _EVIDENCE_GATES
    reason = Reason.EVIDENCE_INCOMPLETE if incomplete else Reason.WORKLOAD_VIOLATED
    return Problem(reason, check.name, check.detail)


def _measure(
    reading: ClientReading,
    plan: Workload,
    cards: int,
    rule: NativeRule,
    floor: WindowFloor,
    simulated: bool,
    checks: tuple[Check, ...],
    evidence: ServerEvidence,
) -> Measurement | Problem:
    table = reading.table
    windows = summarise_run(
        table,
        concurrency=plan.concurrency,
        rule=rule,
        cards=cards,
        floor=floor,
        duration_s=reading.duration_s,
    )
    if not windows:
        return Problem(Reason.EVIDENCE_INCOMPLETE, "whole window", "the length of the run was not observed")
    succeeded = table.success
    accept_length = evidence.accept_length if reading.accept_length is None else reading.accept_length
    return Measurement(
        client=reading.client,
        client_version=reading.version,
        windows=windows,
        n_planned=plan.requests,
        n_succeeded=table.n_succeeded,
        n_failed=table.n_failed,
        input_tokens=total(table.input_tokens[succeeded]),
        output_tokens=total(table.output_tokens[succeeded]),
        cached_tokens=total(table.cached_tokens[succeeded]),
        accept_length=accept_length,
        retokenized_ratio=retokenized_ratio(reading),
        checks=checks,
        raw_sha256=reading.raw_sha256,
        simulated=simulated,
    )
