"""Workspaces to show, and a visitor with a browser's manners: same origin, cookies, forms with their token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from agent.dashboard.app import create_app
from agent.dashboard.guard import Addresses, Guard
from agent.dashboard.sessions import Sessions
from agent.dashboard.site import sites_of
from executor.clock import Clock, ManualClock, SystemClock
from experiments.control import ControlState, Mode
from experiments.knob import Cost
from experiments.ledger import CardAdmitted, LedgerEntry, TrialStarted
from experiments.trial import Stage
from state.control import ControlFile, write_status
from state.database import open_database
from tests.factories import STAGE_SECONDS, a_night

TOKEN = "0123456789abcdef0123456789abcdef"
HOST = "127.0.0.1:8765"
ORIGIN = f"http://{HOST}"
STUDY = "night-1"
MEASURES = list(Stage).index(Stage.MEASURE)

PREFILL_LINE = (
    "[2026-12-01 20:{m:02d}:{s:02d} DP{r} TP{r} EP{r}] Prefill batch, #new-seq: 2, #new-token: 512, #cached-token: 0, "
    "token usage: 0.02, #running-req: 0, #queue-req: {q}, #bootstrap-req: 0, #inflight-req: 1, "
    "input throughput (token/s): 1000.00"
)
DECODE_LINE = (
    "[2026-12-01 20:{m:02d}:{s:02d} DP{r} TP{r} EP{r}] Decode batch, #running-req: {q}, #token: 17024, "
    "token usage: 0.01, accept len: 5.74, #prealloc-req: 0, #transfer-req: 2, #retracted-req: 0, "
    "gen throughput (token/s): 113.68, #queue-req: 0"
)


def make_workspace(folder: Path, entries: Sequence[LedgerEntry], control: ControlState | None = None) -> Path:
    """A workspace with a study, an operator's file, and the raw files of its first trial."""
    folder.mkdir(parents=True, exist_ok=True)
    with open_database(folder / "tuneloop.db") as database:
        if entries:
            database.ledger().append(STUDY, entries, after=0)
    (folder / "study.id").write_text(f"{STUDY} own\n")
    ControlFile(folder / "state.yaml").write(control or a_control())
    logs = folder / "artifacts" / "t0001"
    logs.mkdir(parents=True)
    (logs / "prefill.log").write_text(log_of(PREFILL_LINE))
    return folder


def a_control(**changes: Any) -> ControlState:
    base: dict[str, Any] = {
        "mode": Mode.RUN,
        "authorized_until": SystemClock().now() + timedelta(hours=8),
        "allow": (Cost.HOT, Cost.RESTART),
        "reason": "until 7",
        "by": "ops",
    }
    return ControlState(**{**base, **changes})


def log_of(line: str, seconds: int = 30, ranks: int = 2) -> str:
    return "".join(line.format(m=s // 60, s=s % 60, r=r, q=s % 7) + "\n" for s in range(seconds) for r in range(ranks))


def make_running(folder: Path) -> Path:
    """A card is screened: its load runs, and the trials before it tell how long each stage usually takes."""
    night = a_night()
    starts = [i for i, entry in enumerate(night) if isinstance(entry, TrialStarted)]
    make_workspace(folder, night[: starts[4] + 1])
    before = sum(seconds for stage, seconds in STAGE_SECONDS.items() if list(Stage).index(stage) < MEASURES)
    now = ManualClock(SystemClock().now() - timedelta(seconds=sum(STAGE_SECONDS.values()) + 0.9 * before + 96))
    with open_database(folder / "tuneloop.db") as database:
        journal = database.journal(now.now)
        for trial_id in ("t0004", "t0005"):
            for stage, seconds in STAGE_SECONDS.items():
                journal.begin(trial_id, stage, 1, {})
                if (trial_id, stage) == ("t0005", Stage.MEASURE):
                    break
                now.sleep(seconds * (1.0 if trial_id == "t0004" else 0.9))
                journal.end(trial_id, stage, 1, "done", {})
    samples = folder / "artifacts" / "t0005" / "live.jsonl"
    samples.parent.mkdir()
    samples.write_text("".join(_sample(n) for n in range(30)))
    tell(folder, 96, 212)
    return folder


def _sample(number: int) -> str:
    """What both servers answer: requests pile up before the prefill side, and decode has room."""
    grows = min(11, number)
    prefill = [{"rank": r, "waiting": grows + (number + r) % 3, "inflight": 1, "bootstrap": 0} for r in range(4)]
    decode = [
        {"rank": r, "running": 6 + (number + r) % 4, "waiting": 0, "transfer": 2, "prealloc": 0, "gen_tok_s": 690.0 + r}
        for r in range(4)
    ]
    at = 1764619200.0 + 3 * number
    lines = [{"at": at, "role": "prefill", "ranks": prefill}, {"at": at + 0.1, "role": "decode", "ranks": decode}]
    return "".join(json.dumps(line) + "\n" for line in lines)


def tell(folder: Path, seconds: int, done: int) -> None:
    """The driver's line about the running load, as `tuneloop run` writes it."""
    words = {
        "study": STUDY,
        "running": f"t0005: measure: {seconds} s, {done}/320 requests",
        "next": "trial t0005 is under way",
        "servers": "up",
        "position": _position(folder),
        "at": (SystemClock().now() - timedelta(seconds=96 - seconds)).isoformat(timespec="seconds"),
    }
    write_status(folder / "status.yaml", words)


def _position(folder: Path) -> int:
    with open_database(folder / "tuneloop.db") as database:
        return database.ledger().position(STUDY)


def append(folder: Path, entries: Sequence[LedgerEntry]) -> None:
    """What a service does: another connection, another process as far as the dashboard can tell."""
    with open_database(folder / "tuneloop.db") as database:
        ledger = database.ledger()
        ledger.append(STUDY, entries, after=ledger.position(STUDY))


def until_admitted(number: int = 1) -> tuple[list[LedgerEntry], list[LedgerEntry]]:
    """The night up to the admission of its n-th card, and what came after."""
    night = a_night()
    cards = [i for i, entry in enumerate(night) if isinstance(entry, CardAdmitted)]
    return night[: cards[number - 1] + 1], night[cards[number - 1] + 1 :]


def make_app(*folders: Path, clock: Clock | None = None, names: Sequence[str] = ()) -> Guard:
    clock = clock or SystemClock()
    return create_app(sites_of(list(folders), clock), Sessions(TOKEN, clock), Addresses.of(8765, names))


@dataclass
class Visitor:
    """`key` is the workspace that short addresses mean."""

    client: TestClient
    key: str = "night"

    def get(self, page: str, **options: Any) -> Any:
        return self.client.get(self.path(page), **options)

    def text(self, page: str) -> str:
        answer = self.get(page)
        assert answer.status_code == 200, f"{page}: {answer.status_code} {words_of(answer.text)[:300]}"
        return str(answer.text)

    def post(self, page: str, *, signed: bool = True, headers: dict[str, str] | None = None, **form: str) -> Any:
        data = {**form, "csrf": self.csrf()} if signed else form
        return self.client.post(self.path(page), data=data, headers={"Origin": ORIGIN, **(headers or {})})

    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.client.get("/w/none/").text)
        assert found is not None
        return found.group(1)

    def path(self, page: str) -> str:
        return page if page.startswith("/") else f"/w/{self.key}/{page}"


def a_visitor(app: Any, key: str = "night") -> Visitor:
    """Somebody who has not logged in."""
    client = TestClient(app, base_url=ORIGIN, follow_redirects=False, raise_server_exceptions=False)
    client.headers["Accept"] = "text/html"
    return Visitor(client, key)


def logged_in(app: Any, key: str = "night") -> Visitor:
    visitor = a_visitor(app, key)
    answer = visitor.client.post("/login", data={"token": TOKEN}, headers={"Origin": ORIGIN})
    assert answer.status_code == 303
    return visitor


def words_of(html: str) -> str:
    """What a reader reads, roughly: no tags, single blanks."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html)).strip()


PAGES: tuple[str, ...] = (
    "",
    "progress",
    "live",
    "experiments",
    "cards",
    "cards/start",
    "approvals",
    "trade-offs",
    "compare",
    "faults",
    "loop",
)

Make = Callable[..., Path]
