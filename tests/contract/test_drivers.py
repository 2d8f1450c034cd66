"""Who drives a study: one process at a time, and none that was replaced. In memory and in each database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from experiments.trial import Stage, evaluation_id
from state.errors import DriverRefused
from tests.contract.conftest import AnyDatabase, Clock
from tests.factories import a_night

NIGHT = a_night()
STUDY = "night-1"
TTL = timedelta(seconds=30)


def test_a_live_lease_keeps_others_out(database: AnyDatabase, clock: Clock) -> None:
    """Another service is told who drives the study and for how long."""
    drivers = database.drivers(clock)
    drivers.acquire(STUDY, "service-a", TTL)
    clock.advance(10)
    with pytest.raises(DriverRefused, match="driven by service-a for another 20 s"):
        drivers.acquire(STUDY, "service-b", TTL)


def test_an_expired_lease_is_taken_over_with_a_new_epoch(database: AnyDatabase, clock: Clock) -> None:
    """Within its time to live after a kill, another service goes on."""
    drivers = database.drivers(clock)
    first = drivers.acquire(STUDY, "service-a", TTL)
    clock.advance(30)
    assert first + 1 == drivers.acquire(STUDY, "service-b", TTL)
    current = drivers.current(STUDY)
    assert current is not None
    assert ("service-b", first + 1) == (current.owner, current.epoch)


def test_the_same_owner_comes_back_at_once_and_fences_its_past(database: AnyDatabase, clock: Clock) -> None:
    """A restarted service need not wait for its own lease, and what is left of its former life writes nothing."""
    drivers = database.drivers(clock)
    past = drivers.acquire(STUDY, "service-a", TTL)
    present = drivers.acquire(STUDY, "service-a", TTL)
    assert past < present
    with pytest.raises(DriverRefused):
        database.ledger(past).append(STUDY, NIGHT, after=0)
    assert len(NIGHT) == database.ledger(present).append(STUDY, NIGHT, after=0)


def test_renewing_extends_from_now(database: AnyDatabase, clock: Clock) -> None:
    """A renewed lease keeps others out beyond its first end."""
    drivers = database.drivers(clock)
    epoch = drivers.acquire(STUDY, "service-a", TTL)
    clock.advance(20)
    drivers.renew(STUDY, epoch, TTL)
    clock.advance(20)
    with pytest.raises(DriverRefused):
        drivers.acquire(STUDY, "service-b", TTL)


def test_released_is_free_at_once(database: AnyDatabase, clock: Clock) -> None:
    """After a release another service may drive, and the released epoch is spent."""
    drivers = database.drivers(clock)
    epoch = drivers.acquire(STUDY, "service-a", TTL)
    drivers.release(STUDY, epoch)
    assert drivers.current(STUDY) is None
    with pytest.raises(DriverRefused):
        database.ledger(epoch).append(STUDY, NIGHT, after=0)
    assert drivers.acquire(STUDY, "service-b", TTL) > epoch


def test_a_replaced_driver_can_do_nothing(database: AnyDatabase, clock: Clock) -> None:
    """A process that slept through its lease cannot append, journal, claim a send, renew or release."""
    drivers = database.drivers(clock)
    old = drivers.acquire(STUDY, "service-a", TTL)
    position = database.ledger(old).append(STUDY, NIGHT, after=0)
    trial = next(e.trial_id for e in NIGHT if e.kind == "trial_started")
    database.journal(clock, old).begin(trial, Stage.MEASURE, 1, {})
    clock.advance(31)
    new = drivers.acquire(STUDY, "service-b", TTL)

    journal = database.journal(clock, old)
    for attempt in (
        lambda: database.ledger(old).append(STUDY, NIGHT[-1:], after=position),
        lambda: journal.begin(trial, Stage.MEASURE, 2, {}),
        lambda: journal.end(trial, Stage.MEASURE, 1, "done", {}),
        lambda: journal.claim_formal_send(trial, "j1", "p0"),
        lambda: drivers.renew(STUDY, old, TTL),
        lambda: drivers.release(STUDY, old),
    ):
        with pytest.raises(DriverRefused):
            attempt()
    assert position == database.ledger().position(STUDY)
    assert [r.outcome for r in journal.rows(trial)] == [None]
    assert journal.formal_send(trial) is None
    database.journal(clock, new).end(trial, Stage.MEASURE, 1, "done", {})


def test_an_expired_lease_that_nobody_took_still_counts(database: AnyDatabase, clock: Clock) -> None:
    """Clocks begin takeovers, they do not refuse writes: a late driver that is still the only one goes on."""
    drivers = database.drivers(clock)
    epoch = drivers.acquire(STUDY, "service-a", TTL)
    clock.advance(300)
    database.ledger(epoch).append(STUDY, NIGHT, after=0)
    drivers.renew(STUDY, epoch, TTL)
    assert drivers.current(STUDY) is not None


def test_a_trial_that_no_ledger_started_cannot_be_worked_on(database: AnyDatabase, clock: Clock) -> None:
    """With an epoch, a stage begins only for a trial of the study that this process drives."""
    epoch = database.drivers(clock).acquire(STUDY, "service-a", TTL)
    with pytest.raises(DriverRefused, match="no ledger has started it"):
        database.journal(clock, epoch).begin("stray", Stage.CHECK, 1, {})


def test_an_evaluation_belongs_to_the_study_that_it_is_named_after(database: AnyDatabase, clock: Clock) -> None:
    """Its stages are written by the driver of that study, and by nobody for a study that does not exist."""
    epoch = database.drivers(clock).acquire(STUDY, "service-a", TTL)
    database.ledger(epoch).append(STUDY, NIGHT, after=0)
    journal = database.journal(clock, epoch)
    journal.begin(evaluation_id(STUDY, 1), Stage.EVALUATE, 1, {})
    assert [row.stage for row in journal.rows(evaluation_id(STUDY, 1))] == [Stage.EVALUATE]
    with pytest.raises(DriverRefused, match="no ledger has started it"):
        journal.begin(evaluation_id("another-study", 1), Stage.EVALUATE, 1, {})


def test_studies_have_their_own_drivers(database: AnyDatabase, clock: Clock) -> None:
    """Two services on one database drive two studies."""
    drivers = database.drivers(clock)
    drivers.acquire(STUDY, "service-a", TTL)
    drivers.acquire("night-2", "service-b", TTL)
    assert [d.owner for s in (STUDY, "night-2") if (d := drivers.current(s))] == ["service-a", "service-b"]
