"""Evaluations of outputs on the simulated pool: speed alone keeps nothing where the goal asks for quality."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.entrypoints.audit import audit_workspace
from agent.entrypoints.operate import set_mode
from agent.graph import run_graph
from agent.nodes import evaluation_plan
from executor.runner import Waiting
from executor.service import tear_down
from executor.trial_plan import TrialPlan
from executor.trial_record import Evaluated
from experiments.goal import Quality, Score
from experiments.ledger import QualityEvaluated
from experiments.ports import Gate
from experiments.trial import Reason, Route, Stage
from tests.acceptance.desk import Desk, open_desk, open_hosts
from tests.acceptance.goal_text import goal_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ASKS = (
    "import json, os, urllib.request as web; "
    "body = json.dumps({'text': 'What is 2 + 2?', 'sampling_params': {'max_new_tokens': 4}}).encode(); "
    "url = os.environ['TUNELOOP_BASE_URL'] + '/generate'; "
    "answer = web.urlopen(web.Request(url, body, {'Content-Type': 'application/json'}), timeout=20); "
    "assert answer.status == 200; print('accuracy: 0.10'); print('accuracy:', {accuracy})"
)


def asks(accuracy: float) -> tuple[str, ...]:
    """A command that generates through the service it was told of, and prints a figure twice: the last one counts."""
    return ("python3", "-c", ASKS.replace("{accuracy}", str(accuracy)))


def scored(accuracy: float, least: float = 0.8) -> Quality:
    return Quality(command=asks(accuracy), required=True, score=Score(pattern=r"accuracy: ([0-9.]+)", min=least))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with opened(tmp_path) as made:
        yield made


@contextmanager
def opened(folder: Path, goal: str | None = None) -> Iterator[Desk]:
    hosts = open_hosts(folder / "pool", {"evaluate": 20.0})
    made = open_desk(folder / "study", hosts, goal or goal_text(trials=1000))
    yield made
    made.close()
    hosts.close()


def plan_of(desk: Desk, quality: Quality) -> TrialPlan:
    """The evaluation of the configuration that the study starts from."""
    study = desk.study
    return evaluation_plan(study, study.opened.starting, quality)


def gate_of(desk: Desk) -> Gate:
    return desk.application.authority.gate(desk.study, None, desk.study.opened.starting, lambda: 1.0)


def evaluated(desk: Desk, quality: Quality) -> Evaluated | Waiting:
    return desk.application.nodes.runner.evaluate(plan_of(desk, quality), gate_of(desk))


@pytest.mark.parametrize(("accuracy", "outcome"), [(0.91, "passed"), (0.71, "failed")])
def test_the_figure_of_the_command_decides(desk: Desk, accuracy: float, outcome: str) -> None:
    """The command reaches the service by the address in its environment; its last figure is held against the goal's."""
    end = evaluated(desk, scored(accuracy))
    assert isinstance(end, Evaluated)
    assert (end.outcome, end.score) == (outcome, accuracy)
    assert end.detail == f"score {accuracy:g}, the goal asks at least 0.8"
    assert end.log is not None
    folder = desk.workspace.artifacts / desk.study.next_evaluation_id()
    assert f"accuracy: {accuracy}" in (folder / end.log.name).read_text()


@pytest.mark.parametrize(
    ("script", "outcome"), [("exit 0", "passed"), ("exit 1", "failed"), ("exit 3", "not_evaluated")]
)
def test_without_a_figure_the_exit_code_decides(desk: Desk, script: str, outcome: str) -> None:
    """Zero is passed and one is failed; every other end is no answer, and no word against the configuration."""
    end = evaluated(desk, Quality(command=("/bin/sh", "-c", script), required=True))
    assert isinstance(end, Evaluated)
    assert end.outcome == outcome


def test_a_command_that_prints_no_figure_gives_no_answer(desk: Desk) -> None:
    """An exit code of zero does not pass where the goal asks for a figure."""
    quality = Quality(command=("/bin/true",), required=True, score=Score(pattern="accuracy: ([0-9.]+)", min=0.1))
    end = evaluated(desk, quality)
    assert isinstance(end, Evaluated)
    assert (end.outcome, end.score) == ("not_evaluated", None)


def test_a_server_that_dies_meanwhile_is_no_word_about_quality(desk: Desk) -> None:
    """The command fails because decode is gone: that is not a failed evaluation."""

    def kill_decode() -> None:
        with desk.hosts.hosts() as hosts:
            for job in hosts["d0"].jobs():
                if job.is_live and ".decode." in job.job_id:
                    for pid in job.pids:
                        os.kill(pid, 9)

    quality = Quality(command=("/bin/sh", "-c", "sleep 2; exit 1"), required=True)
    with desk.at(Stage.EVALUATE, kill_decode, word="s"):
        end = evaluated(desk, quality)
    assert isinstance(end, Evaluated)
    assert end.outcome == "not_evaluated"
    assert "decode" in end.detail


def test_an_interrupted_evaluation_goes_on_and_is_not_started_twice(desk: Desk, tmp_path: Path) -> None:
    """The service is gone in the middle; the next one finds the command under its id and waits for its end."""
    count = tmp_path / "count"
    script = f"echo started >> {shlex.quote(str(count))}; sleep 3; exit 0"
    quality = Quality(command=("/bin/sh", "-c", script), required=True)

    class Gone(BaseException):
        pass

    def look(_: object) -> None:
        if count.exists():
            raise Gone

    desk.watch.append(look)
    with pytest.raises(Gone):
        evaluated(desk, quality)
    desk.watch.remove(look)
    desk.reopen()
    end = evaluated(desk, quality)
    assert isinstance(end, Evaluated)
    assert end.outcome == "passed"
    assert count.read_text().splitlines() == ["started"]


def test_a_stop_ends_the_command_and_a_resumed_study_makes_it_again(desk: Desk, tmp_path: Path) -> None:
    """Stop cancels it, which is no answer; after the resume it runs once more under another id."""
    once = tmp_path / "once"
    script = f"test -e {shlex.quote(str(once))} && exit 0; touch {shlex.quote(str(once))}; sleep 60; exit 1"
    quality = Quality(command=("/bin/sh", "-c", script), required=True)

    def stop() -> None:
        set_mode(desk.workspace.root, "stop", reason="a test", by="ops")

    with desk.at(Stage.EVALUATE, stop, word="s"):
        waiting = evaluated(desk, quality)
    assert isinstance(waiting, Waiting)
    set_mode(desk.workspace.root, "run", reason="", by="ops")
    desk.reopen()
    end = evaluated(desk, quality)
    assert isinstance(end, Evaluated)
    assert end.outcome == "passed"


def test_a_pause_lets_nothing_of_it_begin(desk: Desk) -> None:
    """A paused study starts no server and no command for an evaluation."""
    set_mode(desk.workspace.root, "pause", reason="a test", by="ops")
    end = evaluated(desk, scored(0.9))
    assert isinstance(end, Waiting)
    assert "pause" in end.why


@pytest.mark.parametrize(("accuracy", "keeps"), [(0.95, True), (0.5, False)])
def test_a_goal_that_asks_for_quality_keeps_only_what_passed(tmp_path: Path, accuracy: float, keeps: bool) -> None:
    """A study end to end: the faster configuration is confirmed, evaluated, and kept only if its outputs passed."""
    command = json.dumps(asks(accuracy))
    goal = goal_text(trials=40).replace("budget:", "confirmation: {pairs_max: 4}\nbudget:") + (
        f"quality:\n  required: true\n  score: {{pattern: 'accuracy: ([0-9.]+)', min: 0.8}}\n  command: {command}\n"
    )
    goal = "".join(line for line in goal.splitlines(keepends=True) if "- {role: " not in line or "client" in line)
    with opened(tmp_path, goal.replace("concurrency: 8", "concurrency: 4")) as desk:
        state = run_graph(desk.application.nodes, desk.workspace.checkpoints)
        study = desk.study
        answers = [e for e in desk.application.database.ledger().entries(study.study_id) if _is_answer(e)]
        assert tear_down(desk.application.hosts, study.study_id, 60.0) == []
        violations = desk.violations()
    assert state["ended"]
    assert violations == ()
    assert answers
    assert bool(study.kept) is keeps
    closed = [c.classification for c in study.closed.values() if study.evaluations.get(c.card_digest)]
    assert {c.route for c in closed} == {Route.PROMISING if keeps else Route.VALID_NEGATIVE}
    assert {c.reason for c in closed} == {Reason.GAIN if keeps else Reason.QUALITY_FAILED}
    assert all(c.comparison is not None and c.comparison.low > 0 for c in closed)
    if keeps:
        assert {kept.quality for kept in study.kept} == {"passed"}
    assert audit_workspace(desk.workspace.root, contact=False).is_clean


def _is_answer(entry: object) -> bool:
    return isinstance(entry, QualityEvaluated)
