"""`experiments.csv`: one row per trial and observed window; a run without numbers has one row that says so.

The first columns are a contract with readers of the file, new ones go to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from agent.ledger.figures import value_text
from agent.ledger.history import History
from experiments.classification import classify_failure
from experiments.measurement import Measurement, WindowKind, WindowMetrics
from experiments.study import TrialState
from experiments.trial import NOT_OBSERVED, Reason, Route

Cell = str | int | float | bool | None  # None: not observed
Row = dict[str, Cell]

NONE = "none"  # has no such thing, unlike not observed
WINDOW_COLUMNS = (
    "n_requests",
    "duration_s",
    "output_tok_s_per_card",
    "tpot_mean_ms",
    "ttft_mean_s",
    "ttft_p90_s",
    "e2e_mean_s",
)
MORE_WINDOW_COLUMNS = ("output_tok_s", "request_per_s", "concurrency_mean", "meets_floor")
COLUMNS = (
    "trial",
    "card",
    "parent",
    "change",
    "change_role",
    "change_knob",
    "change_from",
    "change_to",
    "tier",
    "route",
    "reason",
    "window",
    "window_rule",
    *WINDOW_COLUMNS,
    "requests_planned",
    "concurrency",
    "rate",
    "failed",
    "simulated",
    "started_at",
    "finished_at",
    *MORE_WINDOW_COLUMNS,
    "sent",
    "faults",
    "raw_sha256",
)


def trial_rows(history: History) -> Iterator[Row]:
    for trial in history.study.trials.values():
        base = _base(history, trial)
        measurement = None if trial.record is None else trial.record.measurement
        windows = _windows(measurement)
        for window in windows or (None,):
            row = base | _window(window)
            yield {column: row[column] for column in COLUMNS}


def _windows(measurement: Measurement | None) -> list[WindowMetrics]:
    """Whole, native, in_window: in this order whatever the record has."""
    if measurement is None:
        return []
    return [w for kind in WindowKind if (w := measurement.window(kind)) is not None]


def _window(window: WindowMetrics | None) -> Row:
    columns = WINDOW_COLUMNS + MORE_WINDOW_COLUMNS
    if window is None:
        return dict.fromkeys(("window", "window_rule", *columns))
    figures: Row = {column: getattr(window, column) for column in columns}
    return figures | {"window": str(window.kind), "window_rule": window.rule}


def _base(history: History, trial: TrialState) -> Row:
    started, record = trial.started, trial.record
    route, reason = route_of(trial)
    measurement = None if record is None else record.measurement
    row: Row = {
        "trial": started.trial_id,
        "tier": str(started.tier),
        "route": route,
        "reason": reason,
        "requests_planned": started.load.requests,
        "concurrency": started.load.concurrency,
        "rate": "unlimited" if started.load.rate is None else started.load.rate,
        "failed": None if measurement is None else measurement.n_failed,
        "simulated": history.simulated,
        "started_at": _utc(started.at),
        "finished_at": _utc(trial.finished_at),
        "sent": None if record is None else str(record.sent),
        "faults": 0 if record is None else len(record.faults),
        "raw_sha256": None if measurement is None else measurement.raw_sha256,
    }
    return row | _card_columns(history, trial)


def _card_columns(history: History, trial: TrialState) -> Row:
    attempt = history.attempt(trial.started.card_digest)
    if attempt is None:
        columns = ("parent", "change", "change_role", "change_knob", "change_from", "change_to")
        return {"card": history.name_of(trial.started.config), **dict.fromkeys(columns, NONE)}
    change = attempt.card.draft.change
    return {
        "card": attempt.name,
        "parent": history.names.get(attempt.card.parent_fingerprint, attempt.card.parent_fingerprint),
        "change": str(change),
        "change_role": _joined(str(part.role) for part in change.parts),
        "change_knob": _joined(part.name for part in change.parts),
        "change_from": _joined(value_text(part.from_value) for part in change.parts),
        "change_to": _joined(value_text(part.to_value) for part in change.parts),
    }


def _joined(parts: Iterable[str]) -> str:
    """The parts of a declared bundle stay in one cell: the row is about the combination."""
    return " + ".join(parts)


def route_of(trial: TrialState) -> tuple[str, str]:
    """Route and reason of one run. A run that failed keeps its own, whatever became of its card."""
    if trial.is_held:
        return str(Route.ORCHESTRATION_FAULT), str(Reason.UNKNOWN_END)
    if trial.record is None:
        return "running", NONE
    if trial.record.failure is not None:
        own = classify_failure(trial.record)
        return str(own.route), str(own.reason)
    if trial.started.card_digest is None:
        return "reference", NONE
    if trial.classification is None:
        return "undecided", NONE
    return str(trial.classification.route), str(trial.classification.reason)


def _utc(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def shown(cell: Cell) -> Cell:
    """What a reader of the file sees for a value that is not there."""
    return NOT_OBSERVED if cell is None else cell
