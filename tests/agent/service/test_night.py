"""A night without people, in virtual time: twelve hours, three pools, two services, and everything that happens."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from agent.entrypoints.audit import gather
from agent.workspace import Workspace
from experiments.card import Source
from experiments.control import Mode
from experiments.history import Forbidden, History, check_history
from experiments.ledger import (
    CardAdmitted,
    Finding,
    LedgerEntry,
    ProposalMade,
    TrialFinished,
    TrialResolved,
    TrialStarted,
)
from experiments.trial import Reason
from tests.agent.service.virtual_night import HOURS, VirtualNight, edits
from tests.agent.service.virtual_pool import LOAD_S, Machines
from tests.contract import postgres
from tests.factories import EVENING

ALPHA, BETA, GAMMA = "alpha", "beta", "gamma"
STUDIES = (ALPHA, BETA, GAMMA)
TAKEOVER_S = 120 + 60  # the lease of a service that is gone, and two ticks


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def night(request: pytest.FixtureRequest) -> Iterator[VirtualNight]:
    """One night on each kind of database; every claim below is about it."""
    memory = Path("/dev/shm")  # where there is one, a night of commits is not a night of disk flushes
    folder = Path(tempfile.mkdtemp(prefix="tuneloop-night-", dir=memory if memory.is_dir() else None))
    try:
        with pytest.MonkeyPatch.context() as patch, database(request.param, folder) as url:
            night = VirtualNight(folder, url)
            spend(night, patch)
            yield night
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/shared.db"
        return
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(f"no PostgreSQL: {reason}")
    with postgres.throwaway_server() as server:
        yield postgres.fresh_database(server, "night")


def spend(night: VirtualNight, patch: pytest.MonkeyPatch) -> None:
    night.wire(patch)
    night.add_study(ALPHA, timedelta(hours=8))
    night.add_study(BETA, timedelta(hours=12))
    night.add_study(GAMMA, timedelta(hours=12))
    night.add_service("one")
    night.add_service("two")
    arrange(night)
    night.run(12.0)


def arrange(night: VirtualNight) -> None:
    """What happens when."""
    night.at(0.5, lambda: night.direct(BETA, mode=Mode.PAUSE, by="ann", reason="a look at the machines"))
    night.at(0.9, lambda: night.direct(BETA, mode=Mode.RUN, by="ann", reason=""))
    night.at(1.3, lambda: lose_next_host(night))
    night.at(1.0, lambda: setattr(night.llm, "is_away", True))
    night.at(3.0, lambda: setattr(night.llm, "is_away", False))
    broken = night.folder / GAMMA / "state.yaml"
    night.at(2.5, lambda: broken.write_text("mode: run\nauthorized_until: tomorr"))
    night.at(2.8, lambda: broken.write_text(good_words()))
    night.at(3.5, lambda: night.freeze("one"))
    night.at(4.25, lambda: night.thaw("one"))
    night.at(5.0, lambda: lose_next_end(night))
    night.at(6.0, lambda: settle(night))
    night.at(7.0, lambda: night.freeze("two"))  # for good: it was killed
    longer = EVENING + timedelta(hours=12)
    night.at(9.0, lambda: night.direct(ALPHA, authorized_until=longer, by="bob", reason="extended"))


def good_words() -> str:
    until = (EVENING + timedelta(hours=12)).isoformat()
    return f"mode: run\nauthorized_until: {until}\nallow: [hot, restart]\nreason: repaired\nby: ann\n"


def lose_next_host(night: VirtualNight) -> None:
    """Reboot in the middle of a load."""
    wait_for_load(night, ALPHA).reboot()


def lose_next_end(night: VirtualNight) -> None:
    machines = wait_for_load(night, GAMMA)
    machines.loses.update(machines.running())


def wait_for_load(night: VirtualNight, pool: str) -> Machines:
    machines = night.machines[pool]
    for _ in range(60):
        if machines.running():
            return machines
        night.clock.sleep(30)
    raise AssertionError(f"no load ran on {pool} for half an hour")


def settle(night: VirtualNight) -> None:
    (trial,) = night.machines[GAMMA].loses
    entry = TrialResolved(
        at=night.clock.now(), trial_id=trial, finding=Finding.DEAD, by="ann", reason="no process on the host"
    )
    night.append(GAMMA, entry)


def seconds(at: datetime) -> float:
    return (at - EVENING).total_seconds()


def hours(entry: LedgerEntry) -> float:
    return seconds(entry.at) / HOURS


def forbidden(night: VirtualNight, study: str) -> list[Forbidden]:
    """From each word that a service recorded to the next: what the machines must not see begin."""
    spans = []
    words = night.words(study)
    ends = [seconds(word.at) for word in words[1:]] + [12 * HOURS]
    for word, end in zip(words, ends, strict=True):
        until = None if word.control is None else word.control.authorized_until
        lent_s = 0.0 if until is None else seconds(until)
        since = seconds(word.at) if word.mode != "run" else max(seconds(word.at), lent_s)
        spans.append(Forbidden(since=since, until=end, why=f"{word.mode} by {word.by}"))
    return [span for span in spans if span.since < span.until]


def history(night: VirtualNight, study: str) -> History:
    machines = night.machines[study]
    with night.record(study) as record:
        starts = tuple(load.trial_id for load in machines.loads)
        jobs = {machines.name: machines.jobs()}
        found = gather(Workspace(night.folder / study), record.database, record.study_id(), jobs, starts)
    return History(**{**vars(found), "forbidden": forbidden(night, study), "at_rest": True})


@pytest.mark.slow
@pytest.mark.timeout(300)
class TestNight:
    def test_no_thread_failed_and_the_night_was_whole(self, night: VirtualNight) -> None:
        """Twelve hours passed, and no job of any service ended with an error that it did not foresee."""
        assert (night.errors, round(night.clock.monotonic() / HOURS)) == ([], 12)

    @pytest.mark.parametrize("study", STUDIES)
    def test_the_history_is_clean(self, night: VirtualNight, study: str) -> None:
        """Ledger, journal, machines and clients agree: none of the ten invariants is violated."""
        assert check_history(history(night, study)) == ()

    @pytest.mark.parametrize("study", STUDIES)
    def test_every_study_worked_through_the_night(self, night: VirtualNight, study: str) -> None:
        """The change that helps was kept, and there was work in the first hours and in the last one."""
        found = night.study(study)
        finished = [seconds(e.at) / HOURS for e in night.entries(study) if isinstance(e, TrialFinished)]

        assert [found.cards[k.card_digest].draft.change.to_value for k in found.kept][:1] == [2]
        assert len(finished) > 20
        assert (min(finished) < 1, max(finished) > 11) == (True, True)

    def test_nothing_was_sent_twice(self, night: VirtualNight) -> None:
        """The machines' own counter: one start per trial, although its service changed twice."""
        for machines in night.machines.values():
            started = [load.trial_id for load in machines.loads]
            assert len(started) == len(set(started))

    def test_every_word_of_an_operator_is_recorded(self, night: VirtualNight) -> None:
        """Who, when and what, in order; also what could not be followed."""
        assert edits(night.words(BETA)) == [
            ("run", "evening", ""),
            ("pause", "ann", "a look at the machines"),
            ("run", "ann", ""),
        ]
        assert [(w.mode, w.by) for w in night.words(GAMMA)] == [
            ("run", "evening"),
            ("pause", "tuneloop"),
            ("run", "ann"),
        ]

    def test_the_lease_end_of_one_pool_stops_it_and_its_extension_goes_on(self, night: VirtualNight) -> None:
        """On the pool that was lent for eight hours nothing begins that would end later; at nine it goes on."""
        starts = [load.began_s / HOURS for load in night.machines[ALPHA].loads]

        assert [s for s in starts if 8 - LOAD_S / HOURS <= s < 9] == []
        assert max(starts) > 9

    def test_a_reboot_is_a_fault_without_a_number(self, night: VirtualNight) -> None:
        """The load that died with its host is a fault of the environment; its trial has no measurement."""
        faults = [t.record for t in night.study(ALPHA).trials.values() if t.record and t.record.failure]

        assert [(r.failure.reason, r.measurement) for r in faults if r.failure] == [(Reason.ENVIRONMENT, None)]

    def test_an_outage_of_the_llm_costs_nothing_but_its_proposals(self, night: VirtualNight) -> None:
        """Its failures are recorded, cards are admitted all the same, and it is asked again afterwards."""
        entries = [entry for study in STUDIES for entry in night.entries(study)]
        failed = [hours(entry) for entry in entries if isinstance(entry, ProposalMade) and entry.failure]
        admitted = [(hours(entry), entry.card.draft.source) for entry in entries if isinstance(entry, CardAdmitted)]

        assert failed
        assert all(1 <= at <= 3 for at in failed)
        assert {source for at, source in admitted if 1 <= at <= 3} <= {Source.RULES, Source.OPTIMIZER}
        assert any(1 <= at <= 3 for at, _ in admitted)
        assert any(at > 3 and source is Source.LLM for at, source in admitted)

    def test_an_unknown_end_stops_its_own_pool_only(self, night: VirtualNight) -> None:
        """Nothing began there until a person had settled it; the other pools worked on."""
        (trial,) = night.machines[GAMMA].loses
        entries = night.entries(GAMMA)
        held = next(seconds(e.at) for e in entries if e.kind == "trial_held")
        between = {
            name: [load for load in machines.loads if held < load.began_s < 6 * HOURS]
            for name, machines in night.machines.items()
        }

        assert between[GAMMA] == []
        assert between[BETA]
        assert night.study(GAMMA).trials[trial].record is not None

    def test_the_other_service_takes_over_within_the_lease(self, night: VirtualNight) -> None:
        """A frozen service is replaced, learns that it was, and takes the studies back when the other one is killed."""
        for gone_at in (3.5, 7.0):
            for study in (BETA, GAMMA):
                waited = first_sign(night, study, gone_at * HOURS + 1)
                assert waited < TAKEOVER_S + LOAD_S, f"{study} after {gone_at} h: {waited:.0f} s"
        owners = {line.split()[0] for line in night.lines if "trial" in line}
        assert owners == {"one", "two"}


def first_sign(night: VirtualNight, study: str, after_s: float) -> float:
    """How long until the next row of the journal."""
    with night.record(study) as record:
        journal = record.database.journal(night.clock.now)
        trials = [e.trial_id for e in night.entries(study) if isinstance(e, TrialStarted)]
        times = [seconds(row.began) for trial in trials for row in journal.rows(trial)]
    return min(at for at in times if at > after_s) - after_s


def test_this_module_needs_no_machine(tmp_path: Path) -> None:
    """The pools of the night are tables: no host is named that could be reached."""
    night = VirtualNight(tmp_path, f"sqlite:///{tmp_path}/x.db")
    workspace = night.add_study(ALPHA, timedelta(hours=1))
    assert workspace.pool_file.exists()
