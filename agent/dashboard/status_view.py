"""How a study stands, as short sentences for the overview. What only its driver knows is believed while it is fresh."""

from __future__ import annotations

from dataclasses import dataclass

from agent.ledger.figures import MISSING, duration_figure
from agent.status_report import Running, StatusReport, held_advice
from experiments.ledger import LedgerEntry, OperatorSpoke, TrialsClassified


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the overview. `mood`: good, bad, fault or plain."""

    name: str
    text: str
    mood: str = "plain"


def status_lines(report: StatusReport) -> tuple[Line, ...]:
    may_take, why = report.may_take
    return (
        _now(report),
        Line(name="waits because", text=_waiting(report)),
        Line(name="next", text=_next(report)),
        Line(
            name="machines",
            text=f"{'safe to take' if may_take else 'NOT safe to take'}: {why}",
            mood="good" if may_take else "bad",
        ),
        _control(report),
        Line(name="driver", text=report.driver.owner if report.driver else "nobody: no service drives this study"),
        Line(name="budget", text=_budget(report)),
    )


def _now(report: StatusReport) -> Line:
    study = report.study
    if study.held_trial_id is not None:
        return Line(name="now", text=f"HELD: the end of trial {study.held_trial_id} is unknown", mood="fault")
    if study.stop_reason is not None:
        return Line(name="now", text=f"ended ({study.stop_reason}): {study.stop_detail}")
    if report.running is None:
        return Line(name="now", text="no trial runs")
    trial, eta = report.running.trial, duration_figure(report.running.eta_s)
    text = f"trial {trial.trial_id} ({trial.tier}: {trial.why}): {_stage(report, report.running)}; ends in about {eta}"
    return Line(name="now", text=text, mood="good")


def _stage(report: StatusReport, running: Running) -> str:
    """The stage by the journal, and its driver's words about it while they are of this stage and fresh."""
    stage = next((line.stage for line in running.stages if line.is_running), None)
    if stage is None:
        return "between two stages"
    start = f"{running.trial.trial_id}: {stage}: "
    told = str(report.told.get("running") or "")
    return f"{stage}: {told.removeprefix(start)}" if report.is_fresh and told.startswith(start) else str(stage)


def _waiting(report: StatusReport) -> str:
    if report.study.stop_reason is not None:
        return "the study ended"
    if report.study.held_trial_id is not None:
        return "nothing is sent while the end of a trial is unknown"
    return report.waiting or ("a trial runs" if report.running is not None else "it does not wait")


def _next(report: StatusReport) -> str:
    if report.running is not None and report.study.held_trial_id is None:
        return "the end of this trial; what follows depends on it"
    told = report.told.get("next") if report.is_fresh or report.study.stop_reason is not None else None
    return str(told) if told else f"{MISSING}: the service says it, and none does now"


def _control(report: StatusReport) -> Line:
    reading = report.control
    if reading.problem is not None:
        return Line(name="control", text=f"PAUSED: {reading.problem}", mood="fault")
    state = reading.state
    until = state.authorized_until.isoformat(timespec="minutes") if state.authorized_until else "not set"
    only = f", only {state.only.card}" if state.only is not None else ""
    reason = f" ({state.reason})" if state.reason else ""
    costs = ", ".join(state.allow) or "none"
    text = f"{state.mode}{only}, by {state.by}{reason}; machines lent until {until}; free costs: {costs}"
    return Line(name="control", text=text, mood="plain" if state.mode == "run" else "bad")


def _budget(report: StatusReport) -> str:
    budget = report.budget
    parts = [
        f"{report.trials_left} of {budget.trials} trials left",
        f"{report.hours_left:.2f} of {budget.hours:g} h left",
    ]
    if budget.llm_tokens:
        used = report.told.get("tokens_used")
        left = f"{max(0, budget.llm_tokens - used):,}" if isinstance(used, int) else str(MISSING)
        parts.append(f"{left} of {budget.llm_tokens:,} tokens left")
    return ", ".join(parts)


def held_help(report: StatusReport) -> str | None:
    """What to check and which command settles it, where the end of a trial is unknown."""
    held = report.study.held_trial_id
    if held is None:
        return None
    return held_advice(held, (report.running.trial.detail or "") if report.running is not None else "")


def words_of(entries: list[LedgerEntry], most: int) -> list[OperatorSpoke]:
    """What operators said, newest first."""
    return [e for e in reversed(entries) if isinstance(e, OperatorSpoke)][:most]


def decisions_of(entries: list[LedgerEntry], most: int) -> list[TrialsClassified]:
    return [e for e in reversed(entries) if isinstance(e, TrialsClassified)][:most]
