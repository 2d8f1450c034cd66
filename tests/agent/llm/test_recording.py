"""Conversations on disk, and the same answers out of them."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.llm import ChatUnavailable, Message, RecordedModel, RecordingModel, ScriptedModel
from agent.llm.recording import read_conversations
from agent.planner.llm_proposer import LlmProposer
from executor.clock import ManualClock
from experiments.errors import InputError
from tests.agent.llm.fake_endpoint import GOOD, SmallAnswer
from tests.agent.llm.packets import CARD, a_packet, an_answer

ASK = (Message(role="user", content="Propose."),)


def recorder(folder: Path, *answers: object) -> RecordingModel:
    clock = ManualClock(datetime(2026, 12, 1, 23, 59, 58, tzinfo=UTC))
    return RecordingModel(ScriptedModel(list(answers)), folder, clock)  # type: ignore[arg-type]


def test_replay_gives_the_same_proposal(tmp_path: Path) -> None:
    """The same packet over the recording yields the very same drafts, tokens included."""
    recorded = LlmProposer(recorder(tmp_path, an_answer(CARD))).propose(a_packet())
    replayed = LlmProposer(RecordedModel.read(tmp_path)).propose(a_packet())
    assert recorded == replayed


def test_replay_of_another_question_says_so(tmp_path: Path) -> None:
    """A changed prompt has no answer in the recording, instead of a wrong one."""
    LlmProposer(recorder(tmp_path, an_answer(CARD))).propose(a_packet())
    with pytest.raises(ChatUnavailable, match="holds no answer"):
        RecordedModel.read(tmp_path).complete(ASK, SmallAnswer)


def test_failures_are_recorded_and_replayed_in_order(tmp_path: Path) -> None:
    """Asked twice: first away, then answered."""
    model = recorder(tmp_path, ChatUnavailable("away", tokens=5), GOOD)
    with pytest.raises(ChatUnavailable):
        model.complete(ASK, SmallAnswer)
    model.complete(ASK, SmallAnswer)
    replay = RecordedModel.read(tmp_path)
    with pytest.raises(ChatUnavailable, match="away") as caught:
        replay.complete(ASK, SmallAnswer)
    assert caught.value.tokens == 5
    assert replay.complete(ASK, SmallAnswer).parsed.value == 2
    with pytest.raises(ChatUnavailable, match="holds no answer"):
        replay.complete(ASK, SmallAnswer)


def test_recording_is_for_its_owner_only(tmp_path: Path) -> None:
    """Prompts hold the figures of a customer's system."""
    folder = tmp_path / "conversations"
    recorder(folder, GOOD).complete(ASK, SmallAnswer)
    (file,) = folder.iterdir()
    assert file.name == "conversations-2026-12-01.jsonl"
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)


def test_last_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    """Every prefix of a recording is readable and loses at most its last line."""
    model = recorder(tmp_path, GOOD, GOOD)
    model.complete(ASK, SmallAnswer)
    model.complete(ASK, SmallAnswer)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in (0, 1, first - 1, first, first + 7, len(whole) - 1, len(whole)):
        file.write_bytes(whole[:cut])
        assert whole[:cut].count(b"\n") == len(read_conversations(tmp_path))


@pytest.mark.parametrize("line", ["{}", "not json", '{"schema_version": 1}', "[" * 3000])
def test_bad_line_is_named_with_its_place(tmp_path: Path, line: str) -> None:
    """A recording that was edited is refused with file and line."""
    file = tmp_path / "conversations-2026-12-01.jsonl"
    file.write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"conversations-2026-12-01.jsonl:1:1: not a recorded conversation"):
        RecordedModel.read(file)


def test_missing_recording_is_an_input_error(tmp_path: Path) -> None:
    """No traceback for a wrong path."""
    with pytest.raises(InputError, match="cannot be read"):
        RecordedModel.read(tmp_path / "none.jsonl")


def test_recorded_answer_that_fits_no_more_is_unavailable(tmp_path: Path) -> None:
    """After a change of the schema the replay says so."""
    recorder(tmp_path, GOOD).complete(ASK, SmallAnswer)
    (file,) = tmp_path.iterdir()
    line = json.loads(file.read_text())
    line["outcome"]["document"] = {"knob": 1}
    file.write_text(json.dumps(line) + "\n")
    with pytest.raises(ChatUnavailable, match="today's schema"):
        RecordedModel.read(file).complete(ASK, SmallAnswer)
