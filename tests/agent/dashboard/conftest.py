"""The scripted night as a workspace that the dashboard shows. Built once; tests that write make their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.dashboard.workspaces import Visitor, logged_in, make_app, make_workspace
from tests.factories import a_night


@pytest.fixture(scope="session")
def held_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its last trial's end is unknown."""
    return make_workspace(tmp_path_factory.mktemp("held") / "night", a_night())


@pytest.fixture(scope="session")
def ended_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("ended") / "night", a_night(settle_held=True))


@pytest.fixture(scope="module")
def reader(ended_night: Path) -> Iterator[Visitor]:
    """Somebody who looks at the ended night."""
    visitor = logged_in(make_app(ended_night))
    with visitor.client:
        yield visitor
