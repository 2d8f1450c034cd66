"""What the pages say: every number with its window and N, faults without numbers, nothing missing passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.dashboard.routes import study
from experiments.control import Mode
from experiments.ledger import CardAdmitted, LedgerEntry, TrialFinished
from experiments.serving_config import Change, Kind, Role
from tests.agent.dashboard.page_reader import read_page
from tests.agent.dashboard.workspaces import (
    PAGES,
    Visitor,
    a_control,
    append,
    logged_in,
    make_app,
    make_running,
    make_workspace,
    until_admitted,
    words_of,
)
from tests.agent.ledger.test_security import LEAKS, PAYLOADS, PRIVATE, hostile_night
from tests.factories import a_long_study, a_night


@pytest.fixture(scope="module")
def held(held_night: Path) -> Iterator[Visitor]:
    visitor = logged_in(make_app(held_night))
    with visitor.client:
        yield visitor


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_that_it_is_simulated(reader: Visitor, page: str) -> None:
    """On screen, wherever a number could stand."""
    text = words_of(reader.text(page))
    assert "SIMULATED pool: no number on this page was measured on hardware" in text


def test_a_real_pool_is_not_called_simulated(tmp_path: Path) -> None:
    """The label would mean nothing if it always stood there."""
    visitor = logged_in(make_app(make_workspace(tmp_path / "night", a_night(simulated=False))))
    with visitor.client:
        for page in PAGES:
            assert "SIMULATED" not in visitor.text(page)


def test_the_overview_answers_the_first_questions(reader: Visitor) -> None:
    """What runs, why it waits, what is next, whether the machines may be taken, what is left."""
    text = words_of(reader.text(""))

    for words in (
        "now ended (no_candidate)",
        "waits because the study ended",
        "machines safe to take: the study ended",
        "control run, by ops (until 7)",
        "driver nobody: no service drives this study",
        "of 40 trials left",
        "NOT_OBSERVED of 2,000,000 tokens left",
    ):
        assert words in text


def test_a_held_trial_is_shown_with_the_way_out(held: Visitor) -> None:
    """The reason and the commands that settle it, on the overview, the live page and the faults."""
    for page in ("", "live", "faults"):
        text = words_of(held.text(page))
        assert "the client host restarted while the load ran" in text
        assert "tuneloop resolve" in text
    text = words_of(held.text(""))
    assert "NOT safe to take" in text
    assert "waits because nothing is sent while the end of a trial is unknown" in text


def test_the_live_page_shows_the_running_trial(tmp_path: Path) -> None:
    """Its stages with what they took and usually take, its end, requests done, and the queues that were sampled."""
    visitor = logged_in(make_app(make_running(tmp_path / "night")))
    with visitor.client:
        page = visitor.text("live")
    text = words_of(page)

    assert "trial t0005 (screening" in text
    assert "measure: 96 s, 212/320 requests; ends in about" in text
    assert "Requests ended: 212 of 320" in text
    assert "ready done 3 min 04 s 3 min 14 s" in text
    assert "measure runs – 2 min 51 s" in text
    assert "Queues; 60 live samples, SIMULATED" in text
    assert "Tokens per second; 60 live samples, SIMULATED" in text
    assert "NOT safe to take: trial t0005 is under way" in words_of(visitor.text(""))


def test_a_count_of_another_trial_is_not_shown(tmp_path: Path) -> None:
    """The driver's line may be some seconds old, and of the trial before."""
    folder = make_running(tmp_path / "night")
    line = (folder / "status.yaml").read_text()
    (folder / "status.yaml").write_text(line.replace("t0005: measure", "t0004: measure"))
    visitor = logged_in(make_app(folder))
    with visitor.client:
        text = words_of(visitor.text("live"))

    assert "Requests ended: NOT_OBSERVED" in text
    assert "212/320" not in text


def test_the_progress_has_the_answer_and_a_plot_per_load(reader: Visitor) -> None:
    """Runs of different N or window never share an axis."""
    text = reader.text("progress")

    assert "Keep c01-prefill-max-requests-2" in words_of(text)
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text) == [
        "N=640, native window, SIMULATED",
        "N=320, whole window, SIMULATED",
    ]
    assert "fault (has no value)" in text


def test_a_list_row_with_a_number_has_its_window_and_count(reader: Visitor) -> None:
    """And a row without a valid measurement has no number at all."""
    rows = re.findall(r"<tr>\s*<td><a id.*?</tr>", reader.text("experiments"), re.DOTALL)
    assert len(rows) > 10
    for row in rows:
        cells = [words_of(cell) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]
        figures, window = cells[6:9], cells[9]
        if window == "–":
            assert figures == ["–"] * 3
        else:
            assert re.fullmatch(r"(whole|native), \d+ in .*", window)
            assert re.fullmatch(r"\d+\.\d\d", figures[0])


def test_pages_of_the_list_hold_every_trial_once(tmp_path: Path) -> None:
    """From the newest to the first, by following the link to older ones."""
    visitor = logged_in(make_app(make_workspace(tmp_path / "night", a_long_study(120))))
    seen: list[str] = []
    with visitor.client:
        page: str | None = "experiments"
        while page is not None:
            text = visitor.text(page)
            seen += re.findall(r'<a id="t-\d+" class="row" href="/w/night/trials/([^"]+)"', text)
            older = re.search(r'rel="next" href="([^"]+)"', text)
            page = older.group(1).replace("&amp;", "&") if older else None

    assert len(seen) == len(set(seen)) == 124


def test_the_list_is_filtered(reader: Visitor) -> None:
    """By outcome and tier, as the form sends them: an empty choice is no filter."""
    everything = reader.text("experiments?route=&tier=").count('class="row"')
    faults = reader.text("experiments?route=orchestration_fault&tier=")

    assert 0 < faults.count('class="row"') < everything
    assert set(re.findall(r'class="label (\w+)"', faults)) == {"fault"}
    assert reader.get("experiments?route=nonsense").status_code == 422
    assert reader.get("experiments?before=99999999999999999999").status_code == 422


def test_a_card_page_has_the_whole_argument(reader: Visitor) -> None:
    """Hypothesis, evidence, exact difference, stages, windows side by side, verdict with its interval."""
    link = re.findall(r'class="row" href="([^"]+)"', reader.text("cards"))[-1]
    text = words_of(reader.text(link))

    for words in (
        "Prefill admits one request per batch",
        "prefill.lone_tail_share",
        "prefill.flag.prefill-max-requests 1 2",
        "at 95 % confidence",
        "window whole native in window",
        "measure 1 2026-12-01",
        "decided",
    ):
        assert words in text, words


def test_a_bundle_in_a_list_says_that_there_is_more(tmp_path: Path) -> None:
    """A row has room for one change; two must not pass for one."""
    night, _ = until_admitted()
    last = night[-1]
    assert isinstance(last, CardAdmitted)
    also = Change(role=Role.DECODE, kind=Kind.FLAG, name="max-running-requests", from_value=128, to_value=160)
    draft = last.card.draft.model_copy(update={"change": last.card.draft.change.model_copy(update={"also": also})})
    bundle = last.model_copy(update={"card": last.card.model_copy(update={"draft": draft})})
    visitor = logged_in(make_app(make_workspace(tmp_path / "night", [*night[:-1], bundle])))
    with visitor.client:
        text = words_of(visitor.text("cards"))
    assert "prefill prefill-max-requests 1 → 2, with another change: see the card" in text


def test_links_of_a_card_lead_to_its_runs(reader: Visitor) -> None:
    """Every address on the pages of the study leads somewhere."""
    seen: set[str] = set()
    for page in (*PAGES, *re.findall(r'class="row" href="(/w/night/cards/[^"]+)"', reader.text("cards"))):
        for address in read_page(reader.text(page)).addresses:
            if address.startswith("/w/") and not address.endswith(("/mode", "/approve", "/events")):
                seen.add(address.split("#")[0])
    lost = [a for a in sorted(seen) if reader.get(a).status_code != 200]

    assert len(seen) > 40
    # The factory's records name raw files that were never written.
    assert [a for a in lost if "/files/" not in a] == []


def test_a_trial_page_shows_the_queues_of_its_logs(reader: Visitor) -> None:
    """From the servers' own lines; what no server wrote is NOT_OBSERVED, never a flat line."""
    text = words_of(reader.text("trials/t0001"))

    assert "Queues; 60 prefill and 0 decode log lines, SIMULATED" in text
    assert "Requests in decode; 60 prefill and 0 decode log lines, SIMULATED: NOT_OBSERVED" in text


def test_a_log_is_text_and_a_raw_file_is_never_shown(reader: Visitor) -> None:
    """The browser saves the original; the page has its last lines without private details."""
    page, raw = reader.get("trials/t0001/log/prefill.log"), reader.get("files/t0001/prefill.log")

    assert "Prefill batch, #new-seq: 2" in page.text
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"].startswith("attachment")
    assert raw.text.count("\n") == 60


OUT_OF_REACH = ["files/t0001/state.yaml", "files/t0001/..%2f..%2fstate.yaml", "files/..%2f/state.yaml", "files/t0001/"]


@pytest.mark.parametrize("page", OUT_OF_REACH)
def test_only_listed_files_are_served(reader: Visitor, page: str) -> None:
    """Nothing beside the artifacts that the record names."""
    assert reader.get(page).status_code in (403, 404)


def test_a_link_among_the_artifacts_is_not_followed(tmp_path: Path) -> None:
    """Whoever can write there cannot have the dashboard read elsewhere."""
    folder = make_workspace(tmp_path / "night", a_night())
    (folder / "artifacts" / "t0001" / "server_info.json").symlink_to(folder / "state.yaml")
    visitor = logged_in(make_app(folder))
    with visitor.client:
        assert visitor.get("files/t0001/server_info.json").status_code == 404


def test_faults_stand_apart_and_without_numbers(reader: Visitor) -> None:
    """With the stage, the reason, whether the load was sent, and what repaired it."""
    text = words_of(reader.text("faults"))

    assert "A fault is never a number" in text
    assert "prefill reports tp 4, the card says tp 16" in text
    assert "repaired: read the stored details file again; nothing was sent" in text
    assert "out_of_bounds" in text


def test_the_loop_figures_are_those_of_the_ledger(reader: Visitor) -> None:
    """Cost by stage, time to decision, predictions, noise."""
    text = words_of(reader.text("loop"))
    for words in ("all stages", "time from proposal to decision, median", "Brier score", "Noise floor"):
        assert words in text


@pytest.mark.parametrize("first", range(4))
def test_no_hostile_text_becomes_markup(tmp_path: Path, first: int) -> None:
    """From planner, server, host, operator or log: the pages keep their shape, and nothing in them can run."""
    payload = " ".join(PAYLOADS[first::4])
    control = a_control(mode=Mode.PAUSE, reason=re.sub(r"[^ -~]", "?", payload)[:500])
    folder = make_workspace(tmp_path / "night", stored(hostile_night(payload)), control)
    visitor = logged_in(make_app(folder))
    with visitor.client:
        addresses = re.findall(r'class="row" href="([^"]+)"', visitor.text("cards") + visitor.text("experiments"))
        for page in (*PAGES, *addresses):
            found = read_page(visitor.text(page))
            assert found.errors == [], page
            assert "\x1b" not in found.text
            assert "\u202e" not in found.text


def stored(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Artifacts of one trial have different names, or the store refuses them."""
    return [_with_names(entry) for entry in entries]


def _with_names(entry: LedgerEntry) -> LedgerEntry:
    if not isinstance(entry, TrialFinished):
        return entry
    artifacts = [a.model_copy(update={"name": f"{a.name} {n}"}) for n, a in enumerate(entry.record.artifacts)]
    return entry.model_copy(update={"record": entry.record.model_copy(update={"artifacts": tuple(artifacts)})})


def test_a_hostile_log_is_only_text(tmp_path: Path) -> None:
    """Every payload as a line of a log that the record lists."""
    folder = make_workspace(tmp_path / "night", a_night())
    (folder / "artifacts" / "t0001" / "prefill.log").write_text("\n".join(PAYLOADS))
    visitor = logged_in(make_app(folder))
    with visitor.client:
        found = read_page(visitor.text("trials/t0001/log/prefill.log"))
    assert found.errors == []
    assert "<script>alert(1)</script>" in found.text


@pytest.mark.parametrize("first", range(3))
def test_private_details_do_not_get_out(tmp_path: Path, first: int) -> None:
    """By their shape, wherever they were written, the control file included."""
    # The name of a check is a constant of ours, shown without its underscores.
    secrets = " again, ".join(secret.replace("_", "-") for secret in list(PRIVATE.values())[first::3])
    leaks = {**LEAKS, "home": "~/keys"}  # our own pages speak of keys
    folder = make_workspace(tmp_path / "night", stored(hostile_night(secrets)), a_control(reason=secrets[:500]))
    visitor = logged_in(make_app(folder))
    with visitor.client:
        for page in PAGES:
            text = visitor.text(page)
            assert [name for name, leak in leaks.items() if leak in text] == [], page


def test_the_names_of_the_pool_do_not_get_out(tmp_path: Path) -> None:
    """Hosts, addresses and folders of pool.yaml are known values."""
    text = "rack17-node3 was busy under /srv/tuning/team"
    folder = make_workspace(tmp_path / "night", stored(hostile_night(text)))
    visitor = logged_in(make_app(folder))
    with visitor.client:
        visitor.text("progress")
        (folder / "pool.yaml").write_text(POOL)  # it came after the dashboard
        shown = "".join(visitor.text(page) for page in PAGES)
    assert "‹private› was busy" in shown
    assert "rack17" not in shown
    assert "/srv/tuning" not in shown


POOL = """\
name: a3
cards: {prefill: 8, decode: 8}
hosts:
  rack17-node3: {role: prefill, ssh: rack17-node3, address: 10.0.0.1, port: 30000, bootstrap_port: 8998}
  rack17-node4: {role: decode, ssh: rack17-node4, address: 10.0.0.2, port: 30000}
router: {on: rack17-node3, port: 30100}
client: {on: rack17-node3, model_path: /srv/model}
workdir: /srv/tuning/team
engine: {version: 0.5.10}
"""


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """After every page the folder has the files and the bytes that it had, but for the database's own bookkeeping."""
    folder = make_workspace(tmp_path / "night", a_night())
    visitor = logged_in(make_app(folder))
    before = _contents(folder)
    with visitor.client:
        for page in PAGES:
            visitor.text(page)

    assert _contents(folder) == before


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_page_shows_what_was_appended_after_it_was_opened(tmp_path: Path) -> None:
    """The fold that is kept grows with the ledger; the study is not locked while it is shown."""
    before, after = until_admitted(3)
    folder = make_workspace(tmp_path / "night", before)
    visitor = logged_in(make_app(folder))
    with visitor.client:
        assert "c04-" not in visitor.text("cards") + visitor.text("progress")
        append(folder, after)
        assert "c04-" in visitor.text("cards")
        assert "the quality of its outputs was not evaluated" in visitor.text("progress")
        assert "the client host restarted" in visitor.text("faults")


def test_a_renewed_part_is_made_once_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under one mark; it holds nothing of the session that it was made for, and a new mark makes it anew."""
    before, after = until_admitted(2)
    folder = make_workspace(tmp_path / "night", before)
    app = make_app(folder)
    one, two = logged_in(app), logged_in(app)
    made: list[str] = []
    real = study.status_lines
    monkeypatch.setattr(study, "status_lines", lambda report: made.append(report.study.id) or real(report))
    with one.client:
        parts = [visitor.get("", headers={"HX-Request": "true"}).text for visitor in (one, two, one)]
        assert len(made) == 1
        assert parts[0] == parts[1] == parts[2]
        assert one.csrf() not in parts[0]
        assert "csrf" not in parts[0]
        append(folder, after[:1])
        assert two.get("", headers={"HX-Request": "true"}).text != parts[0]
        assert two.csrf() in two.text("")


@pytest.mark.parametrize("page", PAGES)
def test_a_part_has_no_form_of_a_session_that_others_could_get(reader: Visitor, page: str) -> None:
    """What is kept for others is the same for all; approvals, which have a form, are not kept."""
    parts = [reader.get(page, headers={"HX-Request": "true"}).text for _ in range(2)]

    assert read_page(parts[1]).errors == []
    assert reader.csrf() not in parts[1]


def test_before_a_study_there_is_a_page_that_waits(tmp_path: Path) -> None:
    """Not an error of ours; the page comes by itself as soon as there is something."""
    (tmp_path / "night").mkdir()
    visitor = logged_in(make_app(tmp_path / "night"))
    with visitor.client:
        answer = visitor.get("")
        assert answer.status_code == 404
        assert "no study was opened here yet" in words_of(answer.text)
        assert "data-reload" in answer.text
        make_workspace(tmp_path / "night", a_night())
        assert visitor.get("").status_code == 200


def test_several_workspaces_have_a_list(tmp_path: Path, ended_night: Path, held_night: Path) -> None:
    """Each with what runs and whether its machines may be taken; the same folder name gets a number."""
    (tmp_path / "empty").mkdir()
    visitor = logged_in(make_app(ended_night, held_night, tmp_path / "empty"))
    with visitor.client:
        text = visitor.text("/")
    words = words_of(text)

    assert read_page(text).errors == []
    assert re.findall(r'class="row" href="([^"]+)"', text) == ["/w/night/", "/w/night-2/", "/w/empty/"]
    assert "HELD: the end of trial" in words
    assert "no study was opened here yet" in words


def test_unknown_things_are_not_found(reader: Visitor) -> None:
    """A page that says so, with the menu to go on."""
    for page in ("cards/c99", "trials/t9999", "trials/t0001/log/none.log", "/w/other/", "nonsense"):
        assert reader.get(page).status_code == 404
