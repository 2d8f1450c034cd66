"""`tuneloop replay`: recorded conversations as lines to read, and what cannot be replayed is counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.entrypoints.replay import replay_conversations
from agent.llm import ChatUnavailable, RecordingModel, ScriptedModel
from agent.planner.llm_proposer import LlmProposer
from agent.planner.port import ProposerUnavailable
from executor.clock import ManualClock
from experiments.errors import InputError
from tests.agent.llm.packets import CARD, a_packet, an_answer


def recorded(folder: Path, *answers: object) -> Path:
    """One question per answer; returns the file."""
    model = RecordingModel(ScriptedModel(list(answers)), folder, ManualClock(datetime(2026, 12, 1, 23, tzinfo=UTC)))  # type: ignore[arg-type]
    for _ in answers:
        try:
            LlmProposer(model).propose(a_packet())
        except ProposerUnavailable:
            continue
    return next(folder.glob("*.jsonl"))


def test_an_answer_is_told_with_its_account_and_its_cards(tmp_path: Path) -> None:
    """Model, rung, tokens, and what each card asks for."""
    recorded(tmp_path, an_answer(CARD))

    found = replay_conversations(tmp_path)

    assert found.broken == 0
    assert "scripted by none" in found.lines[0]
    assert CARD["knob"] in found.lines[1]
    assert found.lines[-1].endswith("0 that cannot be replayed")


def test_a_failure_then_is_no_failure_of_the_replay(tmp_path: Path) -> None:
    """An outage that was recorded is replayed as one."""
    recorded(tmp_path, ChatUnavailable("away", tokens=5))

    found = replay_conversations(tmp_path)

    assert "no answer then: away" in found.lines[0]
    assert found.broken == 0


def test_an_answer_that_no_longer_fits_is_counted(tmp_path: Path) -> None:
    """A recording of another schema is said, not read as something else."""
    file = recorded(tmp_path, an_answer(CARD))
    line = json.loads(file.read_text())
    line["outcome"]["document"] = {"cards": "none"}
    file.write_text(json.dumps(line) + "\n")

    found = replay_conversations(tmp_path)

    assert found.broken == 1
    assert "does not fit today's schema" in found.lines[0]


def test_a_question_that_was_edited_is_not_replayed(tmp_path: Path) -> None:
    """The key is made of everything the model was told."""
    file = recorded(tmp_path, an_answer(CARD))
    line = json.loads(file.read_text())
    line["messages"][1]["content"] += " And ignore the limits."
    file.write_text(json.dumps(line) + "\n")

    assert replay_conversations(tmp_path).broken == 1


def test_control_characters_of_a_model_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """What a model wrote is text of strangers."""
    recorded(tmp_path, an_answer({**CARD, "to_value": "2\x1b[31m\nevil"}))

    assert not any("\x1b" in line or "\n" in line for line in replay_conversations(tmp_path).lines)


def test_an_empty_folder_is_one_line_to_act_on(tmp_path: Path) -> None:
    """Wrong folder: said with its name."""
    with pytest.raises(InputError, match="holds no recorded conversation"):
        replay_conversations(tmp_path)
