"""`lab` starts programs for one test; `pool` is one pair of servers and a router that many tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.simulated.lab import Lab, Pool


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Prefill, decode and router for the tests that leave them as they are; runs and faults are each test's own."""
    made = Lab(tmp_path_factory.mktemp("pool"))
    yield made.pool()
    made.stop()
