"""Everything that ends a study or lets it wait, one row each: a real session on a pool in virtual time.

Ledger, graph, authority, control file and status file are the product's. A row says what happens, how the study stands
then, what the operator is told, and whether the machines may be taken; after it, two more hours start nothing.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agent.bootstrap import Application, Surroundings, open_application
from agent.disk import disk_refusal
from agent.nodes import Tell
from agent.notices import Notices
from agent.service.service_file import Window
from agent.service.windows import NightWindows
from agent.session import Phase, Standing, StudySession
from agent.settings import Settings
from agent.status_report import read_report, read_told
from executor.trial_context import Report
from experiments.card import Source
from experiments.control import Mode, Only
from experiments.knob import Cost
from experiments.ledger import CardAdmitted, ConfigurationKept, ProposalMade
from experiments.trial import Reason
from tests.agent.service.virtual_night import KNOBS, Silence, VirtualNight
from tests.agent.service.virtual_pool import LOAD_S, Machines
from tests.factories import EVENING

STUDY = "alpha"
LEASE_S = 2 * 3600.0
ONE_KNOB = "knobs:\n  - {role: prefill, flag: prefill-max-requests, values: [1, 2], cost: restart}\n"


@dataclass
class Desk:
    """One study, its machines, and what was told."""

    night: VirtualNight
    grounds: list[Callable[[], str | None]] = field(default_factory=list)

    @property
    def machines(self) -> Machines:
        return self.night.machines[STUDY]

    @property
    def root(self) -> Path:
        return self.night.folder / STUDY

    def say(self, **words: object) -> Callable[[], None]:
        return lambda: self.night.direct(STUDY, **words)

    def open(self) -> StudySession:
        around = Surroundings(
            clock=self.night.clock,
            database_url=self.night.database_url,
            keeps_rights=True,
            grounds=(lambda: next((why for why in (ground() for ground in self.grounds) if why), None),),
        )

        def opened(report: Report, tell: Tell) -> Application:
            return open_application(self.root, Settings(), report=report, tell=tell, around=around)

        return StudySession(opened, Silence(self.night.lines, STUDY), Notices())


@dataclass(frozen=True, kw_only=True)
class Row:
    """`told`: why it stands so, in a line that the operator is told and in status.yaml. `free`: safe to take."""

    phase: Phase
    told: str
    arrange: Callable[[Desk], object] = lambda desk: None
    goal: Mapping[str, str] = field(default_factory=dict)
    leaves: bool = False
    free: bool
    loads: int | None = None  # that were started; None: some
    said: str = ""  # further words
    later: str = ""  # what the status file says two hours later, where that is something else


def at_load(number: int, *happens: Callable[[Desk], Callable[[], None]]) -> Callable[[Desk], object]:
    def arrange(desk: Desk) -> None:
        desk.machines.at_start[number] = lambda: [make(desk)() for make in happens] and None

    return arrange


def now(**words: object) -> Callable[[Desk], object]:
    return lambda desk: desk.say(**words)()


def then(**words: object) -> Callable[[Desk], Callable[[], None]]:
    return lambda desk: desk.say(**words)


def lose(desk: Desk) -> Callable[[], None]:
    return lambda: desk.machines.loses.update(desk.machines.running())


def reboots(desk: Desk) -> None:
    desk.machines.at_start = dict.fromkeys(range(1, 9), desk.machines.reboot)


def grows_slower(desk: Desk) -> None:
    desk.machines.speed = lambda seconds: 1.0 if seconds < 4.5 * 3600 else 0.8


def asks_the_model(*, tokens: int = 0, cost: float | None = None) -> Callable[[Desk], object]:
    def arrange(desk: Desk) -> None:
        desk.night.llm.tokens, desk.night.llm.cost = tokens, cost

    return arrange


def writes(text: str) -> Callable[[Desk], object]:
    return lambda desk: (desk.root / "state.yaml").write_text(text)


def stands_against(ground: Callable[[Desk], str | None]) -> Callable[[Desk], object]:
    return lambda desk: desk.grounds.append(lambda: ground(desk))


def outside_the_night(desk: Desk) -> str | None:
    windows = NightWindows([Window(start="0 3 * * *", hours=1)], ZoneInfo("UTC"))
    return windows.refusal(EVENING)


LUNCH = {"by": "ann", "reason": "lunch"}
WAITS, HELD, ENDED = Phase.WAITING, Phase.HELD, Phase.ENDED

TABLE: dict[str, Row] = {
    "pause": Row(
        arrange=now(mode=Mode.PAUSE, **LUNCH),
        phase=WAITS,
        told="mode is pause, said by ann (lunch)",
        free=True,
        loads=0,
    ),
    "pause in a load": Row(
        arrange=at_load(1, then(mode=Mode.PAUSE, **LUNCH)),
        phase=WAITS,
        told="mode is pause, said by ann (lunch)",
        free=False,
        loads=1,
    ),
    "drain in a load": Row(
        arrange=at_load(2, then(mode=Mode.DRAIN, **LUNCH)),
        phase=WAITS,
        leaves=True,
        told="mode is drain, said by ann (lunch)",
        said="the machines are free: no server of ours runs",
        free=True,
        loads=2,
    ),
    "stop in a load": Row(
        arrange=at_load(1, then(mode=Mode.STOP, **LUNCH)),
        phase=WAITS,
        leaves=True,
        told="mode is stop, said by ann (lunch)",
        said="the machines are free: no server of ours runs",
        free=True,
        loads=1,
    ),
    "a state file that cannot be followed": Row(
        arrange=writes("mode: rnu\nby: ann\n"),
        phase=WAITS,
        told="state.yaml:1:7",
        free=True,
        loads=0,
    ),
    "no state file": Row(
        arrange=lambda desk: (desk.root / "state.yaml").unlink(),
        phase=WAITS,
        told="state.yaml cannot be read: No such file",
        free=True,
        loads=0,
    ),
    "lease end, nothing fits before it": Row(
        arrange=now(authorized_until=EVENING + timedelta(minutes=10)),
        phase=WAITS,
        told="and the authorization ends in 0:10:00",
        later="the authorization ended at",
        free=True,
        loads=0,
    ),
    "lease end in the night": Row(
        arrange=now(authorized_until=EVENING + timedelta(seconds=LEASE_S)),
        phase=WAITS,
        told="and the authorization ends in",
        later="the authorization ended at",
        free=False,
    ),
    "lease ended": Row(
        arrange=now(authorized_until=EVENING - timedelta(hours=1)),
        phase=WAITS,
        told="the authorization ended at",
        free=True,
        loads=0,
    ),
    "machines are not lent": Row(
        arrange=now(authorized_until=None),
        phase=WAITS,
        told="authorized_until is not set",
        free=True,
        loads=0,
    ),
    "a cost that nobody allowed": Row(
        arrange=now(allow=(Cost.HOT,)),
        phase=WAITS,
        told="a start with cost restart is not in `allow`",
        free=False,
        loads=0,
    ),
    "only a card that there is not": Row(
        arrange=now(only=Only(card="c77")),
        phase=WAITS,
        told="only card c77 may run",
        free=False,
        loads=0,
    ),
    "outside the night window": Row(
        arrange=stands_against(outside_the_night),
        phase=WAITS,
        told="outside the hours in which trials may start; the next begin",
        free=False,
        loads=0,
    ),
    "disk nearly full": Row(
        arrange=stands_against(lambda desk: disk_refusal(desk.root, 1e9)),
        phase=WAITS,
        told="the disk of the workspace is nearly full",
        free=False,
        loads=0,
    ),
    "unknown end": Row(
        arrange=at_load(2, lose),
        phase=HELD,
        told="is unknown: the host does not say how it ended",
        said="tuneloop resolve",
        free=False,
        loads=2,
    ),
    "goal reached": Row(
        goal={"trials: 400": "trials: 400, stop_at_target: true"},
        phase=ENDED,
        told="the goal asks > 230 tok/s/card",
        free=True,
    ),
    "budget of trials": Row(
        goal={"trials: 400": "trials: 3"},
        phase=ENDED,
        told="budget_trials: 3 trials were run",
        free=True,
        loads=3,
    ),
    "budget of hours": Row(
        goal={"hours: 24": "hours: 1"},
        phase=ENDED,
        told="of 1 hours are used",
        free=True,
    ),
    "budget of tokens": Row(
        goal={"trials: 400": "trials: 14", "llm_tokens: 2000000": "llm_tokens: 100"},
        arrange=asks_the_model(tokens=150),
        phase=ENDED,
        told="budget_trials: 14 trials were run",
        said="the budget for the language model is used up; rules and optimizer go on proposing",
        free=True,
        loads=14,
    ),
    "budget of cost": Row(
        goal={"trials: 400": "trials: 14", "llm_tokens: 2000000": "llm_tokens: 2000000, llm_cost: 0.5"},
        arrange=asks_the_model(tokens=1, cost=0.6),
        phase=ENDED,
        told="budget_trials: 14 trials were run",
        said="the budget for the language model is used up; rules and optimizer go on proposing",
        free=True,
        loads=14,
    ),
    "budget of tokens, no night without a model": Row(
        goal={"trials: 400": "trials: 400, stop_without_model: true", "llm_tokens: 2000000": "llm_tokens: 100"},
        arrange=asks_the_model(tokens=150),
        phase=ENDED,
        told="of 100 tokens are used",
        free=True,
    ),
    "budget of cost, no night without a model": Row(
        goal={
            "trials: 400": "trials: 400, stop_without_model: true",
            "llm_tokens: 2000000": "llm_tokens: 2000000, llm_cost: 0.5",
        },
        arrange=asks_the_model(tokens=1, cost=0.6),
        phase=ENDED,
        told="of 0.5 are spent on the model",
        free=True,
    ),
    "no candidate": Row(
        goal={KNOBS: ONE_KNOB},
        phase=ENDED,
        told="no_candidate: no proposer has a candidate that may run",
        free=True,
    ),
    "patience": Row(
        goal={"trials: 400": "trials: 400, patience: 1"},
        phase=ENDED,
        told="no_candidate: 1 cards in a row brought no gain",
        free=True,
    ),
    "a baseline that fails": Row(
        arrange=reboots,
        phase=ENDED,
        told="baseline_failed: the baseline failed 2 times in a row at N=640",
        free=True,
        loads=2,
    ),
    "drift": Row(
        goal={"screening: {requests: 320}": "screening: {requests: 320}\nsentinel: {cards: 1, drifts: 0}"},
        arrange=grows_slower,
        phase=ENDED,
        told="drift: the incumbent does not hold still: -2",
        free=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Spent:
    """A row that was played: how the study stood at once and two hours later, and what was to be read then."""

    desk: Desk
    first: Standing
    last: Standing
    loads: int  # that were started at first
    told: Mapping[str, object]
    may_take: bool

    @property
    def night(self) -> VirtualNight:
        return self.desk.night


def play(row: Row, folder: Path, patch: pytest.MonkeyPatch) -> Spent:
    night = VirtualNight(folder, f"sqlite:///{folder}/shared.db")
    night.wire(patch)
    night.clock.enter()  # this thread alone moves the time
    night.add_study(STUDY, timedelta(hours=48), row.goal)
    desk = Desk(night)
    row.arrange(desk)
    session = desk.open()
    try:
        first = session.go_on()
        loads = len(desk.machines.loads)
        last = stand(desk, session, first)
        told = read_told(session.app.workspace.status_file, session.study.study_id)
        may_take, _ = read_report(session.app.record, night.clock.now()).may_take
    finally:
        session.close()
    return Spent(desk=desk, first=first, last=last, loads=loads, told=told, may_take=may_take)


def stand(desk: Desk, session: StudySession, standing: Standing) -> Standing:
    """Two hours of what `run` and `serve` do: look, and go on whenever something is due."""
    for _ in range(4):
        desk.night.clock.sleep(1800)
        if session.is_due():
            standing = session.go_on()
    return standing


Played = Callable[[str], Spent]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Each row is played once."""

    @functools.cache
    def one(name: str) -> Spent:
        memory = Path("/dev/shm")
        folder = Path(tempfile.mkdtemp(dir=memory)) if memory.is_dir() else tmp_path_factory.mktemp("row")
        folders.append(folder)
        with pytest.MonkeyPatch.context() as patch:
            return play(TABLE[name], folder, patch)

    folders: list[Path] = []
    yield one
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", TABLE)
def test_stop_condition(name: str, played: Played) -> None:
    """One row: how the study stands, what is told and written, whether the machines are free, and nothing after it."""
    row, spent = TABLE[name], played(name)
    told, lines = spent.told, spent.night.lines

    assert (row.phase, row.leaves) == (spent.first.phase, spent.first.leaves) == (spent.last.phase, spent.last.leaves)
    assert row.told in spent.first.why
    assert any(row.told in line for line in lines)
    assert any(row.said in line for line in lines)
    assert (row.later or row.told) in f"{told['waiting']} {told['next']}"
    assert row.free == told["safe_to_take"] == spent.may_take
    assert len(spent.desk.machines.loads) == spent.loads == (row.loads if row.loads is not None else spent.loads)
    assert (spent.loads > 0) is (row.loads != 0)


def test_a_stopped_load_is_a_fault_without_a_number(played: Played) -> None:
    """Cancelled minutes after the word, not at its end; whether it was whole is not known."""
    spent = played("stop in a load")
    (trial,) = spent.night.study(STUDY).trials.values()

    assert trial.record is not None
    assert trial.record.failure is not None
    assert (trial.record.failure.reason, trial.record.measurement) == (Reason.CANCELLED, None)
    assert min(spent.desk.machines.cancelled.values()) < spent.desk.machines.loads[0].began_s + LOAD_S


def test_no_load_reaches_beyond_the_lease(played: Played) -> None:
    """What was started before the end of the lease was over before it."""
    loads = played("lease end in the night").desk.machines.loads

    assert loads
    assert max(load.began_s for load in loads) + LOAD_S <= LEASE_S


@pytest.mark.parametrize("name", ["budget of tokens", "budget of cost"])
def test_a_spent_budget_of_the_model_ends_its_questions_only(name: str, played: Played) -> None:
    """One turn of the model took more than there was: it was the last; the next cards are by the others."""
    entries = played(name).night.entries(STUDY)
    asked = [e.at for e in entries if isinstance(e, ProposalMade) and e.source is Source.LLM]
    later = [e.card.draft.source for e in entries if isinstance(e, CardAdmitted) and e.at > asked[0]]

    assert len(set(asked)) == 1
    assert later
    assert Source.LLM not in later


def test_drift_keeps_nothing(played: Played) -> None:
    """From the first run in doubt to the stop nothing is kept, and no new card is begun."""
    night = played("drift").night
    entries, study = night.entries(STUDY), night.study(STUDY)
    doubted = next(t.position for t in study.trials.values() if t.started.trial_id in study.drift.shifts[0].trial_ids)

    assert [e.kind for e in entries[doubted:] if isinstance(e, ConfigurationKept | CardAdmitted)] == []
