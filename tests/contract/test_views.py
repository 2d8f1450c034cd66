"""Read models: pages cut by position, filters, tallies, stage times; the same on each database."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from experiments.ledger import StopReason, StudyReopened, StudyStopped, TrialFinished
from experiments.study import fold
from experiments.trial import Artifact, Route, Stage, Tier
from state.database import Database
from state.views import Pulse
from tests.contract.conftest import Clock
from tests.factories import a_night, an_opening

NIGHT = a_night(settle_held=True)
STUDY = "night-1"


@pytest.fixture
def night(sql_database: Database) -> Database:
    sql_database.ledger().append(STUDY, NIGHT, after=0)
    return sql_database


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
def test_pages_give_every_trial_once_newest_first(night: Database, limit: int) -> None:
    """Following `before` walks the whole list, whatever the size of a page."""
    views, seen, before = night.views(), [], None
    while True:
        page = views.page(STUDY, before=before, limit=limit)
        seen += [row.trial_id for row in page.rows]
        before = page.before
        if before is None:
            break
    assert list(reversed(fold(NIGHT).trials)) == seen
    assert len(seen) == page.total


def test_a_page_does_not_move_while_trials_are_added(night: Database) -> None:
    """A reader who turns the page after new trials came in neither misses nor repeats one."""
    views = night.views()
    first = views.page(STUDY, limit=4)
    others = views.page(STUDY, before=first.before, limit=4)
    assert first.rows[-1].position > others.rows[0].position
    assert not {r.trial_id for r in first.rows} & {r.trial_id for r in others.rows}


def test_filters_keep_only_what_was_asked_for(night: Database) -> None:
    """By route and by tier."""
    views = night.views()
    everything = views.page(STUDY, limit=500).rows
    for route in Route:
        assert [r for r in everything if r.route is route] == list(views.page(STUDY, limit=500, route=route).rows)
    for tier in Tier:
        assert [r for r in everything if r.tier is tier] == list(views.page(STUDY, limit=500, tier=tier).rows)


def test_a_row_names_its_card_and_its_change(night: Database) -> None:
    """Values keep their types: 2 is a number, "1" a text."""
    study = fold(NIGHT)
    for row in night.views().page(STUDY, limit=500).rows:
        if row.card_digest is None:
            assert (row.card_name, row.to_value) == (None, None)
            continue
        card = study.cards[row.card_digest]
        change = card.draft.change
        assert (card.name, change.name, change.from_value, change.to_value) == (
            row.card_name,
            row.knob,
            row.from_value,
            row.to_value,
        )
        assert type(change.to_value) is type(row.to_value)


def test_the_tally_counts_routes_and_reasons(night: Database) -> None:
    """It adds up to the list."""
    rows = night.views().page(STUDY, limit=500).rows
    expected = Counter((r.route, r.reason) for r in rows if r.route is not None)
    assert dict(expected) == dict(night.views().tally(STUDY))


def test_studies_are_listed_by_their_last_entry(night: Database) -> None:
    """The one that something happened in last comes first."""
    older = an_opening().model_copy(update={"study_id": "night-0"})
    night.ledger().append("night-0", [older], after=0)
    assert [s.id for s in night.views().studies()] == ["night-1", "night-0"]
    assert night.views().study("night-9") is None


def test_artifacts_are_those_of_the_record(night: Database) -> None:
    """Names, hashes and sizes, by name."""
    finished = next(e for e in NIGHT if isinstance(e, TrialFinished))
    expected: list[Artifact] = sorted(finished.record.artifacts, key=lambda a: a.name)
    assert expected == list(night.views().artifacts(finished.record.trial_id))


def test_stage_times_are_of_the_latest_that_ended_well(night: Database, clock: Clock) -> None:
    """A stage that failed or still runs says nothing about how long it takes."""
    trial = night.views().page(STUDY, limit=1).rows[0].trial_id
    journal = night.journal(clock)
    for attempt, (outcome, seconds) in enumerate((("transport", 60), ("done", 30.5), ("done", 31.5)), start=1):
        journal.begin(trial, Stage.LAUNCH, attempt, {})
        clock.advance(seconds)
        journal.end(trial, Stage.LAUNCH, attempt, outcome, {})
    journal.begin(trial, Stage.READY, 1, {})
    assert night.views().stage_seconds(STUDY) == {Stage.LAUNCH: [31.5, 30.5]}


def test_the_pulse_changes_with_every_event(sql_database: Database, clock: Clock) -> None:
    """Each append and each stage that begins or ends is seen."""
    views = sql_database.views()
    assert Pulse(0, 0, 0) == views.pulse(STUDY)
    upto = next(n for n, e in enumerate(NIGHT, start=1) if e.kind == "trial_started")
    sql_database.ledger().append(STUDY, NIGHT[:upto], after=0)
    trial = views.page(STUDY).rows[0].trial_id
    pulses = [views.pulse(STUDY)]
    journal = sql_database.journal(clock)
    journal.begin(trial, Stage.CHECK, 1, {})
    pulses.append(views.pulse(STUDY))
    journal.end(trial, Stage.CHECK, 1, "done", {})
    pulses.append(views.pulse(STUDY))
    assert [Pulse(upto, 0, 0), Pulse(upto, 1, 0), Pulse(upto, 1, 1)] == pulses


def test_budgets_count_from_the_last_reopening(night: Database, clock: Clock) -> None:
    """None before the first; then when it was, and how many trials had begun."""
    views, ledger = night.views(), night.ledger()
    assert views.reopened(STUDY) is None
    begun = sum(entry.kind == "trial_started" for entry in NIGHT)
    stop = StudyStopped(at=clock(), reason=StopReason.NO_CANDIDATE, detail="enough")
    for _ in range(2):
        clock.advance(60)
        at = clock()
        ledger.append(STUDY, [stop, StudyReopened(at=at, by="ops", reason="more")], after=ledger.position(STUDY))
        assert views.reopened(STUDY) == (at, begun)


def test_an_unknown_study_is_an_empty_page(sql_database: Database) -> None:
    """Asking for what is not there is not an error."""
    views = sql_database.views()
    page = views.page("nobody")
    assert (page.rows, page.total, page.before) == ((), 0, None)
    assert views.trial("nothing") is None
    assert views.unfinished("nobody") is None
    assert views.kept("nobody") == ()
    assert views.reopened("nobody") is None


def test_retention_spares_what_stands_behind_a_kept_configuration(night: Database, clock: Clock) -> None:
    """Files of old trials are offered oldest first, but never those of the runs that a keep rests on."""
    retention = night.retention(clock)
    offered = retention.removable(NIGHT[-1].at + timedelta(days=1))
    behind = {trial for kept in fold(NIGHT).kept for trial in kept.trial_ids}
    finished = [t for t, s in fold(NIGHT).trials.items() if s.record is not None and s.record.artifacts]
    assert list(dict.fromkeys(trial for trial, _ in offered)) == [t for t in finished if t not in behind]
    assert list(retention.removable(NIGHT[0].at)) == []


def test_what_was_removed_is_not_offered_again(night: Database, clock: Clock) -> None:
    """The removal is on record, and the hash stays."""
    retention, later = night.retention(clock), NIGHT[-1].at + timedelta(days=1)
    trial, first = retention.removable(later)[0]
    retention.mark_removed(trial, [first.name])
    assert (trial, first) not in retention.removable(later)
    assert first not in night.views().artifacts(trial)
    night.ledger().verify(STUDY)
