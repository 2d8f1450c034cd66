"""Ten thousand experiments in the store: lists stay as quick as with ten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from experiments.ledger import TrialStarted
from experiments.trial import Route, Tier
from state.database import Database, open_database
from state.models import STUDIES, TRIALS
from tests.factories import EVENING, a_config, a_load, an_opening

STUDY = "night-1"
COUNT = 10_000


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """The rows that 10,000 trials leave, put there directly: appending them one by one takes a minute."""
    path: Path = tmp_path_factory.mktemp("crowded") / "tuneloop.db"
    with open_database(path) as database:
        database.ledger().append(STUDY, [an_opening()], after=0)
        with database._store.writing() as connection:
            connection.execute(sa.insert(TRIALS), [_row(number) for number in range(COUNT)])
            connection.execute(sa.update(STUDIES).values(trials=COUNT))
        yield database


def _row(number: int) -> dict[str, object]:
    negative = number % 3 == 0
    return {
        "trial_id": f"t{number:05d}",
        "study_id": STUDY,
        "position": 2 + 3 * number,
        "finish_position": 3 + 3 * number,
        "tier": Tier.SCREENING,
        "config_fingerprint": "0" * 12,
        "why": "screening",
        "requests": 320,
        "concurrency": 128,
        "rate": 6.0,
        "cache": "zero",
        "started_at": EVENING + timedelta(minutes=number),
        "finished_at": EVENING + timedelta(minutes=number + 1),
        "state": "valid",
        "simulated": True,
        "route": Route.VALID_NEGATIVE if negative else Route.PROMISING,
        "reason": "slower" if negative else "gain",
        "explanation": "output_tok_s_per_card (whole) 164.10 → 172.99: +5.41% [+4.10%, +6.70%] at 95%, 2 against 3",
        "window_kind": "whole",
        "meets_floor": True,
        "n_failed": 0,
        "n_requests": 320,
        "duration_s": 121.5,
        "output_tok_s_per_card": 168.5 + number % 17,
        "request_per_s": 2.63,
        "ttft_mean_s": 28.7,
        "tpot_mean_ms": 9.6,
        "e2e_mean_s": 38.5,
        "accept_length": 5.75,
    }


READS: dict[str, Callable[[Database], object]] = {
    "first page": lambda d: d.views().page(STUDY),
    "oldest page": lambda d: d.views().page(STUDY, before=200),
    "page in the middle": lambda d: d.views().page(STUDY, before=15_000),
    "page of one route": lambda d: d.views().page(STUDY, route=Route.PROMISING),
    "page of a rare tier": lambda d: d.views().page(STUDY, tier=Tier.SENTINEL),
    "studies": lambda d: d.views().studies(),
    "tally": lambda d: d.views().tally(STUDY),
    "pulse": lambda d: d.views().pulse(STUDY),
    "unfinished": lambda d: d.views().unfinished(STUDY),
    "stage times": lambda d: d.views().stage_seconds(STUDY),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_list_is_quick(crowded: Database, read: Callable[[Database], object]) -> None:
    """Each read model answers within 50 ms (1 to 7 ms on a quiet machine)."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        read(crowded)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.05


def test_an_append_is_as_quick_as_ever(crowded: Database) -> None:
    """The guard, the projection and the flush do not grow with the ledger."""
    ledger, times = crowded.ledger(), []
    for number in range(20):
        entry = TrialStarted(
            at=EVENING,
            trial_id=f"new{number}",
            tier=Tier.BASELINE,
            card_digest=None,
            config=a_config(),
            load=a_load(),
            why="baseline",
        )
        _free_position(crowded, number)
        began = time.perf_counter()
        ledger.append(STUDY, [entry], after=1 + number)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.02  # 1 to 2 ms on a quiet machine


def _free_position(database: Database, number: int) -> None:
    """The rows of the fixture have no entries; make room for one that has."""
    with database._store.writing() as connection:
        connection.execute(sa.delete(TRIALS).where(TRIALS.c.position == 2 + number, TRIALS.c.trial_id.like("t%")))
