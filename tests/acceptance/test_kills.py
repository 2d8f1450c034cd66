"""kill -9 of the service, at every boundary and at random instants: nothing lost, nothing twice."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.acceptance.goal_text import goal_text
from tests.acceptance.killing import PATIENT, Tally, boundaries, in_lanes, judge, kill_at
from tests.acceptance.testbed import make_study, open_pool, read

SWEEPS = 3
RANDOM_KILLS = 200
RESUME_LIMIT_S = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def sweep(folder: Path, places: list[str]) -> Tally:
    """One trial on a cold pool of its own, killed at each place."""
    pool = open_pool(folder / "pool", PATIENT)
    try:
        return kill_at(make_study(folder / "study", pool, goal_text(trials=1)), pool, places)
    finally:
        pool.close()


@pytest.fixture(scope="module")
def at_boundaries(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    every = [place for place in boundaries() if not place.endswith("before_intent")]  # the end of the stage before
    effects = [place for place in every if not place.endswith(("before_outcome", "recorded"))]
    assert len(effects) >= 25
    total = Tally()
    with ThreadPoolExecutor(2) as lanes:
        plans = [(tmp_path_factory.mktemp("sweep"), every if number == 0 else effects) for number in range(SWEEPS)]
        for found in lanes.map(lambda plan: sweep(*plan), plans):
            total.add(found)
    return total


@pytest.fixture(scope="module")
def at_random(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    return in_lanes(tmp_path_factory.mktemp("random"), RANDOM_KILLS, seed=20261201)


def test_the_command_killed_in_the_middle_of_a_load_goes_on_with_it(tmp_path: Path) -> None:
    """kill -9 of `tuneloop run` while the client runs, then the command again: same trial, no second send."""
    pool = open_pool(tmp_path / "pool")
    slow = pool.description.read_text().replace("TUNELOOP_SIM_PACE: '0'", "TUNELOOP_SIM_PACE: '3'")
    pool.description.write_text(slow)
    workspace = make_study(tmp_path / "study", pool, goal_text(trials=1))
    command = [str(Path(sys.executable).with_name("tuneloop")), "run", str(workspace.root)]
    try:
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not pool.starts() or not pool.starts()[-1].endswith("-t001"):
            assert first.poll() is None
            time.sleep(0.05)
        first.kill()
        first.wait()
        running = read(workspace).open_trial
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = judge(workspace, pool)
    finally:
        pool.close()

    assert "TUNELOOP_SIM_PACE: '3'" in slow
    assert running is not None
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"going on with trial {running.started.trial_id}" in done.stdout
    assert list(read(workspace).trials) == [running.started.trial_id]
    assert (found.duplicated, found.lost, found.violations) == (0, 0, [])


class TestKillsAtBoundaries:
    def test_every_boundary_was_reached_and_killed_three_times(self, at_boundaries: Tally) -> None:
        """Each place at which something takes effect three times, all others once; none has become unreachable."""
        assert at_boundaries.unreached == []
        assert at_boundaries.kills >= 25 * SWEEPS

    def test_no_formal_load_was_sent_twice_and_no_result_was_lost(self, at_boundaries: Tally) -> None:
        """The bench clients' own counter says one start per trial, and each trial has its numbers."""
        assert (at_boundaries.duplicated, at_boundaries.lost) == (0, 0), at_boundaries.losses

    def test_the_history_holds_every_invariant(self, at_boundaries: Tally) -> None:
        """Ledger, journal, hosts, clients and artifacts agree after every kill."""
        assert at_boundaries.violations == []

    def test_an_interrupted_trial_is_resumed_within_five_seconds(self, at_boundaries: Tally) -> None:
        """From asking for the service to the stage in which the trial was, for 95 of 100 kills."""
        assert len(at_boundaries.resumed_s) > at_boundaries.kills / 2
        assert at_boundaries.resumed_at(0.95) <= RESUME_LIMIT_S


class TestKillsAtRandom:
    def test_no_formal_load_was_sent_twice_and_no_result_was_lost(self, at_random: Tally) -> None:
        """Over at least two hundred kills."""
        assert at_random.kills >= RANDOM_KILLS
        assert (at_random.duplicated, at_random.lost) == (0, 0), at_random.losses

    def test_the_history_holds_every_invariant(self, at_random: Tally) -> None:
        """Ledger, journal, hosts, clients and artifacts agree after every study."""
        assert at_random.violations == []

    def test_an_interrupted_trial_is_resumed_within_five_seconds(self, at_random: Tally) -> None:
        """From asking for the service to the stage in which the trial was, for 95 of 100 kills."""
        assert at_random.resumed_at(0.95) <= RESUME_LIMIT_S
