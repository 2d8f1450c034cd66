"""What most fault tests start from: one study on a pool of two hosts in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.desk import Desk, open_desk, open_hosts
from tests.acceptance.goal_text import goal_text
from tests.acceptance.testbed import PoolBed, open_pool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolBed]:
    opened = open_pool(tmp_path / "pool")
    yield opened
    opened.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    hosts = open_hosts(tmp_path / "pool")
    made = open_desk(tmp_path / "study", hosts, goal_text(trials=1000))
    yield made
    made.close()
    hosts.close()
