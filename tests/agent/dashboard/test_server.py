"""`tuneloop dashboard` as a process: where it listens, what it prints, how it leaves; and pages of a long study."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from agent.dashboard.server import Place, check_place, is_loopback, serve
from agent.dashboard.site import sites_of
from agent.session import only_one
from executor.clock import SystemClock
from experiments.errors import InputError
from state.database import open_database
from state.models import STUDIES, TRIALS
from tests.agent.dashboard.workspaces import logged_in, make_app, make_workspace, until_admitted
from tests.factories import EVENING, an_opening

TUNELOOP = str(Path(sys.executable).with_name("tuneloop"))
COUNT = 10_000


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process and the two lines that it prints first."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [TUNELOOP, "dashboard", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        yield process, [process.stdout.readline() for _ in range(2)]
    finally:
        process.kill()
        process.wait(timeout=20)
        process.stdout.close()


def test_the_process_shows_a_workspace_and_leaves_at_once(tmp_path: Path) -> None:
    """The token is printed once, opens the dashboard, and an open stream does not keep it from leaving."""
    folder = make_workspace(tmp_path / "night", until_admitted()[0])
    with started(str(folder), "--port", "0") as (process, lines):
        url = re.search(r"http://127\.0\.0\.1:\d+", lines[0])
        token = re.search(r"token, shown once: ([0-9a-f]{48})", lines[1])
        assert url is not None
        assert token is not None
        with httpx.Client(base_url=url.group(), timeout=20, trust_env=False) as client:
            answer = client.post("/login", data={"token": token.group(1)}, headers={"Origin": url.group()})
            assert answer.status_code == 303
            with client.stream("GET", "/w/night/events") as stream:
                next(stream.iter_lines())
                process.send_signal(signal.SIGTERM)
                rest = process.communicate(timeout=30)[0]
    assert "Traceback" not in rest
    assert (folder / ".dashboard-token").read_text().strip() == token.group(1)


WRONG = {
    "no such folder": ("none", Place(), "is not a folder"),
    "a name for an address": (".", Place(host="dash.example"), "write an address of this machine"),
    "all addresses without a name": (".", Place(host="0.0.0.0"), "needs --allow-host"),
    "no port": (".", Place(port=70000), "is no port"),
    "an address of another machine": (".", Place(host="192.0.2.1", port=0), "cannot be used"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_says_what_to_do(tmp_path: Path, name: str) -> None:
    """Before anything is listened to or printed."""
    folder, place, words = WRONG[name]
    said: list[str] = []

    with pytest.raises(InputError, match=words):
        serve([tmp_path / folder], place, SystemClock(), said.append)
    assert said == []


def test_loopback_is_the_default() -> None:
    """Another address has to be asked for, and is known for what it is."""
    assert is_loopback(Place().host)
    assert is_loopback("::1")
    assert not is_loopback("192.168.1.5")
    check_place(Place(host="0.0.0.0", names=("tuner.lan:8765",)))
    with pytest.raises(InputError):
        check_place(Place(host="::"))


def test_workspaces_of_one_name_have_different_addresses(tmp_path: Path) -> None:
    """And a name that no address can hold becomes one that can."""
    names = ["a/night", "b/night", "c/夜 1", "d/../e/%2f"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)

    assert list(sites_of([tmp_path / name for name in names], SystemClock())) == ["night", "night-2", "1", "2f"]


def test_a_study_can_be_driven_while_it_is_shown(tmp_path: Path) -> None:
    """The dashboard never holds the lock of the workspace."""
    folder = make_workspace(tmp_path / "night", until_admitted()[0])
    visitor = logged_in(make_app(folder))
    with visitor.client:
        visitor.text("progress")
        with only_one(folder):
            visitor.text("")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of ten thousand trials, put there directly: to append them one by one takes a minute."""
    folder = make_workspace(tmp_path_factory.mktemp("crowded") / "night", [an_opening()])
    with open_database(folder / "tuneloop.db") as database, database._store.writing() as connection:
        connection.execute(sa.insert(TRIALS), [_row(number) for number in range(COUNT)])
        connection.execute(sa.update(STUDIES).values(trials=COUNT))
    return folder


def _row(number: int) -> dict[str, object]:
    return {
        "trial_id": f"t{number:05d}",
        "study_id": "night-1",
        "position": 2 + 3 * number,
        "finish_position": 3 + 3 * number,
        "tier": "screening",
        "config_fingerprint": "0" * 12,
        "why": "screening",
        "requests": 320,
        "concurrency": 128,
        "rate": 6.0,
        "cache": "zero",
        "started_at": EVENING,
        "finished_at": EVENING,
        "state": "valid",
        "simulated": True,
        "route": "valid_negative" if number % 3 else "promising",
        "reason": "slower" if number % 3 else "gain",
        "explanation": "output_tok_s_per_card (whole) 164.10 → 172.99: +5.41% [+4.10%, +6.70%] at 95%",
        "window_kind": "whole",
        "meets_floor": True,
        "n_failed": 0,
        "n_requests": 320,
        "duration_s": 121.5,
        "output_tok_s_per_card": 168.5 + number % 17,
        "ttft_mean_s": 28.7,
        "tpot_mean_ms": 9.6,
    }


LISTS = ["experiments", "experiments?before=15000", "experiments?route=promising&tier=", ""]


@pytest.mark.parametrize("page", LISTS)
def test_a_list_of_ten_thousand_is_quick(crowded: Path, page: str) -> None:
    """Within 200 ms of processor time (15 to 40 ms on a quiet machine); tests.bench.dashboard has the wall clock."""
    visitor = logged_in(make_app(crowded))
    times = []
    with visitor.client:
        for _ in range(6):
            began = time.process_time()
            visitor.text(page)
            times.append(time.process_time() - began)
    assert sorted(times)[-2] < 0.2
