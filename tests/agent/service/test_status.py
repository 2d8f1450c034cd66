"""`tuneloop status` in the middle of a night: everything that an operator asks at three in the morning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from agent import session
from agent.entrypoints import status
from experiments.control import Mode
from tests.agent.service.virtual_night import VirtualNight

STUDY = "alpha"
COSTLY = {"llm_tokens: 2000000": "llm_tokens: 2000000, llm_cost: 10", "trials: 400": "trials: 8"}
IN_LOAD = 7


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """What is shown in a load, after a pause in it, and when the study has ended."""
    folder, shown = tmp_path_factory.mktemp("status"), dict[str, str]()
    with pytest.MonkeyPatch.context() as patch:
        night = VirtualNight(folder, f"sqlite:///{folder}/shared.db")
        night.wire(patch)
        night.clock.enter()
        patch.setattr(session, "PUBLISH_S", 1.0)
        patch.setattr(status, "SystemClock", lambda: night.clock)
        patch.setenv("TUNELOOP_DATABASE_URL", night.database_url)
        night.llm.tokens, night.llm.cost = 1500, 0.25
        night.add_study(STUDY, timedelta(hours=12), COSTLY)
        service = night.add_service("one")

        def look() -> None:
            service.renew_rights()
            shown["in a load"] = status.describe_status(folder / STUDY)
            night.direct(STUDY, mode=Mode.PAUSE, by="ann", reason="a look")

        night.machines[STUDY].at_start[IN_LOAD] = look
        service.studies[0].tick()
        shown["paused"] = status.describe_status(folder / STUDY)
        night.direct(STUDY, mode=Mode.RUN, by="ann", reason="")
        service.studies[0].tick()
        shown["ended"] = status.describe_status(folder / STUDY)
        service.close()
        yield shown


def line(screen: str, name: str) -> str:
    """One row of the table, joined where it is folded."""
    found = re.search(rf"^{name} +(.*(?:\n {{5,}}\S.*)*)", screen, re.M)
    assert found is not None, screen
    return " ".join(found[1].split())


def test_in_a_load(screens: Mapping[str, str]) -> None:
    """What runs with its stage and end, what waits behind it, the last decision, what is left, and not to be taken."""
    screen = screens["in a load"]
    budget = line(screen, "budget")

    assert re.search(r"trial alpha-\w+-t007 \(.+\): measure; ends in about 0:\d\d:\d\d", line(screen, "now"))
    assert re.search(r"^ measure +0:12:00 +runs$", screen, re.M)
    assert re.search(r"^ launch +0:01:00 +0:01:00$", screen, re.M)
    assert re.match(r"c01-prefill-max-requests-2 \(\w{12}, restart\): 1 → 2", line(screen, "queue"))
    assert re.search(r"t006 .*not judged yet|t005 .*promising", line(screen, "last"))
    assert re.fullmatch(r"one:/.*/alpha", line(screen, "driver").replace(" ", ""))
    assert re.match(r"1 of 8 trials left, \d+\.\d of 24 h left, [\d,]+ of 2,000,000 tokens left, ", budget)
    assert re.search(r"tokens left, \d\.\d\d of 10 left for the language model$", budget)
    assert line(screen, "machines").startswith("NOT safe to take; trial alpha-")


def test_after_a_pause_in_a_load(screens: Mapping[str, str]) -> None:
    """Why nothing runs, who said so, and what would free the machines."""
    screen = screens["paused"]

    assert line(screen, "control").startswith("pause, by ann (a look); the machines are lent until 2026-12-02T08:00")
    assert line(screen, "now") == "waits: mode is pause, said by ann (a look)"
    assert line(screen, "machines").endswith("but our servers are up; tuneloop drain ends them")


def test_when_it_has_ended(screens: Mapping[str, str]) -> None:
    """Why, and that the machines are free."""
    screen = screens["ended"]

    assert line(screen, "now") == "ended (budget_trials): 8 trials were run"
    assert line(screen, "machines") == "safe to take: yes; the study ended and its servers were ended"
