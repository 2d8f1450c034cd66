"""The parts of a service: night windows, notices over a real local server, approvals, turns on a pool."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agent.notify import Command, NotDelivered, Notifier, Refused, Webhook
from agent.pool_turns import PoolTurn, PoolTurns
from agent.service.service_file import Window, read_arrangement
from agent.service.windows import NightWindows
from executor.clock import ManualClock
from experiments.approvals import live_approvals
from experiments.control import ControlState, Mode
from experiments.errors import InputError
from experiments.ledger import OperatorSpoke, TrialStarted
from experiments.trial import Tier
from state.database import Database, open_database
from tests.factories import EVENING, a_config, a_load, an_opening

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("at", "open_"),
    [
        (datetime(2026, 12, 1, 11, 59, tzinfo=UTC), False),  # Tuesday 19:59 in Shanghai
        (datetime(2026, 12, 1, 12, 0, tzinfo=UTC), True),
        (datetime(2026, 12, 1, 22, 59, tzinfo=UTC), True),
        (datetime(2026, 12, 1, 23, 0, tzinfo=UTC), False),
        (datetime(2026, 12, 5, 13, 0, tzinfo=UTC), False),  # Saturday
    ],
)
def test_trials_start_in_the_windows_only(at: datetime, open_: bool) -> None:
    """From eight in the evening for eleven hours, on working days, in the service's own zone; the end is outside."""
    windows = NightWindows([Window(start="0 20 * * mon-fri", hours=11)], ZoneInfo("Asia/Shanghai"))
    assert (windows.refusal(at) is None) is open_


@pytest.mark.parametrize("line", ["night_windows: [{start: 0 20 * * 1-5, hours: 8}]", "timezone: Mars", "tick: 3"])
def test_a_wrong_service_file_names_its_place(tmp_path: Path, line: str) -> None:
    """Numbered weekdays, which programs count differently, are refused like any other mistake."""
    file = tmp_path / "service.yaml"
    file.write_text(f"workspaces: [a]\n{line}\n")
    with pytest.raises(InputError, match=r"service\.yaml:2:"):
        read_arrangement([file])


class Endpoint:
    """A real HTTP server that answers as it is told."""

    def __init__(self, answers: list[int]) -> None:
        self.events: list[dict[str, object]] = []
        self.answers = answers
        self.seen = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = endpoint.answers.pop(0) if endpoint.answers else 204
                if status < 300:
                    endpoint.events.append(json.loads(body))
                self.send_response(status)
                self.end_headers()
                if status < 300:
                    endpoint.seen.set()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint([])
    yield server
    server.close()


def test_a_busy_webhook_is_asked_again_and_gets_the_event_once(endpoint: Endpoint) -> None:
    """Two answers of 503, then one event; `settled` is called when it was taken."""
    endpoint.answers = [503, 503]
    settled = threading.Event()
    notifier = Notifier((Webhook(endpoint.url),), first_pause_s=0.01)
    notifier.send({"event": "kept", "text": "c01"}, settled.set)

    assert settled.wait(20)
    notifier.close()
    assert endpoint.events == [{"event": "kept", "text": "c01"}]


def test_sending_never_waits_for_a_webhook_that_is_away(endpoint: Endpoint) -> None:
    """What cannot be delivered is left, unsettled, for the next service."""
    url = endpoint.url
    endpoint.answers = [500] * 50
    settled = threading.Event()
    notifier = Notifier((Webhook(url),), first_pause_s=30)

    assert notifier.send({"event": "stopped"}, settled.set)
    notifier.close(patience_s=0.2)
    assert not settled.is_set()


def test_a_refusal_is_not_repeated(endpoint: Endpoint) -> None:
    """401 will not change by asking again, and the secret URL is in no message."""
    endpoint.answers = [401]
    with pytest.raises(Refused) as caught:
        Webhook(endpoint.url).deliver({"event": "kept"})
    assert endpoint.url not in str(caught.value) + repr(Webhook(endpoint.url))


def test_a_command_gets_the_event_on_its_standard_input(tmp_path: Path) -> None:
    """As JSON, without a shell; a program that fails is tried again, one that is missing is not."""
    target = tmp_path / "event.json"
    program = f"import sys; open({str(target)!r}, 'w').write(sys.stdin.read())"
    Command((sys.executable, "-c", program)).deliver({"event": "unknown", "text": "$(reboot)"})

    assert json.loads(target.read_text()) == {"event": "unknown", "text": "$(reboot)"}
    with pytest.raises(NotDelivered):
        Command((sys.executable, "-c", "raise SystemExit(3)")).deliver({})
    with pytest.raises(Refused):
        Command((str(tmp_path / "none"),)).deliver({})


def said(hour: float, until: float, *approve: str) -> OperatorSpoke:
    at = EVENING + timedelta(hours=hour)
    control = ControlState(mode=Mode.RUN, authorized_until=EVENING + timedelta(hours=until), approve=approve, by="ops")
    return OperatorSpoke(at=at, mode="run", by="ops", reason="", file_digest="0" * 64, control=control)


@pytest.mark.parametrize(
    ("words", "at", "live"),
    [
        ([said(0, 8, DIGEST)], 7, True),
        ([said(0, 8, DIGEST)], 8, False),
        ([said(0, 8, DIGEST), said(7, 10, DIGEST)], 9, True),  # the lease was extended in time
        ([said(0, 8, DIGEST), said(9, 12, DIGEST)], 10, False),  # too late: the approval went with the old one
        ([said(0, 8, DIGEST), said(9, 12, DIGEST, DIGEST)], 10, True),  # given again
        ([said(0, 8, DIGEST), said(9, 12), said(10, 12, DIGEST)], 11, True),
        ([said(0, 8, DIGEST), said(1, 8)], 2, False),  # taken back
    ],
)
def test_an_approval_ends_with_its_lease(words: list[OperatorSpoke], at: float, live: bool) -> None:
    """Carried on by an extension in time, not by a later lease; given again, it holds again."""
    assert (live_approvals(words, EVENING + timedelta(hours=at)) == (DIGEST,)) is live


@pytest.fixture
def two_studies(tmp_path: Path) -> Iterator[Database]:
    with open_database(tmp_path / "shared.db") as database:
        for name in ("night-1", "night-2"):
            opening = an_opening().model_copy(update={"study_id": name})
            database.ledger().append(name, [opening], after=0)
        yield database


def turn_of(database: Database, clock: ManualClock, study: str, turns: PoolTurns | None = None) -> PoolTurn:
    """As one service has it; each its own list, unless they share one."""
    turns = turns or PoolTurns([database])
    return PoolTurn(turns=turns, drivers=database.drivers(clock.now), pool="a3-pool-1", study_id=study)


def test_one_study_at_a_time_works_on_a_pool(two_studies: Database) -> None:
    """Within one service and between two; given back, the pool is the other one's."""
    clock = ManualClock(EVENING)
    shared = PoolTurns([two_studies])
    first, second = (turn_of(two_studies, clock, name, shared) for name in ("night-1", "night-2"))
    elsewhere = turn_of(two_studies, clock, "night-2")

    assert first.take() is None
    assert second.take() == elsewhere.take() == "pool a3-pool-1 is in use by study night-1"
    first.give_back()
    assert elsewhere.take() is None


def test_an_unfinished_trial_keeps_the_pool_after_its_service_is_gone(two_studies: Database) -> None:
    """The lease ran out long ago, and a load may still run: nobody else takes the pool."""
    clock = ManualClock(EVENING)
    turn_of(two_studies, clock, "night-1").take()
    started = TrialStarted(
        at=EVENING,
        trial_id="night-1-t001",
        tier=Tier.BASELINE,
        card_digest=None,
        config=a_config(),
        load=a_load(),
        why="x",
    )
    two_studies.ledger().append("night-1", [started], after=1)
    clock.advance(3600)

    assert turn_of(two_studies, clock, "night-2").take() == "pool a3-pool-1 is not free: trial night-1-t001 is running"
    assert turn_of(two_studies, clock, "night-1").take() is None
