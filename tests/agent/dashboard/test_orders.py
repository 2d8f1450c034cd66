"""What an operator says through the dashboard: it lands in the control file as the command line would write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.control import Mode
from experiments.knob import Cost
from experiments.ledger import CardAdmitted
from state.control import ControlFile
from tests.agent.dashboard.workspaces import (
    Visitor,
    a_control,
    append,
    logged_in,
    make_app,
    make_workspace,
    until_admitted,
    words_of,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A card that costs a restart is open, and only hot changes are free."""
    return make_workspace(tmp_path / "night", until_admitted()[0], a_control(allow=(Cost.HOT,)))


@pytest.fixture
def operator(folder: Path) -> Iterator[Visitor]:
    visitor = logged_in(make_app(folder))
    with visitor.client:
        yield visitor


def open_card() -> str:
    last = until_admitted()[0][-1]
    assert isinstance(last, CardAdmitted)
    return last.card.digest


@pytest.mark.parametrize("mode", [Mode.PAUSE, Mode.DRAIN, Mode.RUN, Mode.STOP])
def test_a_mode_is_written_with_who_and_why(operator: Visitor, folder: Path, mode: Mode) -> None:
    """The lease and the rest of the file stay as they were."""
    before = ControlFile(folder / "state.yaml").read().state
    answer = operator.post("mode", mode=str(mode), by="Li", reason="handing over", sure="true")
    after = ControlFile(folder / "state.yaml").read()

    assert answer.status_code == 303
    assert after.problem is None
    assert after.state == before.model_copy(update={"mode": mode, "by": "Li", "reason": "handing over"})
    assert "handing over" in words_of(operator.text(""))


REFUSED = {
    "no name": ({"mode": "pause", "by": " ", "reason": "x"}, 400, "say who you are"),
    "no reason": ({"mode": "pause", "by": "Li", "reason": ""}, 400, "say why"),
    "stop, not confirmed": ({"mode": "stop", "by": "Li", "reason": "x"}, 400, "tick the box"),
    "no such mode": ({"mode": "explode", "by": "Li", "reason": "x"}, 422, "mode"),
    "a long name": ({"mode": "pause", "by": "x" * 101, "reason": "x"}, 422, "by"),
    "a long reason": ({"mode": "pause", "by": "Li", "reason": "x" * 501}, 422, "reason"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_half_an_order_is_none(operator: Visitor, folder: Path, name: str) -> None:
    """The page says what is missing, and the file is as it was."""
    form, status, words = REFUSED[name]
    before = (folder / "state.yaml").read_bytes()
    answer = operator.post("mode", **form)

    assert answer.status_code == status
    assert words in words_of(answer.text)
    assert (folder / "state.yaml").read_bytes() == before


def test_a_text_cannot_add_a_line_to_the_file(operator: Visitor, folder: Path) -> None:
    """Who and why are text, whatever characters are in them."""
    operator.post("mode", mode="pause", by='Li", mode: run #', reason="x\r\nmode: run\n\u2028by: root")
    state = ControlFile(folder / "state.yaml").read().state

    assert (state.mode, state.by) == (Mode.PAUSE, 'Li", mode: run #')
    assert "mode: run" in state.reason


def test_a_file_that_cannot_be_followed_is_not_overwritten(operator: Visitor, folder: Path) -> None:
    """It may be half of what somebody is writing; a person repairs it."""
    (folder / "state.yaml").write_text("mode: run\n")
    answer = operator.post("mode", mode="run", by="Li", reason="go on")

    assert answer.status_code == 400
    assert (folder / "state.yaml").read_text() == "mode: run\n"
    assert "PAUSED" in words_of(operator.text(""))


def test_an_approval_is_asked_for_with_the_argument(operator: Visitor) -> None:
    """What it changes, what it costs, why it was proposed, and what either outcome means."""
    text = words_of(operator.text("approvals"))

    assert "waits for a word" in text
    assert "prefill prefill-max-requests 1 → 2" in text
    assert "takes restart; free without a word: hot" in text
    assert "Prefill admits one request per batch" in text
    assert "confirm at the formal load and keep" in text


def test_a_renewed_form_is_of_its_own_session(folder: Path) -> None:
    """Other renewed parts are shared between watchers; this one would carry somebody else's sign."""
    app = make_app(folder)
    one, two = logged_in(app), logged_in(app)
    with one.client:
        parts = [visitor.get("approvals", headers={"HX-Request": "true"}).text for visitor in (one, two)]
        assert one.csrf() in parts[0]
        assert two.csrf() in parts[1]
        assert one.csrf() not in parts[1]


def test_an_approval_lands_in_the_file_once(operator: Visitor, folder: Path) -> None:
    """By its whole digest; a second click adds nothing."""
    first = operator.post("approve", card=open_card(), by="Li")
    second = operator.post("approve", card=open_card(), by="Li")
    state = ControlFile(folder / "state.yaml").read().state

    assert (first.status_code, second.status_code) == (303, 400)
    assert state.approve == (open_card(),)
    assert state.by == "Li"
    text = words_of(operator.text("approvals"))
    assert "is approved" in text
    assert f"{open_card()[:12]} c01-prefill-max-requests-2" in text
    assert "stands" in text


@pytest.mark.parametrize("card", ["0" * 64, open_card()[:12], "", "'; DROP", open_card().upper()])
def test_only_the_waiting_card_can_be_approved(operator: Visitor, folder: Path, card: str) -> None:
    """Not by the beginning of its digest, and no other card by a stale page."""
    before = (folder / "state.yaml").read_bytes()

    assert operator.post("approve", card=card, by="Li").status_code in (400, 422)
    assert (folder / "state.yaml").read_bytes() == before


def test_a_closed_card_is_not_approved_from_an_old_page(operator: Visitor, folder: Path) -> None:
    """It was decided meanwhile."""
    append(folder, until_admitted()[1])

    assert operator.post("approve", card=open_card(), by="Li").status_code == 400
    assert ControlFile(folder / "state.yaml").read().state.approve == ()


def test_a_card_within_the_free_costs_needs_no_word(tmp_path: Path) -> None:
    """The queue asks only for what is needed."""
    folder = make_workspace(tmp_path / "night", until_admitted()[0])
    visitor = logged_in(make_app(folder))
    with visitor.client:
        text = words_of(visitor.text("approvals"))
        assert "needs no word" in text
        assert visitor.post("approve", card=open_card(), by="Li").status_code == 400


def test_a_name_is_remembered_for_the_next_form(operator: Visitor) -> None:
    """Within its session, and only shown as text."""
    operator.post("mode", mode="pause", by='Li "<b>"', reason="x")
    found = re.search(r'name="by" value="([^"]*)"', operator.text(""))

    assert found is not None
    assert found.group(1) == "Li &#34;&lt;b&gt;&#34;"


def test_what_operators_said_is_listed(reader: Visitor) -> None:
    """As the driver of the study wrote it into the ledger."""
    assert "run ops until 7" in words_of(reader.text("approvals"))
