"""One study of a service when something is wrong: a tick that hangs, a disk that is full, a word for one card only."""

from __future__ import annotations

import errno
import json
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from agent import session
from agent.service.service import EXIT_STUCK, Service
from agent.service.study_job import AGAIN_S
from agent.session import Phase
from agent.workspace import Workspace
from experiments.control import Only
from experiments.knob import Cost
from experiments.ledger import ApprovalUsed, TrialStarted
from tests.agent.service.virtual_night import KNOBS, VirtualNight
from tests.factories import EVENING
from tests.state.malformed import MALFORMED

STUDY = "alpha"
FEW = {"trials: 400": "trials: 2"}
RESTARTS = KNOBS[: KNOBS.index("  - {role: client")]


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VirtualNight:
    made = VirtualNight(tmp_path, f"sqlite:///{tmp_path}/shared.db")
    made.wire(monkeypatch)
    made.clock.enter()
    return made


class Hanging:
    """A service whose only study hangs in the start of its first load."""

    def __init__(self, night: VirtualNight, **settings: object) -> None:
        night.add_study(STUDY, timedelta(hours=12), FEW)
        self.night, self.hangs, self.goes_on = night, threading.Event(), threading.Event()
        night.machines[STUDY].at_start[1] = self._hang
        self.service: Service = night.add_service("one", stuck_minutes=20, **settings)
        self._thread = threading.Thread(target=self.service.studies[0].tick)

    def _hang(self) -> None:
        self.hangs.set()
        assert self.goes_on.wait(60)

    def __enter__(self) -> Hanging:
        self._thread.start()
        assert self.hangs.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.goes_on.set()
        self._thread.join(60)
        self.service.close()


def test_a_tick_without_a_sign_of_life_ends_the_service(night: VirtualNight) -> None:
    """Not after nineteen minutes; after twenty-one it leaves with the code by which it is started again."""
    with Hanging(night, restart_when_stuck=True) as hanging:
        night.clock.jump(19 * 60)
        hanging.service.watch()
        early = hanging.service.leaving.is_set()
        night.clock.jump(2 * 60)
        hanging.service.watch()

        assert not early
        assert (hanging.service.leaving.is_set(), hanging.service.exit_code) == (True, EXIT_STUCK)


def test_a_stuck_study_is_told_of_once(night: VirtualNight, tmp_path: Path) -> None:
    """Where nothing is to be started again, people are told, and not twice a minute."""
    told = tmp_path / "told.jsonl"
    program = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read())"
    notify = {"command": [sys.executable, "-c", program], "on": ["stuck"]}
    with Hanging(night, notify=notify) as hanging:
        night.clock.jump(21 * 60)
        for _ in range(3):
            hanging.service.watch()
        assert not hanging.service.leaving.is_set()
        hanging.service._notifier.close(patience_s=60)  # type: ignore[union-attr]

    events = [json.loads(line) for line in told.read_text().splitlines()]
    assert [(event["event"], event["text"]) for event in events] == [("stuck", "no sign of life for 21 minutes")]


def test_a_disk_that_is_full_while_a_study_is_opened_ends_no_service(
    night: VirtualNight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick ends, the reason is told, and with room again the study is opened and works."""
    night.add_study(STUDY, timedelta(hours=12), FEW)
    service = night.add_service("one")
    (job,) = service.studies
    full = True
    opened = job._opener

    def maybe_full(*arguments: object) -> object:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(job, "_opener", maybe_full)
    job.tick()
    problem, full = job.problem, False
    night.clock.sleep(AGAIN_S)
    job.tick()
    service.close()

    assert problem == "not driven now: No space left on device"
    assert night.study(STUDY).stopped is not None


def test_a_status_file_that_cannot_be_written_stops_nothing(
    night: VirtualNight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the middle of a load nor after it: trials have their numbers as ever."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    night.add_study(STUDY, timedelta(hours=12), FEW)
    service = night.add_service("one")
    monkeypatch.setattr(session, "publish", full)
    service.studies[0].tick()
    service.close()

    assert [trial.sample is not None for trial in night.study(STUDY).trials.values()] == [True, True]


def test_only_one_card_runs_and_then_nothing(night: VirtualNight) -> None:
    """`only` names a card in the middle of its screening: it is brought to its end, and no other is asked for."""
    night.add_study(STUDY, timedelta(hours=48))
    service = night.add_service("one")
    night.machines[STUDY].at_start[5] = lambda: night.direct(STUDY, only=Only(card="c01"), by="ann", reason="just that")
    service.studies[0].tick()
    standing = service.studies[0].session.standing  # type: ignore[union-attr]
    begun = len(night.machines[STUDY].loads)
    for _ in range(3):
        night.clock.sleep(3600)
        service.studies[0].tick()
    service.close()
    study = night.study(STUDY)
    (card,) = study.cards.values()

    assert standing is not None
    assert (standing.phase, card.digest in study.closed) == (Phase.WAITING, True)
    assert standing.why.startswith("only card c01 may run")
    assert len(night.machines[STUDY].loads) == begun
    assert {e.card_digest for e in night.entries(STUDY) if isinstance(e, TrialStarted)} == {None, card.digest}
    assert [(word.by, word.control.only) for word in study.directives if word.control][-1] == ("ann", Only(card="c01"))


def waits_for_approval(night: VirtualNight) -> Service:
    """The baseline is measured; a card that restarts servers waits for a word."""
    night.add_study(STUDY, timedelta(hours=48), {KNOBS: RESTARTS})
    service = night.add_service("one")
    night.machines[STUDY].at_start[4] = lambda: night.direct(STUDY, allow=(Cost.HOT,), by="ann")
    service.studies[0].tick()
    return service


def why(service: Service) -> str:
    standing = service.studies[0].session.standing  # type: ignore[union-attr]
    assert standing is not None
    assert standing.phase is Phase.WAITING
    return standing.why


def test_an_approval_opens_its_card_once(night: VirtualNight) -> None:
    """It waits with the command to say; approved, that card runs to its end, and the next one waits again."""
    service = waits_for_approval(night)
    (first,) = night.study(STUDY).cards.values()
    before = why(service), len(night.machines[STUDY].loads)
    night.direct(STUDY, approve=(first.digest,), by="bob")
    service.studies[0].tick()
    after = why(service)
    service.close()
    study = night.study(STUDY)
    used = [entry.card_digest for entry in night.entries(STUDY) if isinstance(entry, ApprovalUsed)]
    waiting = study.open_card

    assert before == (f"a restart change needs an approval: tuneloop approve {first.digest[:12]}", 4)
    assert (first.digest in study.closed, used) == (True, [first.digest])
    assert waiting is not None
    assert after == f"a restart change needs an approval: tuneloop approve {waiting.digest[:12]}"


def test_an_approval_ends_with_its_lease(night: VirtualNight) -> None:
    """Given beside a lease that ran out before the card could start: under a later lease it has to be given again."""
    service = waits_for_approval(night)
    (card,) = night.study(STUDY).cards.values()
    soon = night.clock.now() + timedelta(minutes=5)
    night.direct(STUDY, approve=(card.digest,), authorized_until=soon, by="bob")
    service.studies[0].tick()
    short = why(service)
    night.clock.sleep(600)
    night.direct(STUDY, authorized_until=night.clock.now() + timedelta(hours=9), by="ann")
    service.studies[0].tick()
    later = why(service)
    night.direct(STUDY, approve=(card.digest, card.digest), by="bob")
    service.studies[0].tick()
    service.close()

    assert "the authorization ends in" in short
    assert later == f"a restart change needs an approval: tuneloop approve {card.digest[:12]}"
    assert card.digest in night.study(STUDY).closed


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VirtualNight, Service]]:
    """A service on a study, to be given one control file after another."""
    folder = tmp_path_factory.mktemp("malformed")
    with pytest.MonkeyPatch.context() as patch:
        made = VirtualNight(folder, f"sqlite:///{folder}/shared.db")
        made.wire(patch)
        made.clock.enter()
        made.add_study(STUDY, timedelta(hours=12))
        (folder / STUDY / "state.yaml").write_text("mode: pause\nby: test\n")
        service = made.add_service("one")
        yield made, service
        service.close()


def test_a_hundred_malformed_state_files_pause_the_service_and_are_said(paused: tuple[VirtualNight, Service]) -> None:
    """Each is read by a whole service: it lives, starts nothing, and says the reason in status.yaml and the ledger."""
    night, service = paused
    (job,) = service.studies
    workspace = Workspace(night.folder / STUDY)
    unsaid = []
    for content in MALFORMED[:: max(1, len(MALFORMED) // 110)]:
        workspace.control_file.write_bytes(content)
        job.tick()
        (problem,) = [line for line in workspace.status_file.read_text().splitlines() if line.startswith("problem: ")]
        if not problem.startswith('problem: "state.yaml'):
            unsaid.append((content[:60], problem))
    words = night.words(STUDY)

    assert unsaid == []
    assert job.problem is None
    assert night.machines[STUDY].loads == []
    assert sum(word.control is None for word in words) >= 100
    assert {word.mode for word in words} == {"pause"}
    assert all(word.at >= EVENING for word in words)
