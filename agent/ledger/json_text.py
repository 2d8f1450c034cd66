"""`experiments.json`: the facts of the CSV and the cards with their verdicts, for programs. null = not observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import orjson

from agent.ledger.history import Attempt, History
from agent.ledger.rows import trial_rows
from experiments.card import Card
from experiments.ledger import StudyReopened
from experiments.loop_figures import summarise_loop

Redact = Callable[[str], str]
SCHEMA = 1


def json_text(history: History, redact: Redact) -> str:
    opened, study = history.study.opened, history.study
    document = {
        "schema_version": SCHEMA,
        "missing": "null means NOT_OBSERVED; it is never filled in from another field",
        "simulated": opened.simulated,
        "study_id": opened.study_id,
        "pool": opened.pool,
        "cards_divisor": opened.cards,
        "as_of": study.last_at.isoformat(),
        "scenario_digest": opened.scenario_digest,
        "goal": opened.goal.model_dump(mode="json"),
        "starting": dict(opened.starting.settings),
        "kept": [entry.model_dump(mode="json") for entry in study.kept],
        "stopped": None if study.stopped is None else study.stopped.model_dump(mode="json"),
        "reopened": [e.model_dump(mode="json") for e in history.entries if isinstance(e, StudyReopened)],
        "held": None if study.held_trial is None else study.held_trial.started.trial_id,
        "cards": [_card(attempt) for attempt in history.attempts],
        "rejected": [entry.model_dump(mode="json") for entry in study.rejected],
        "faults": [
            {"trial": i.trial.started.trial_id, "ended_trial": i.ended_trial, **i.fault.model_dump(mode="json")}
            for i in history.incidents()
        ],
        "stage_seconds": {str(cost.stage): cost.seconds for cost in history.stage_costs},
        "loop": asdict(summarise_loop(history.study, history.entries)),
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    rows = [{k: redact(v) if isinstance(v, str) else v for k, v in row.items()} for row in trial_rows(history)]
    whole = _redacted(document, redact) | {"experiments": rows}
    return orjson.dumps(whole, option=options).decode() + "\n"


def _card(attempt: Attempt) -> dict[str, object]:
    card: Card = attempt.card
    return {
        "name": attempt.name,
        "digest": card.digest,
        "number": card.number,
        "parent_fingerprint": card.parent_fingerprint,
        "cost": str(card.cost),
        "alters_numerics": card.alters_numerics,
        "draft": card.draft.model_dump(mode="json"),
        "admitted_at": attempt.admitted_at.isoformat(),
        "trials": [trial.started.trial_id for trial in attempt.trials],
        "phases": {str(tier): phase.classification.model_dump(mode="json") for tier, phase in attempt.phases.items()},
        "closed": None if attempt.closed is None else attempt.closed.model_dump(mode="json"),
        "kept": attempt.kept is not None,
    }


def _redacted(document: dict[str, object], redact: Redact) -> dict[str, object]:
    return {redact(key): _redacted_part(part, redact) for key, part in document.items()}


def _redacted_part(value: object, redact: Redact) -> object:
    match value:
        case str():
            return redact(value)
        case dict():
            return {redact(str(key)): _redacted_part(item, redact) for key, item in value.items()}
        case list() | tuple():
            return [_redacted_part(item, redact) for item in value]
        case _:
            return value
