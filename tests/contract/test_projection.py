"""The rows that show a study: they agree with the fold of its entries, and a fault is never a number."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from experiments.classification import Classification
from experiments.comparison import Refusal
from experiments.ledger import (
    CardAdmitted,
    QualityEvaluated,
    StudyOpened,
    TrialFinished,
    TrialsClassified,
    TrialStarted,
)
from experiments.measurement import WindowKind
from experiments.study import fold
from experiments.trial import Reason, Route, Sent, Stage, Tier
from state.database import Database
from state.models import METADATA, METRIC_COLUMNS, STUDIES, TRIALS
from tests.factories import EVENING, a_card, a_fault, a_load, a_measurement, a_night, a_record, an_opening

NIGHT = a_night(settle_held=True)
STUDY = "night-1"
FIGURES = ("n_requests", "duration_s", "output_tok_s_per_card", "ttft_mean_s", "tpot_mean_ms", "e2e_mean_s")


@pytest.fixture
def night(sql_database: Database) -> Database:
    sql_database.ledger().append(STUDY, NIGHT, after=0)
    return sql_database


def test_every_trial_has_the_figures_of_its_window(night: Database) -> None:
    """A valid row shows the objective window at the formal load and the screening window at the screening load."""
    study = fold(NIGHT)
    rows = {row.trial_id: row for row in night.views().page(STUDY, limit=500).rows}
    assert set(study.trials) == set(rows)
    for trial_id, trial in study.trials.items():
        measurement = None if trial.record is None else trial.record.measurement
        if measurement is None:
            continue
        formal = trial.started.tier is not Tier.SCREENING and trial.started.load.requests == 640
        kind = WindowKind.NATIVE if formal else WindowKind.WHOLE
        window = measurement.window(kind)
        assert kind is rows[trial_id].window_kind
        assert [getattr(window, name) for name in FIGURES] == [getattr(rows[trial_id], name) for name in FIGURES]


def test_a_run_without_a_measurement_has_no_figure(night: Database) -> None:
    """Every failed trial of the night is in the list with its route and reason, and with no number at all."""
    study = fold(NIGHT)
    failed = {t for t, s in study.trials.items() if s.record is not None and s.record.failure is not None}
    rows = [row for row in night.views().page(STUDY, limit=500).rows if row.trial_id in failed]
    assert {row.trial_id for row in rows} == failed != set()
    for row in rows:
        assert row.state == "invalid"
        assert [getattr(row, name) for name in METRIC_COLUMNS] == [None] * len(METRIC_COLUMNS)
        assert row.route is not Route.PROMISING
    assert {Reason.INFEASIBLE, Reason.CONTRACT_MISMATCH, Reason.UNKNOWN_END} == {row.reason for row in rows}


def test_cards_and_kept_configurations_are_those_of_the_fold(night: Database) -> None:
    """The last word on each card, and each kept configuration whole."""
    study = fold(NIGHT)
    cards = {row.digest: row for row in night.views().cards(STUDY, limit=500)}
    assert set(study.cards) == set(cards)
    for digest, closed in study.closed.items():
        assert (closed.classification.route, closed.kept) == (cards[digest].route, cards[digest].kept)
    kept = night.views().kept(STUDY)
    assert [(k.name, k.config, k.trial_ids) for k in study.kept] == [(k.name, k.config, k.trial_ids) for k in kept]
    row = night.views().study(STUDY)
    assert row is not None
    assert (len(study.trials), len(study.kept), study.incumbent_card) == (row.trials, row.kept, row.incumbent_card)
    assert (study.position, study.last_at) == (row.position, row.last_at)


def test_an_evaluation_after_the_keep_reaches_the_row(night: Database) -> None:
    """The kept configuration says what its evaluation said, in the row as in the fold."""
    digest = fold(NIGHT).kept[0].card_digest
    entry = QualityEvaluated(at=EVENING, card_digest=digest, outcome="passed", detail="accuracy 0.91")
    night.ledger().append(STUDY, [entry], after=len(NIGHT))
    assert [k.quality for k in night.views().kept(STUDY)] == ["passed"]
    assert [k.quality for k in fold([*NIGHT, entry]).kept] == ["passed"]


def test_the_study_row_follows_holds_and_stops(sql_database: Database) -> None:
    """After each entry the row says what is held and whether the study stopped, as the fold does."""
    ledger, views = sql_database.ledger(), sql_database.views()
    for after, entry in enumerate(NIGHT):
        ledger.append(STUDY, [entry], after=after)
        study, row = fold(NIGHT[: after + 1]), views.study(STUDY)
        assert row is not None
        held = study.held_trial
        assert (held.started.trial_id if held else None) == row.held_trial_id
        assert (study.stopped.reason if study.stopped else None) == row.stop_reason
        unfinished = views.unfinished(STUDY)
        assert (study.open_trial is None) is (unfinished is None)
        if unfinished is not None:
            assert unfinished.state == ("held" if held else "running")


def _everything(database: Database) -> dict[str, list[tuple[object, ...]]]:
    with database._store.reading() as connection:
        return {
            table.name: [tuple(r) for r in connection.execute(sa.select(table).order_by(*table.primary_key))]
            for table in METADATA.sorted_tables
        }


def test_rebuilding_gives_the_same_rows(night: Database) -> None:
    """The projections hold nothing that the entries do not."""
    before = _everything(night)
    with night._store.writing() as connection:
        connection.execute(sa.update(TRIALS).where(TRIALS.c.state == "valid").values(tpot_mean_ms=1.0))
    assert before != _everything(night)
    night.ledger().rebuild(STUDY)
    assert before == _everything(night)


def _begin(database: Database) -> tuple[list[object], int]:
    card = a_card()
    entries = [
        an_opening(),
        CardAdmitted(at=EVENING, card=card),
        TrialStarted(
            at=EVENING,
            trial_id="t1",
            tier=Tier.SCREENING,
            card_digest=card.digest,
            config=card.config,
            load=a_load(320),
            why="screen",
        ),
    ]
    return [card], database.ledger().append(STUDY, entries, after=0)


def test_a_run_that_cannot_be_compared_loses_its_figures(sql_database: Database) -> None:
    """A measured run that turns out to be incomparable is a fault: its row keeps the reason and no number."""
    (card,), position = _begin(sql_database)
    ledger, views = sql_database.ledger(), sql_database.views()
    finished = TrialFinished(at=EVENING, record=a_record("t1", measurement=a_measurement(requests=320)))
    position = ledger.append(STUDY, [finished], after=position)
    row = views.trial("t1")
    assert row is not None
    assert row.output_tok_s_per_card is not None
    verdict = Classification(
        route=Route.ORCHESTRATION_FAULT,
        reason=Reason.EVIDENCE_INCOMPLETE,
        explanation="not comparable: the builds differ",
        refusal=Refusal(reasons=("the builds differ",)),
    )
    classified = TrialsClassified(
        at=EVENING, trial_ids=("t1",), tier=Tier.SCREENING, card_digest=card.digest, classification=verdict
    )
    ledger.append(STUDY, [classified], after=position)
    row = views.trial("t1")
    assert row is not None
    assert (row.state, row.reason) == ("invalid", Reason.EVIDENCE_INCOMPLETE)
    assert [None] * len(METRIC_COLUMNS) == [getattr(row, name) for name in METRIC_COLUMNS]


def test_a_phase_that_ended_by_faults_does_not_judge_its_valid_run(sql_database: Database) -> None:
    """Two faulted repeats make the phase a fault; the run that was measured before keeps its figures, unjudged."""
    (card,), position = _begin(sql_database)
    verdict = Classification(route=Route.ORCHESTRATION_FAULT, reason=Reason.TRANSPORT, explanation="lost twice")
    sql_database.ledger().append(
        STUDY,
        [
            TrialFinished(at=EVENING, record=a_record("t1", measurement=a_measurement(requests=320))),
            TrialsClassified(
                at=EVENING, trial_ids=("t1",), tier=Tier.SCREENING, card_digest=card.digest, classification=verdict
            ),
        ],
        after=position,
    )
    row = sql_database.views().trial("t1")
    assert row is not None
    assert (row.state, row.route) == ("valid", None)


@pytest.mark.parametrize("column", METRIC_COLUMNS)
@pytest.mark.parametrize("state", ["running", "held", "invalid"])
def test_the_schema_forbids_a_figure_in_a_row_that_is_not_valid(
    sql_database: Database, state: str, column: str
) -> None:
    """Not even a program that goes past the ledger can store a fault as a low throughput."""
    _begin(sql_database)
    with pytest.raises(sa.exc.IntegrityError), sql_database._store.writing() as connection:
        connection.execute(sa.update(TRIALS).values(state=state, **{column: 1}))


def test_the_schema_forbids_a_valid_fault(sql_database: Database) -> None:
    """A row is a fault or valid, never both."""
    _begin(sql_database)
    with pytest.raises(sa.exc.IntegrityError), sql_database._store.writing() as connection:
        connection.execute(sa.update(TRIALS).values(state="valid", route=Route.ORCHESTRATION_FAULT))


def test_forty_kinds_of_fault_leave_no_number(sql_database: Database) -> None:
    """Whatever stage fails for whatever reason, sent or not: the row has a reason and no figure."""
    ledger = sql_database.ledger()
    position = ledger.append(STUDY, [an_opening()], after=0)
    faults = [a_fault(stage, reason, sent) for stage in Stage for reason in list(Reason)[:11] for sent in Sent]
    for number, fault in enumerate(faults[::7]):
        trial = f"t{number}"
        start = TrialStarted(
            at=EVENING,
            trial_id=trial,
            tier=Tier.BASELINE,
            card_digest=None,
            config=a_card().parent,
            load=a_load(),
            why="baseline",
        )
        finish = TrialFinished(at=EVENING, record=a_record(trial, failure=fault))
        position = ledger.append(STUDY, [start, finish], after=position)
    rows = sql_database.views().page(STUDY, limit=500).rows
    assert len(rows) >= 40
    assert {None} == {getattr(row, name) for row in rows for name in METRIC_COLUMNS}
    assert {Route.ORCHESTRATION_FAULT} == {row.route for row in rows}


def test_the_opening_says_how_the_study_is_judged(sql_database: Database) -> None:
    """Objective, windows and simulation are in the row of the study."""
    opening = NIGHT[0]
    assert isinstance(opening, StudyOpened)
    sql_database.ledger().append(STUDY, [opening], after=0)
    with sql_database._store.reading() as connection:
        row = connection.execute(sa.select(STUDIES)).mappings().one()
    assert (
        row["objective_metric"],
        row["objective_window"],
        row["screening_window"],
        row["formal_requests"],
        row["simulated"],
    ) == ("output_tok_s_per_card", "native", "whole", 640, True)
