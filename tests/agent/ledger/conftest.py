"""The scripted night as entries and as a ledger on disk, built once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.ledger.build import build_ledger
from experiments.ledger import LedgerEntry
from tests.factories import a_night


@pytest.fixture(scope="session")
def night() -> Sequence[LedgerEntry]:
    """It ends with a trial whose end is unknown."""
    return a_night()


@pytest.fixture(scope="session")
def ledger(night: Sequence[LedgerEntry], tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("workspace")
    build_ledger(night, workspace / "ledger", artifacts=workspace / "artifacts", kept=workspace / "kept")
    return workspace / "ledger"


@pytest.fixture(scope="session")
def chinese_ledger(night: Sequence[LedgerEntry], tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("workspace-zh")
    build_ledger(night, workspace / "ledger", lang="zh", artifacts=workspace / "artifacts")
    return workspace / "ledger"
